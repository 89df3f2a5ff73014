"""Rows taken from tensors, rows combined into tensors, and sums over segments of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType, all_int32
from cost_models.ops.recipes import ascending_ids, axis_where, indices_below, random_points, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import CORE_NS_PER_BYTE, Work, copies_part, elements, moves, nbytes, sides

BOUNDS = frozenset({Difference.BOUNDS})
"""TensorFlow documents it for gathers, scatters and segments. GPU kernels of the others check nothing that the host would learn
of. Ops that are alike are taken to behave alike."""
BOUNDS_AND_SUMS = BOUNDS | {Difference.SUM_ORDER}
_FLOPS_PER_ROW = 80.0
"""Each row is looked for in memory, which takes the time of about 80 operations."""
_SCATTER_NS_PER_INDEX = 20.0
"""An index of a scatter, on one core of a CPU."""
_SCATTER_STEP_NS, _SCATTER_ROW_NS, _SCATTER_ROWS = 20.0, 1.2, 1024
"""One thread of a GPU writes the elements of a row one after another. The least time of an element; its time for each row that is
written at the same time; the number of rows above which it grows no more."""
_SEGMENT_NS_PER_ROW, _SEGMENT_NS_PER_ELEMENT, _SORTED_NS_PER_ELEMENT = 17.0, 0.54, 0.3
"""A row of a segment sum, and an element, on one core of a CPU; an element where the rows of a segment are neighbours."""
_ADDED_NS = 0.004
"""An element that a GPU adds atomically, beside others."""
_SORTED_SEGMENT_NS = 30_000.0
"""Extra time of a GPU for segments in order, because the host must know their number."""


def gathers(op: OpSignature) -> Work:
    """Rows copied from a larger tensor."""
    return replace(copies_part(op), flops=_FLOPS_PER_ROW * elements(op.inputs[1:2]))


def scatters(op: OpSignature) -> Work:
    """Rows read, combined and written back, by one core of a CPU; a new output is filled first."""
    indices, rows = (op.inputs[:1], op.inputs[1:2]) if op.op_type == "ScatterNd" else (op.inputs[1:2], op.inputs[1:])
    moved = 3 * max((spec.nbytes for spec in rows), default=0)
    serial_ns = _SCATTER_NS_PER_INDEX * elements(indices) + CORE_NS_PER_BYTE * moved
    return Work(nbytes=moved + nbytes(op.outputs) + nbytes(indices), cpu_serial_ns=serial_ns)


def _scatters_points(op: OpSignature) -> Work:
    """A thread of a GPU walks along each row (`ScatterNdOpKernel`)."""
    indices, updates = (sides(op.inputs, k) for k in ((0, 1) if op.op_type == "ScatterNd" else (1, 2)))
    axes = max(0, len(indices) - 1)
    step_ns = max(_SCATTER_STEP_NS, _SCATTER_ROW_NS * min(_SCATTER_ROWS, math.prod(updates[:axes])))
    return replace(scatters(op), gpu_serial_ns=step_ns * math.prod(updates[axes:]))


def _segments(op: OpSignature) -> Work:
    """One core of a CPU walks the rows. A GPU clears the output, then adds atomically."""
    rows, added = elements(op.inputs[1:2]), elements(op.inputs[:1])
    return Work(
        nbytes=2 * nbytes(op.inputs) + 2 * nbytes(op.outputs),
        kernels=2,
        cpu_serial_ns=_SEGMENT_NS_PER_ROW * rows + _SEGMENT_NS_PER_ELEMENT * added,
        gpu_serial_ns=_ADDED_NS * added,
    )


def _sorted_segments_work(op: OpSignature) -> Work:
    """Rows of a segment are neighbours, so that a CPU adds them as blocks."""
    added = elements(op.inputs[:1])
    gpu_ns = _SORTED_SEGMENT_NS + _ADDED_NS * added
    return replace(_segments(op), kernels=3, cpu_serial_ns=_SORTED_NS_PER_ELEMENT * added, gpu_serial_ns=gpu_ns)


# -- recipes -------------------------------------------------------------------------------------------------------------


def _rows_of_first_axis(op: OpSignature) -> Mapping[int, Any]:
    return {1: indices_below(shape_in(op, 0)[0], op.inputs[1])}


def _rows_of_an_axis(op: OpSignature) -> Mapping[int, Any]:
    table, indices, out = shape_in(op, 0), shape_in(op, 1), shape_out(op)
    batch = int(op.attr("batch_dims", 0) or 0)  # type: ignore[arg-type]
    axis = axis_where(
        lambda axis: axis >= batch and table[:axis] + indices[batch:] + table[axis + 1 :] == out,
        len(table),
    )
    return {1: indices_below(table[axis], op.inputs[1]), 2: axis}


def _points_of_input(op: OpSignature) -> Mapping[int, Any]:
    return {1: random_points(op.inputs[1], shape_in(op, 0))}


def _points_of_output(op: OpSignature) -> Mapping[int, Any]:
    return {0: random_points(op.inputs[0], shape_out(op)), 2: shape_out(op)}


def _unsorted_segments(op: OpSignature) -> Mapping[int, Any]:
    return {1: indices_below(shape_out(op)[0], op.inputs[1]), 2: shape_out(op)[0]}


def _segment_count(op: OpSignature, rows: int) -> int:
    """As many as the output has rows, or one for four rows if that is not known."""
    out = op.outputs[0].shape
    return out[0] if out and out[0] is not None else max(1, rows // 4)


def _sorted_segments(op: OpSignature) -> Mapping[int, Any]:
    rows = shape_in(op, 1)[0]
    segments = _segment_count(op, rows)
    ids = ascending_ids(rows, segments)
    return {1: ids, 2: segments} if len(op.inputs) > 2 else {1: ids}


def _sparse_segments(op: OpSignature) -> Mapping[int, Any]:
    rows = shape_in(op, 2)[0]
    return {1: indices_below(shape_in(op, 0)[0], op.inputs[1]), 2: ascending_ids(rows, _segment_count(op, rows))}


def _sparse_segments_gradient(op: OpSignature) -> Mapping[int, Any]:
    rows, size = shape_in(op, 1)[0], shape_out(op)[0]
    return {1: indices_below(size, op.inputs[1]), 2: ascending_ids(rows, shape_in(op, 0)[0]), 3: size}


def _sparse_matrix(op: OpSignature) -> Mapping[int, Any]:
    shape = (shape_out(op)[0], shape_in(op, 3)[0])
    return {0: random_points(op.inputs[0], shape), 2: shape}


def _every_index_once(op: OpSignature) -> Mapping[int, Any]:
    start, values = 0, {}
    for position, spec in enumerate(op.inputs[: len(op.inputs) // 2]):
        values[position] = range(start, start + spec.elements)
        start += spec.elements
    return values


register("Gather", OpType(work=gathers, start_factor=1.4, differs=BOUNDS, recipe=_rows_of_first_axis))
register("GatherV2", OpType(work=gathers, start_factor=1.4, differs=BOUNDS, recipe=_rows_of_an_axis))
register("GatherNd", OpType(work=gathers, differs=BOUNDS, recipe=_points_of_input))
register("DynamicStitch ParallelDynamicStitch", OpType(work=moves(1), recipe=_every_index_once))

_SCATTER = OpType(work=scatters, host_kernel=all_int32, differs=BOUNDS)
_TENSOR_SCATTER = replace(_SCATTER, work=_scatters_points, in_place=True, recipe=_points_of_input)

register("ScatterNd", replace(_SCATTER, work=_scatters_points, differs=BOUNDS_AND_SUMS, recipe=_points_of_output))
register("TensorScatterUpdate", replace(_TENSOR_SCATTER, start_factor=1.8))
register("TensorScatterAdd TensorScatterSub", replace(_TENSOR_SCATTER, start_factor=1.8, differs=BOUNDS_AND_SUMS))
register("TensorScatterMax TensorScatterMin", _TENSOR_SCATTER)
register("SparseToDense", OpType(work=scatters, differs=BOUNDS))
register("ScatterNdNonAliasingAdd", OpType(differs=BOUNDS_AND_SUMS))

_SEGMENTS = OpType(work=_segments, differs=BOUNDS)
_SUMMED = replace(_SEGMENTS, differs=BOUNDS_AND_SUMS)

register("UnsortedSegmentSum UnsortedSegmentProd", replace(_SUMMED, recipe=_unsorted_segments))
register("UnsortedSegmentMax UnsortedSegmentMin", replace(_SEGMENTS, recipe=_unsorted_segments))
_SORTED = replace(_SEGMENTS, work=_sorted_segments_work, recipe=_sorted_segments)

register("SegmentSum SegmentMean SegmentProd", replace(_SORTED, awaited=True, differs=BOUNDS_AND_SUMS))
register("SegmentMax SegmentMin", replace(_SORTED, awaited=True))
register("SegmentSumV2", replace(_SORTED, differs=frozenset()))
register("SegmentMaxV2 SegmentMinV2 SegmentProdV2", OpType(recipe=_sorted_segments))
register(
    "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN",
    replace(_SUMMED, awaited=True, recipe=_sparse_segments),
)
register(
    "SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad",
    replace(_SUMMED, recipe=_sparse_segments_gradient),
)
register(
    """SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2 SparseSegmentSumWithNumSegments
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments""",
    OpType(differs=BOUNDS_AND_SUMS),
)
register("SparseTensorDenseMatMul", replace(_SUMMED, recipe=_sparse_matrix))
