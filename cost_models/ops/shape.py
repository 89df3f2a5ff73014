"""Ops on shapes, and ops that read a tensor's memory with another shape or pass it on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import OpType, is_input
from cost_models.ops.recipes import axis_where, output_shape_at, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import host_only


def _new_axis(op: OpSignature) -> Mapping[int, Any]:
    shape, out = shape_in(op, 0), shape_out(op)
    return {1: axis_where(lambda axis: out[axis] == 1 and out[:axis] + out[axis + 1 :] == shape, len(out))}


def _permutation(op: OpSignature) -> Mapping[int, Any]:
    return {0: range(shape_in(op, 0)[0])}


register("Identity", OpType(work=host_only, view=is_input, passes_on=True))
register("IdentityN StopGradient PreventGradient EnsureShape Squeeze Bitcast", OpType(work=host_only, view=is_input))
register("Reshape", OpType(work=host_only, view=is_input, recipe=output_shape_at(1)))
register("ExpandDims", OpType(work=host_only, view=is_input, recipe=_new_axis))
register("CheckNumerics", OpType(work=host_only, in_place=True))
register("Shape Size Rank", OpType(work=host_only, follows_input=True))
register("ShapeN BroadcastGradientArgs BroadcastArgs ConcatOffset", OpType(work=host_only))
register("InvertPermutation", OpType(work=host_only, recipe=_permutation))
