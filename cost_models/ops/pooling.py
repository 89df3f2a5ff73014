"""Pooling and other filters with windows of fixed weights."""

from __future__ import annotations

import math

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import output_shape_at
from cost_models.ops.table import register
from cost_models.ops.work import Work, nbytes, positive_integers

_SUMS = frozenset({Difference.SUM_ORDER})


def _pooling(op: OpSignature) -> Work:
    """One operation for each entry of each window, forward or back."""
    taps = math.prod(positive_integers(op, "ksize"))
    pooled = min((spec.elements for spec in (*op.inputs, *op.outputs) if spec.dtype != "int32"), default=1)
    return Work(flops=float(taps * pooled), nbytes=nbytes(op.inputs) + nbytes(op.outputs))


register("MaxPool MaxPoolV2 MaxPool3D MaxPoolWithArgmax FractionalMaxPool FractionalAvgPool Dilation2D", OpType(work=_pooling))
register("AvgPool AvgPool3D LRN LRNGrad", OpType(work=_pooling, differs=_SUMS))
register(
    "MaxPoolGrad MaxPoolGradV2 MaxPoolGradGrad MaxPool3DGrad MaxPoolGradWithArgmax",
    OpType(work=_pooling, differs=_SUMS),
)
register("AvgPoolGrad AvgPool3DGrad", OpType(work=_pooling, differs=_SUMS, recipe=output_shape_at(0)))
