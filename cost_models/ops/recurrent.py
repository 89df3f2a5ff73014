"""Recurrent layers that one op computes on a GPU."""

from __future__ import annotations

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import shape_in
from cost_models.ops.table import register
from cost_models.ops.work import Timed, once, sides


def _steps(op: OpSignature) -> float:
    """The length of the first axis, or of the second if the batch is first."""
    lengths = (*sides(op.inputs, 0), 1, 1)
    return lengths[0 if op.attr("time_major", True) else 1]


_SAVED = frozenset({Difference.SAVED})
_LAYER = Timed(gpu=((once, 50_500), (_steps, 18_100)), starts_kernels=True)
"""The host starts kernels for each step."""

register("CudnnRNN CudnnRNNV2", OpType(work=_LAYER, differs=_SAVED))
register("CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3", OpType(work=_LAYER))
register(
    "CudnnRNNV3",
    OpType(work=_LAYER, own_state_only=True, differs=_SAVED, recipe=lambda op: {4: [shape_in(op, 0)[0]] * op.inputs[4].elements}),
)
