"""Recurrent layers that one op computes on a GPU."""

from __future__ import annotations

from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import shape_in
from cost_models.ops.table import register

_SAVED = frozenset({Difference.SAVED})

register("CudnnRNN CudnnRNNV2", OpType(differs=_SAVED))
register(
    "CudnnRNNV3",
    OpType(own_state_only=True, differs=_SAVED, recipe=lambda op: {4: [shape_in(op, 0)[0]] * op.inputs[4].elements}),
)
