"""Recurrent layers that one op computes on a GPU."""

from __future__ import annotations

from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import shape_in
from cost_models.ops.table import register
from cost_models.ops.work import Timed, first_side, once

_SAVED = frozenset({Difference.SAVED})
_LAYER = Timed(gpu=((once, 50_500), (first_side, 18_100)), starts_kernels=True)
"""The host starts kernels for each step."""

register("CudnnRNN CudnnRNNV2", OpType(work=_LAYER, differs=_SAVED))
register("CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3", OpType(work=_LAYER))
register(
    "CudnnRNNV3",
    OpType(work=_LAYER, own_state_only=True, differs=_SAVED, recipe=lambda op: {4: [shape_in(op, 0)[0]] * op.inputs[4].elements}),
)
