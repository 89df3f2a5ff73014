"""Values for the inputs of an op that is measured by itself, worked out from the shapes of its signature.

A signature has shapes and no values, yet some values decide what an op does: an axis, a permutation, indices, sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cost_models.base import DTYPE_BYTES, OpSignature, TensorSpec
from cost_models.ops.optype import Recipe, ScratchVariable

MAX_TABLE_BYTES = 2**28
"""No variable that is made to take rows of is larger than this."""
ROWS_PER_INDEX = 16
"""Rows of such a variable for each index, so that few indices are equal."""
MAX_INDICES = 2**20
"""Different random indices that are made; more indices repeat them."""


class UnmeasurableError(Exception):
    """An op that cannot be run by itself. The message says why, in words that follow the op's name."""


@dataclass(frozen=True, slots=True)
class Data:
    """A value that is bulk data: it belongs in the memory of the device that runs the op. Other values belong in host memory."""

    array: Any


def known_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape; UnmeasurableError if a dimension is unknown."""
    if spec.shape is None or None in spec.shape:
        raise UnmeasurableError("a shape that its inputs follow from is not known")
    return tuple(side for side in spec.shape if side is not None)


def shape_in(op: OpSignature, position: int) -> tuple[int, ...]:
    """The shape of an input."""
    return known_shape(op.inputs[position])


def shape_out(op: OpSignature) -> tuple[int, ...]:
    """The shape of the first output."""
    return known_shape(op.outputs[0])


def axis_where(fits: Callable[[int], bool], rank: int) -> int:
    """The first axis that fits; UnmeasurableError if none does."""
    for axis in range(rank):
        if fits(axis):
            return axis
    raise UnmeasurableError("its shapes do not tell along which axis it works")


# -- values --------------------------------------------------------------------------------------------------------------


def indices_below(end: int, spec: TensorSpec) -> Data:
    """Random indices from 0 to end - 1."""
    some = np.random.default_rng(1).integers(0, max(end, 1), min(spec.elements, MAX_INDICES))
    return Data(np.resize(some, known_shape(spec)))


def ascending_ids(count: int, end: int) -> Data:
    """So many sorted ids from 0 to end - 1."""
    return Data(np.sort(np.resize(np.arange(max(end, 1)), count)))


def random_points(spec: TensorSpec, table: tuple[int, ...]) -> Data:
    """Random positions in a table; the last axis of `spec` has their coordinates."""
    shape = known_shape(spec)
    rng = np.random.default_rng(1)
    return Data(np.stack([rng.integers(0, max(side, 1), shape[:-1]) for side in table[: shape[-1]]], axis=-1))


def random_boxes(shape: tuple[int, ...]) -> Data:
    """Boxes with a tenth of the image's side, anywhere in it."""
    corners = np.random.default_rng(1).random((*shape[:-1], 2))
    return Data(np.concatenate([corners, corners + 0.1], axis=-1))


# -- recipes of several families -----------------------------------------------------------------------------------------


def constants(values: Mapping[int, Any]) -> Recipe:
    """The same values whatever the shapes."""
    return lambda op: values


def output_shape_at(position: int, more: Mapping[int, Any] | None = None) -> Recipe:
    """The output's shape is an input. `more` are values of other inputs."""
    return lambda op: {position: shape_out(op), **(more or {})}


# -- variables -----------------------------------------------------------------------------------------------------------


def whole_variable(op: OpSignature) -> ScratchVariable:
    """A variable with the shape of the largest tensor that the op reads or writes beside it."""
    largest = max(_tensors(op), key=lambda spec: spec.elements)
    return ScratchVariable(largest.dtype, known_shape(largest))


def table_of_rows(op: OpSignature) -> ScratchVariable:
    """A variable for an op whose indices are numbers of rows."""
    rows, row = _rows(op), known_shape(_rows(op))[len(known_shape(indices_of(op))) :]
    return ScratchVariable(rows.dtype, (_row_count(op, rows, row), *row))


def table_of_points(op: OpSignature) -> ScratchVariable:
    """A variable for an op whose indices are points: their last axis has the coordinates."""
    rows, indices = _rows(op), known_shape(indices_of(op))
    depth, row = indices[-1], known_shape(rows)[len(indices) - 1 :]
    count = _row_count(op, rows, row)
    sides = (count,) if depth == 1 else (max(2, round(count ** (1 / depth))),) * depth
    return ScratchVariable(rows.dtype, (*sides, *row))


def indices_of(op: OpSignature) -> TensorSpec:
    """The indices of an op on rows of a variable: its second input, or the last one that can be indices."""
    possible = [spec for spec in op.inputs if spec.dtype in ("int32", "int64") and spec.shape]
    if not possible:
        raise UnmeasurableError("none of its inputs are indices")
    return op.inputs[1] if op.inputs[1] in possible else possible[-1]


def _tensors(op: OpSignature) -> list[TensorSpec]:
    return [spec for spec in (*op.inputs, *op.outputs) if spec.dtype != "resource"]


def _rows(op: OpSignature) -> TensorSpec:
    """The tensor of the rows that are read or written."""
    return op.outputs[0] if op.outputs else max(_tensors(op), key=lambda spec: spec.elements)


def _row_count(op: OpSignature, rows: TensorSpec, row: tuple[int, ...]) -> int:
    row_bytes = math.prod(row) * DTYPE_BYTES[rows.dtype] or 1
    return max(1, min(ROWS_PER_INDEX * indices_of(op).elements, MAX_TABLE_BYTES // row_bytes))
