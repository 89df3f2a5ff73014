"""Ops that sort and select, most of them with outputs whose size depends on values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops.gather_scatter import BOUNDS
from cost_models.ops.optype import Bound, OpType, all_int32
from cost_models.ops.recipes import indices_below, random_boxes, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import CORE_FLOPS_PER_NS, Timed, Work, elements, elements_in, moves, nbytes, once, sides

_HASHED_NS, _FOUND_NS, _SCANNED_NS = 25.0, 7.0, 4.0
"""An element put into a hash table, one whose position is listed, and one that is looked at, on one core."""
_COMPARISON_NS = 5.0
"""One of the log2(n) comparisons for each element that is kept of n, on one core; twice as many if not all are kept."""
_LARGEST_ROW, _LARGE_ROW_NS = 4096, 80_000.0
"""The largest row that a GPU sorts in few kernels, and the time of a larger one."""


# -- work ----------------------------------------------------------------------------------------------------------------


def _sort(op: OpSignature) -> Work:
    """A CPU scans each row and keeps the largest in a heap; rows share its cores. A GPU makes the passes of a radix sort."""
    count, row, size = elements(op.inputs[:1]), (sides(op.inputs, 0) or (1,))[-1], nbytes(op.inputs[:1])
    kept = elements(op.outputs[:1])
    comparisons = kept * math.log2(max(2, row)) * (1 if kept >= count else 2)
    ns = _SCANNED_NS * count + _COMPARISON_NS * comparisons
    return Work(
        flops=0.0 if row >= count else CORE_FLOPS_PER_NS * ns,
        nbytes=10.0 * size,
        kernels=6,
        cpu_serial_ns=ns if row >= count else 0.0,
        gpu_serial_ns=_LARGE_ROW_NS if row > _LARGEST_ROW else 0.0,
        workspace_bytes=2 * size,
    )


def _unique(op: OpSignature) -> Work:
    """On a CPU a hash table filled serially; on a GPU a sort and a scan, then the host waits for the count."""
    count, size = elements(op.inputs[:1]), nbytes(op.inputs[:1])
    return Work(
        nbytes=16.0 * size,
        kernels=10,
        cpu_serial_ns=_HASHED_NS * count,
        gpu_serial_ns=250_000,
        workspace_bytes=4 * size,
    )


def _unique_or_on_host(op: OpSignature) -> Work:
    """`Unique` has GPU kernels for integers alone; the host does others."""
    if _is_no_integer(op):
        return Work(kernels=0, cpu_serial_ns=_HASHED_NS * elements(op.inputs[:1]))
    return _unique(op)


def _is_no_integer(op: OpSignature) -> bool:
    return bool(op.inputs) and "int" not in op.inputs[0].dtype


def _where(op: OpSignature) -> Work:
    """On a CPU one pass; on a GPU a count that the host waits for, then the pass."""
    count = elements(op.inputs[:1])
    moved = 2 * nbytes(op.inputs) + max(nbytes(op.outputs), 2 * count)
    return Work(nbytes=moved, kernels=4, cpu_serial_ns=_FOUND_NS * count, gpu_serial_ns=55_000)


def _suppression(op: OpSignature) -> Work:
    """On a CPU a heap of n scores and few comparisons; on a GPU all n² overlaps and a serial sweep over them.

    The sweep ends when enough boxes are chosen, so its time depends on where they lie. Measured on an H100: 10 suppressions
    of 4,096 boxes took 3.6 ms longer than on its host, of 16,384 boxes 55 ms; if many lie apart 1.5 and 5.4 ms.
    """
    boxes = sides(op.inputs, 0)
    return _suppression_of(math.prod(boxes[:-1]) if boxes else 1)


def _suppression_by_overlaps(op: OpSignature) -> Work:
    """The overlaps of n boxes are given as an n x n matrix."""
    overlaps = sides(op.inputs, 0)
    return _suppression_of(overlaps[-2] if len(overlaps) > 1 else math.prod(overlaps[:-1]))


def _combined_suppression(op: OpSignature) -> Work:
    """Every score of every class is a candidate."""
    return _suppression_of(elements(op.inputs[1:2]))


def _suppression_of(count: int) -> Work:
    return Work(
        kernels=8,
        cpu_serial_ns=95_000 + 45.0 * count,
        gpu_serial_ns=35_000 + 0.0106 * count**2,
        workspace_bytes=count**2 // 8,
    )


def _beams(op: OpSignature) -> float:
    """Each beam of each sequence looks at every logit."""
    width = op.attr("beam_width", 1)
    return elements_in(op) * (width if isinstance(width, int) else 1)


# -- bounds on output sizes ----------------------------------------------------------------------------------------------


def _count(shape: Bound) -> int | None:
    """Most elements of a tensor whose shape has this bound."""
    if shape is None:
        return None
    known = [side for side in shape if side is not None]
    return math.prod(known) if len(known) == len(shape) else None


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _true_positions(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """One position for each element of the input."""
    shape = op.inputs[0].shape
    return (None if shape is None else (_count(shape), len(shape)),)


def _all_different(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """All values of the input differ. Each has an entry in the further outputs."""
    shape = op.inputs[0].shape
    positions = None if shape is None else _positions(shape, values.get(1))
    return (shape, *[None if positions is None else (positions,)] * (len(op.outputs) - 1))


def _positions(shape: tuple[int | None, ...], axis: Any) -> int | None:
    """How many slices there are along the axis, or along the longest one if the axis is not known."""
    if axis is not None and len(axis):
        return shape[int(axis[0])]
    return None if None in shape else max((side for side in shape if side is not None), default=1)


def _none_removed(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """No value of the first input is in the second."""
    return (op.inputs[0].shape,) * len(op.outputs)


def _all_in_one(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """Every row may be in the same partition."""
    data, partitions = op.inputs[0].shape, op.inputs[1].shape
    rows = None if data is None or partitions is None else (_count(partitions), *data[len(partitions) :])
    return (rows,) * len(op.outputs)


def _largest(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """As many of each row as are asked for, or the whole row if their number is not known."""
    shape = op.inputs[0].shape
    k = values.get(1)
    if not shape:
        return (shape,) * len(op.outputs)
    row_out = shape[-1] if k is None else int(k)
    return ((*shape[:-1], row_out),) * len(op.outputs)


def _suppressed(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """As many boxes as are asked for or, unless the output is padded, as there are. A last output counts them."""
    boxes, max_boxes = op.inputs[0].shape, values.get(2)
    num_boxes = None if max_boxes is None else int(max_boxes)
    if not op.attr("pad_to_max_output_size"):
        num_boxes = _least(num_boxes, boxes[0] if boxes else None)
    chosen: tuple[Bound, ...] = ((num_boxes,),) * max(1, len(op.outputs) - 1)
    return (*chosen, ())[: len(op.outputs)]


def _filled_rows(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """All rows may be empty; each of them gets an entry."""
    indices, shape = op.inputs[0].shape, values.get(2)
    rows = None if shape is None else int(shape[0])
    entries, rank = indices if indices is not None and len(indices) == 2 else (None, None)
    filled = None if entries is None or rows is None else entries + rows
    return (filled, rank), (filled,), (rows,), (entries,)


def _decoded(op: OpSignature, values: Mapping[int, Any]) -> tuple[Bound, ...]:
    """A path has at most one label for each time of each sequence. Outputs: indices, labels and shape by path, and the scores."""
    logits, paths = op.inputs[0].shape, len(op.outputs) // 3
    labels, sequences = (None, None) if logits is None or len(logits) != 3 else (_count(logits[:2]), logits[1])
    return (*[(labels, 2)] * paths, *[(labels,)] * paths, *[(2,)] * paths, (sequences, paths))


# -- recipes -------------------------------------------------------------------------------------------------------------


def _many_different(op: OpSignature) -> Mapping[int, Any]:
    """Different values along the first axis, if the op has an input for one."""
    values = {0: _different(op.inputs[0])} if op.inputs[0].dtype != "string" else {}
    return values | ({1: [0] * op.inputs[1].elements} if len(op.inputs) > 1 else {})


def _two_lists(op: OpSignature) -> Mapping[int, Any]:
    return {position: _different(spec) for position, spec in enumerate(op.inputs) if spec.dtype != "string"}


def _different(spec: TensorSpec) -> Any:
    return indices_below(spec.elements, spec)


def _partitions(op: OpSignature) -> Mapping[int, Any]:
    return {1: indices_below(len(op.outputs), op.inputs[1])}


def _all_steps(op: OpSignature) -> Mapping[int, Any]:
    """Every sequence has all steps."""
    return {1: [shape_in(op, 0)[0]] * op.inputs[1].elements}


def _largest_count(op: OpSignature) -> Mapping[int, Any]:
    return {1: shape_out(op)[-1]}


def _boxes(op: OpSignature) -> Mapping[int, Any]:
    """A hundred boxes are kept, or as many as the output is padded to."""
    out = op.outputs[0].shape
    num_boxes = out[0] if out and out[0] is not None and op.attr("pad_to_max_output_size") else 100
    thresholds = {position: value for position, value in {3: 0.5, 4: 0.0, 5: 0.0}.items() if position < len(op.inputs)}
    return {0: random_boxes(shape_in(op, 0)), 2: num_boxes, **thresholds}


def _boxes_of_classes(op: OpSignature) -> Mapping[int, Any]:
    num_boxes = shape_out(op)[1]
    return {0: random_boxes(shape_in(op, 0)), 2: num_boxes, 3: num_boxes, 4: 0.5, 5: 0.0}


register("TopKV2", OpType(work=_sort, output_bounds=_largest, recipe=_largest_count))
register("TopK NthElement", OpType(work=_sort))

_UNIQUE = OpType(work=_unique, cpu_serial=True, output_bounds=_all_different, data_sized=(0,), recipe=_many_different)

register("Unique", replace(_UNIQUE, work=_unique_or_on_host, host_kernel=_is_no_integer, awaited=True))
register("UniqueWithCounts", replace(_UNIQUE, awaited=True))
register("UniqueV2 UniqueWithCountsV2", _UNIQUE)
register("Where", OpType(work=_where, host_kernel=all_int32, awaited=True, output_bounds=_true_positions, data_sized=(0,)))
register("ListDiff", OpType(work=_where, cpu_serial=True, output_bounds=_none_removed, data_sized=(0, 1), recipe=_two_lists))

_SORTED_PARTS = OpType(work=moves(2, kernels=6, cpu_ns_each=2, gpu_serial_ns=30_000))

register(
    "DynamicPartition",
    replace(_SORTED_PARTS, awaited=True, differs=BOUNDS, output_bounds=_all_in_one, data_sized="all", recipe=_partitions),
)
register("Bucketize LowerBound UpperBound", _SORTED_PARTS)

_SUPPRESSION = OpType(work=_suppression, cpu_serial=True, output_bounds=_suppressed, data_sized=(0, 1))

register(
    "NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5",
    replace(_SUPPRESSION, recipe=_boxes),
)
register("NonMaxSuppressionWithOverlaps", replace(_SUPPRESSION, work=_suppression_by_overlaps))
register("CombinedNonMaxSuppression", OpType(work=_combined_suppression, recipe=_boxes_of_classes))
register("GenerateBoundingBoxProposals", OpType(awaited=True))
register("SparseFillEmptyRows", OpType(awaited=True, output_bounds=_filled_rows, data_sized=(0, 1)))
register(
    "CTCGreedyDecoder",
    OpType(work=Timed(cpu=((once, 1_220), (elements_in, 0.53))), output_bounds=_decoded, data_sized=(0, 1), recipe=_all_steps),
)
register(
    "CTCBeamSearchDecoder",
    OpType(work=Timed(cpu=((_beams, 72),)), output_bounds=_decoded, data_sized=(0, 1), recipe=_all_steps),
)
