"""Parts of a tensor: slices along its axes, splits and unpacked rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import OpType, View, all_int32
from cost_models.ops.recipes import axis_where, known_shape, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import Work, copied_strings_ns, copies_part, elements, host_only, is_known, moves, nbytes, sides

ALIGNMENT_BYTES = 64
"""Tensors begin at multiples of this (EIGEN_MAX_ALIGN_BYTES); a part that does not is copied."""
_SPLIT_NS_PER_ROW = 6.0
"""A CPU copies each part of each row by itself."""


def _is_aligned(row_bytes: int) -> bool:
    """Whether each row begins where a tensor may begin (`IsDim0SliceAligned` and `IsInnerDimsSizeAligned` in ops_util.h)."""
    return row_bytes % ALIGNMENT_BYTES == 0


# -- views ---------------------------------------------------------------------------------------------------------------


def _sliced(op: OpSignature) -> View:
    """The input's memory if all of it is taken, part of it for successive rows (`StridedSliceOp` in strided_slice_op.cc).

    A slice from the beginning to the end that leaves rows out has a stride.
    """
    whole, part = op.inputs[:1], op.outputs[:1]
    if is_known(whole + part):
        if elements(whole) == elements(part):
            return View.INPUT
        if op.attr("begin_mask") == 1 and op.attr("end_mask") == 1:
            return View.NONE
    rows = max(1, (sides(whole, 0) or (1,))[0])
    along_first_axis = sides(op.inputs, 1) == (1,)
    return View.PARTS if along_first_axis and _is_aligned(nbytes(whole) // rows) else View.NONE


def _unpacked(op: OpSignature) -> View:
    """Parts of the input along the first axis (`UnpackOp`)."""
    along_first_axis = not op.attr("axis", 0)
    return View.PARTS if along_first_axis and _is_aligned(nbytes(op.outputs[:1])) else View.NONE


# -- work ----------------------------------------------------------------------------------------------------------------


def _sliced_view(op: OpSignature) -> Work:
    """Nothing, apart from int32 slices, which are shapes and indices for the most part: they are priced as copies in host
    memory.
    """
    return copies_part(op) if all_int32(op) else host_only(op)


def _split(op: OpSignature) -> Work:
    rows = sum(spec.elements // max(1, (spec.shape or (1,))[-1] or 1) for spec in op.outputs)
    return replace(moves(1)(op), cpu_serial_ns=copied_strings_ns(op) + _SPLIT_NS_PER_ROW * rows)


def _unpack(op: OpSignature) -> Work:
    """A GPU starts a kernel for each part."""
    return replace(moves(1)(op), kernels=max(1, len(op.outputs)))


# -- recipes -------------------------------------------------------------------------------------------------------------


def _slice_at_zero(op: OpSignature) -> Mapping[int, Any]:
    return {1: [0] * len(shape_out(op)), 2: shape_out(op)}


def _slice_arguments(op: OpSignature) -> Mapping[int, Any]:
    return dict(enumerate(_strides(op, shape_in(op, 0), shape_out(op)), start=1))


def _slice_gradient_arguments(op: OpSignature) -> Mapping[int, Any]:
    return {0: shape_out(op), **dict(enumerate(_strides(op, shape_out(op), shape_in(op, 4)), start=1))}


def _strides(op: OpSignature, whole: tuple[int, ...], part: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """A beginning, an end and a stride for each entry of the slice. An entry that a mask covers gets any values."""

    def is_masked(name: str, entry: int) -> bool:
        return bool(int(op.attr(name, 0) or 0) >> entry & 1)  # type: ignore[arg-type]

    entries = op.inputs[1].elements
    plain = sum(not is_masked("new_axis_mask", k) and not is_masked("ellipsis_mask", k) for k in range(entries))
    remaining, remaining_part = list(whole), list(part)
    begin, end, stride = [], [], []
    for k in range(entries):
        if is_masked("ellipsis_mask", k):
            skipped = max(0, len(whole) - plain)
            del remaining[:skipped], remaining_part[:skipped]
            entry = (0, 0, 1)
        elif is_masked("new_axis_mask", k):
            del remaining_part[:1]
            entry = (0, 1, 1)
        elif is_masked("shrink_axis_mask", k):
            del remaining[:1]
            entry = (0, 1, 1)
        else:
            side, length = remaining.pop(0), remaining_part.pop(0)
            to_the_end = is_masked("end_mask", k) and not is_masked("begin_mask", k)
            step = -(-side // length) if is_masked("end_mask", k) and is_masked("begin_mask", k) and length else 1
            entry = (side - length if to_the_end else 0, length, step)
        begin.append(entry[0])
        end.append(entry[1])
        stride.append(entry[2])
    return begin, end, stride


def _split_axis(op: OpSignature) -> Mapping[int, Any]:
    whole, part = shape_in(op, 1), shape_out(op)
    return {0: axis_where(lambda axis: part[axis] * len(op.outputs) == whole[axis], len(whole))}


def _split_sizes(op: OpSignature) -> Mapping[int, Any]:
    whole, parts = shape_in(op, 0), [known_shape(spec) for spec in op.outputs]
    axis = axis_where(lambda axis: sum(part[axis] for part in parts) == whole[axis], len(whole))
    return {1: [part[axis] for part in parts], 2: axis}


register("Slice", OpType(work=copies_part, host_kernel=all_int32, recipe=_slice_at_zero))
register("TensorStridedSliceUpdate", OpType(work=copies_part))
register(
    "StridedSlice",
    OpType(work=copies_part, view=_sliced, view_work=_sliced_view, host_kernel=all_int32, recipe=_slice_arguments),
)
register("StridedSliceGrad", OpType(work=moves(1), host_kernel=all_int32, recipe=_slice_gradient_arguments))
register("Unpack", OpType(work=_unpack, view=_unpacked, lazy_outputs=True, host_kernel=all_int32))
register("Split", OpType(work=_split, recipe=_split_axis))
register("SplitV", OpType(work=_split, host_kernel=all_int32, recipe=_split_sizes))
