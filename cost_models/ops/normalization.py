"""Normalization, softmax and losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import Data, indices_below, shape_in
from cost_models.ops.table import register
from cost_models.ops.work import (
    GPU_COPY_BYTES_PER_NS,
    LIBRARY_NS,
    Timed,
    Work,
    elements,
    first_side,
    is_known,
    moves,
    nbytes,
    once,
    reduces,
    sides,
)

_SUMS = frozenset({Difference.SUM_ORDER})
_LOSS_FLOPS, _LOSS_ROW_FLOPS, _LOSS_NS = 80.0, 6_000.0, 80_000.0
"""Operations of the logarithm of a softmax for each element, and the time of the kernels of a loss on a GPU."""


def _softmax(op: OpSignature) -> Work:
    """A GPU's kernels keep maxima and sums of rows in tensors of the result's size. A CPU's library is not called for one row."""
    one_row = is_known(op.outputs) and (sides(op.outputs, 0) or (1,))[-1] == elements(op.outputs[:1])
    work = reduces(5)(op)
    return replace(
        work,
        kernels=3,
        cpu_serial_ns=0.0 if one_row else LIBRARY_NS,
        gpu_serial_ns=work.nbytes / GPU_COPY_BYTES_PER_NS,
        workspace_bytes=2 * nbytes(op.outputs),
    )


def _log_softmax(op: OpSignature) -> Work:
    """TensorFlow's own kernel on a CPU."""
    return replace(_softmax(op), flops=_LOSS_FLOPS * elements(op.inputs[:1]), cpu_serial_ns=0.0)


def _loss(op: OpSignature) -> Work:
    work = reduces(_LOSS_FLOPS)(op)
    return replace(work, flops=work.flops + _LOSS_ROW_FLOPS * first_side(op), gpu_serial_ns=_LOSS_NS)


def _steps_of_labels(op: OpSignature) -> float:
    """The steps of one sequence times the labels of all."""
    return first_side(op) * elements(op.inputs[2:3])


def _steps_of_classes(op: OpSignature) -> float:
    """The logits of one sequence."""
    return first_side(op) * (sides(op.inputs, 0) or (1,))[-1]


def _equally_long_labels(op: OpSignature) -> Mapping[int, Any]:
    """Each sequence has all steps and equally many labels, of which none is the first or the last class."""
    steps, batch, classes = shape_in(op, 0)
    count = shape_in(op, 2)[0]
    sequence = np.arange(count) * batch // max(1, count)
    first = np.searchsorted(sequence, sequence)
    labels = 1 + np.arange(count) % max(1, classes - 2)
    return {1: Data(np.stack([sequence, np.arange(count) - first], axis=-1)), 2: Data(labels), 3: [steps] * batch}


register(
    "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    OpType(work=moves(1.5), in_place=True, differs=_SUMS | {Difference.SAVED}),
)
register("_FusedBatchNormEx", OpType(work=moves(1.5), differs=_SUMS))
register("_MklLayerNorm", OpType(work=moves(1.5)))
register("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3", OpType(work=moves(1.7, kernels=2), differs=_SUMS))
_SOFTMAX = OpType(work=_softmax, start_factor=1.4, in_place=True, differs=_SUMS)

register("Softmax", _SOFTMAX)
register("LogSoftmax", replace(_SOFTMAX, work=_log_softmax))
register("SoftmaxCrossEntropyWithLogits", OpType(work=_loss, start_factor=3.6, differs=_SUMS))
register(
    "SparseSoftmaxCrossEntropyWithLogits",
    OpType(
        work=_loss,
        start_factor=3.6,
        differs=_SUMS | {Difference.BOUNDS},
        recipe=lambda op: {1: indices_below(shape_in(op, 0)[-1], op.inputs[1])},
    ),
)
register(
    "CTCLoss CTCLossV2",
    OpType(
        work=Timed(
            cpu=((once, 18_300), (_steps_of_labels, 30.6), (_steps_of_classes, 11.5)),
            gpu=((once, 12_300), (first_side, 995)),
        ),
        recipe=_equally_long_labels,
    ),
)
