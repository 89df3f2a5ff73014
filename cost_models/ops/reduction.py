"""Reductions along axes, and sums that run along one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType, View, all_int32
from cost_models.ops.recipes import UnmeasurableError, axis_where, indices_below, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import GPU_COPY_BYTES_PER_NS, Timed, Work, elements, elements_in, is_known, once, reduces, sides

_SUMS = frozenset({Difference.SUM_ORDER})
_STEP_NS, _ROW_STEP_NS, _ROWS = 34.0, 0.51, 1024
"""One element of each row that a GPU's threads walk along: of one row, and of each of the rows that share a multiprocessor."""


def _is_same(op: OpSignature) -> View:
    """The input's memory if only axes of length one are reduced (`ReductionOp` in reduction_ops_common.h)."""
    whole, rest = op.inputs[:1], op.outputs[:1]
    return View.INPUT if is_known(whole + rest) and elements(whole) == elements(rest) else View.NONE


def _keeping_the_last_axis(op: OpSignature) -> Work:
    """A GPU takes three times as long to add up lines of memory as to read them."""
    work = reduces(1)(op)
    return replace(work, gpu_serial_ns=work.nbytes / GPU_COPY_BYTES_PER_NS)


def _reduction(op: OpSignature) -> Work:
    """An operation or two for each element; memory is read at half its rate."""
    keeps_last = _last_side(op) > 1 and sides(op.outputs, 0)[-1:] == sides(op.inputs, 0)[-1:]
    work = _keeping_the_last_axis(op) if keeps_last else reduces(1)(op)
    return replace(work, flops=1.5 * work.flops, nbytes=2 * work.nbytes)


def _finds_largest(op: OpSignature) -> Work:
    """A thread of a GPU walks along each row. The rows are read line by line, which keeps a multiprocessor waiting."""
    rows = max(1, elements(op.outputs))
    step_ns = max(_STEP_NS, _ROW_STEP_NS * min(rows, _ROWS))
    return replace(reduces(6)(op), gpu_serial_ns=step_ns * elements(op.inputs[:1]) / rows)


def _last_side(op: OpSignature) -> float:
    return (sides(op.inputs, 0) or (1,))[-1]


def _reduced_axes(op: OpSignature) -> Mapping[int, Any]:
    """The first axes whose reduction leaves the output's shape."""
    shape, result = shape_in(op, 0), shape_out(op)
    for axes in itertools.combinations(range(len(shape)), op.inputs[1].elements):
        as_ones = [1 if axis in axes else side for axis, side in enumerate(shape)]
        without = [side for axis, side in enumerate(shape) if axis not in axes]
        if tuple(as_ones if op.attr("keep_dims") else without) == result:
            return {1: axes}
    raise UnmeasurableError("its shapes do not tell which axes it reduces")


def _reduced_axis(op: OpSignature) -> Mapping[int, Any]:
    shape, result = shape_in(op, 0), shape_out(op)
    return {1: axis_where(lambda axis: shape[:axis] + shape[axis + 1 :] == result, len(shape))}


def _last_axis(op: OpSignature) -> Mapping[int, Any]:
    return {1: len(shape_in(op, 0)) - 1}


def _bins(op: OpSignature) -> Mapping[int, Any]:
    return {0: indices_below(shape_out(op)[-1], op.inputs[0]), 1: shape_out(op)[-1]}


def _classes(op: OpSignature) -> Mapping[int, Any]:
    return {1: indices_below(shape_in(op, 0)[-1], op.inputs[1]), 2: 1}


_REDUCTION = OpType(work=_reduction, view=_is_same, start_factor=1.4, recipe=_reduced_axes)

register("Sum", replace(_REDUCTION, host_kernel=all_int32, differs=_SUMS))
register("Max Min", replace(_REDUCTION, host_kernel=all_int32))
register("Mean Prod", replace(_REDUCTION, differs=_SUMS))
register("All Any", _REDUCTION)
register("EuclideanNorm", replace(_REDUCTION, start_factor=1.0, differs=_SUMS))
register("ArgMax ArgMin", OpType(work=_finds_largest, recipe=_reduced_axis))
register("BiasAddGrad", OpType(work=_keeping_the_last_axis, start_factor=1.4, differs=_SUMS))
_RUNNING_SUM = Timed(cpu=((once, 2_390), (elements_in, 1.07)), gpu=((once, 6_860), (_last_side, 0.53)))

register("Cumsum Cumprod", OpType(work=_RUNNING_SUM, differs=_SUMS, recipe=_last_axis))
register("CumulativeLogsumexp", OpType(work=reduces(20), differs=_SUMS, recipe=_last_axis))
register("Bincount DenseBincount", OpType(work=reduces(1), differs=_SUMS | {Difference.BOUNDS}, recipe=_bins))
register("InTopKV2", OpType(work=reduces(1), recipe=_classes))
