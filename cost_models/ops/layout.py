"""Ops that copy a tensor's elements to other positions, and ops that fill a tensor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops.optype import Difference, OpType, View, all_int32
from cost_models.ops.recipes import (
    UnmeasurableError,
    axis_where,
    constants,
    indices_below,
    known_shape,
    output_shape_at,
    shape_in,
    shape_out,
)
from cost_models.ops.table import register
from cost_models.ops.work import LIBRARY_DTYPES, TRANSPOSE_NS, Work, elements, is_known, moves, nbytes, sides

_SMALL_NS = 3_000.0
"""Time of oneDNN's call for a small transpose, which one core makes. All cores share a larger one."""
_SMALL, _SMALL_BLOCKS = 1024, 256
"""Elements of the largest small transpose: in general, and of the kernel for sides of 8 or 16."""


def _transposed(op: OpSignature) -> View:
    """The input's memory if the axes that are longer than one keep their order (`TransposeOp` in transpose_op.cc).

    The shapes show that only if these axes have different lengths.
    """
    before, after = ([side for side in sides(specs, 0) if side > 1] for specs in (op.inputs, op.outputs))
    keeps_order = before == after and len(set(before)) == len(before)
    return View.INPUT if is_known(op.inputs[:1] + op.outputs) and keeps_order else View.NONE


def _transpose(op: OpSignature) -> Work:
    """On a CPU oneDNN transposes its types.

    Its kernel for blocks (`jit_single_blk_kernel_t`) takes matrices with a side of 8 or 16 and shares all but the smallest.
    """
    work = moves(2)(op)
    if not op.outputs or op.outputs[0].dtype not in LIBRARY_DTYPES:
        return work
    blocks = not {8, 16}.isdisjoint(sides(op.outputs, 0)[-2:])
    small = elements(op.outputs) <= (_SMALL_BLOCKS if blocks else _SMALL)
    return replace(work, cpu_serial_ns=_SMALL_NS if small else TRANSPOSE_NS)


def _fill(op: OpSignature) -> Work:
    return Work(nbytes=nbytes(op.outputs))


# -- recipes -------------------------------------------------------------------------------------------------------------


def _axis_first(op: OpSignature) -> Mapping[int, Any]:
    return {0: _joined_axis(op.inputs[1:], shape_out(op))}


def _axis_last(op: OpSignature) -> Mapping[int, Any]:
    return {len(op.inputs) - 1: _joined_axis(op.inputs[:-1], shape_out(op))}


def _joined_axis(parts: tuple[TensorSpec, ...], whole: tuple[int, ...]) -> int:
    shapes = [known_shape(part) for part in parts]
    return axis_where(lambda axis: sum(shape[axis] for shape in shapes) == whole[axis], len(whole))


def _permutation_of_axes(op: OpSignature) -> Mapping[int, Any]:
    """A permutation that gives the output's shape, and moves something if any does."""
    old, new = shape_in(op, 0), shape_out(op)
    if len(old) > 6:
        raise UnmeasurableError("its shapes do not tell the permutation")
    fitting = [p for p in itertools.permutations(range(len(old))) if tuple(old[k] for k in p) == new]
    return {1: fitting[min(1, len(fitting) - 1)] if fitting[0] == tuple(range(len(old))) else fitting[0]}


def _repeats(op: OpSignature) -> Mapping[int, Any]:
    return {1: [new // max(old, 1) for new, old in zip(shape_out(op), shape_in(op, 0), strict=True)]}


def _padding(op: OpSignature) -> Mapping[int, Any]:
    """Half of what is added to each axis, or taken from it, is at either end."""
    sizes = (abs(new - old) for new, old in zip(shape_out(op), shape_in(op, 0), strict=True))
    return {1: [(size // 2, size - size // 2) for size in sizes]}


def _reversed_axes(op: OpSignature) -> Mapping[int, Any]:
    return {1: range(op.inputs[1].elements)}


def _rolled_axes(op: OpSignature) -> Mapping[int, Any]:
    return {2: range(op.inputs[2].elements)}


def _lengths(op: OpSignature) -> Mapping[int, Any]:
    return {1: indices_below(shape_in(op, 0)[int(op.attr("seq_dim", 0) or 0)], op.inputs[1])}  # type: ignore[arg-type]


def _one_hot(op: OpSignature) -> Mapping[int, Any]:
    depth = shape_out(op)[int(op.attr("axis", -1))]  # type: ignore[arg-type]
    return {0: indices_below(depth, op.inputs[0]), 1: depth}


def _range(op: OpSignature) -> Mapping[int, Any]:
    return {0: 0, 1: shape_out(op)[0], 2: 1}


def _linspace(op: OpSignature) -> Mapping[int, Any]:
    return {0: 0, 1: 1, 2: shape_out(op)[0]}


_MOVES = OpType(work=moves(1))
_MOVES_INTEGERS = replace(_MOVES, host_kernel=all_int32)

register("Concat", replace(_MOVES_INTEGERS, start_factor=1.8, recipe=_axis_first))
register("ConcatV2", replace(_MOVES_INTEGERS, start_factor=1.8, recipe=_axis_last))
register("Pack", replace(_MOVES_INTEGERS, start_factor=1.8))
register("Reverse", _MOVES_INTEGERS)
register("Pad PadV2", replace(_MOVES_INTEGERS, recipe=_padding))
register("MirrorPad MirrorPadGrad", replace(_MOVES, recipe=_padding))
register("Tile", replace(_MOVES, recipe=_repeats))
register("BroadcastTo", replace(_MOVES_INTEGERS, recipe=output_shape_at(1)))
register("ReverseV2", replace(_MOVES_INTEGERS, recipe=_reversed_axes))
register("ReverseSequence", replace(_MOVES, differs=frozenset({Difference.BOUNDS}), recipe=_lengths))
register("Roll", replace(_MOVES, recipe=_rolled_axes))
register("Transpose ConjugateTranspose", OpType(work=_transpose, view=_transposed, recipe=_permutation_of_axes))
register(
    """SpaceToDepth DepthToSpace SpaceToBatchND BatchToSpaceND SpaceToBatch BatchToSpace ExtractImagePatches MatrixDiag
    MatrixDiagV2 Diag DiagPart""",
    _MOVES,
)
register("MatrixDiagV3", replace(_MOVES, recipe=constants({1: 0, 2: -1, 3: -1, 4: 0})))
register("MatrixDiagPartV3", replace(_MOVES, recipe=constants({1: 0, 2: 0})))
register("MatrixSetDiagV3", replace(_MOVES, recipe=constants({2: 0})))
register("MatrixBandPart", replace(_MOVES, recipe=constants({1: -1, 2: 0})))
register("OneHot", OpType(work=moves(1, cpu_ns_each=0.09), recipe=_one_hot))
register("Fill", OpType(work=_fill, host_kernel=all_int32, recipe=output_shape_at(0)))
register("ZerosLike OnesLike", OpType(work=_fill, in_place=True))
register("Range", OpType(work=_fill, host_kernel=all_int32, recipe=_range))
register("LinSpace", OpType(work=_fill, recipe=_linspace))
register("ImmutableConst", OpType(work=_fill))
