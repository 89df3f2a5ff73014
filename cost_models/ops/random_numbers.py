"""Random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import output_shape_at, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import (
    CORE_FLOPS_PER_NS,
    Timed,
    Work,
    elements,
    elements_in,
    elements_out,
    first_side,
    host_only,
    nbytes,
    once,
)

_FLOPS_PER_NUMBER = {"Uniform": 45, "Truncated": 220}
"""Generators that count instead of keeping a state (Philox) take some 45 operations for each number, by part of the op type."""
_FLOPS_PER_OTHER_NUMBER = 130
"""Of other distributions, as of the normal one."""
_LOGIT_NS, _SAMPLE_NS = 5.0, 80.0
"""A logit that is summed, and a number that is drawn by these sums, on one core."""
_SEED = {1: (1, 2)}
_KEY = {1: 1, 2: (0, 0), 3: 1}
"""A key, a counter, and the number that stands for Philox."""


def _generate(op: OpSignature) -> Work:
    flops = next((flops for name, flops in _FLOPS_PER_NUMBER.items() if name in op.op_type), _FLOPS_PER_OTHER_NUMBER)
    return Work(flops=flops * elements(op.outputs), nbytes=nbytes(op.outputs))


def _draw(op: OpSignature) -> Work:
    """Every row is summed for its draws. The rows share a CPU's cores. A GPU uses several kernels."""
    ns, one_row = _LOGIT_NS * elements_in(op) + _SAMPLE_NS * elements_out(op), first_side(op) == 1
    return Work(
        flops=0.0 if one_row else CORE_FLOPS_PER_NS * ns,
        nbytes=nbytes(op.inputs) + nbytes(op.outputs),
        kernels=6,
        cpu_serial_ns=ns if one_row else 0.0,
    )


def _draws_each(op: OpSignature) -> Mapping[int, Any]:
    return {1: shape_out(op)[1]}


_OWN = frozenset({Difference.RANDOM})

register(
    "RandomUniform RandomStandardNormal TruncatedNormal",
    OpType(draws=True, work=_generate, own_state_only=True, differs=_OWN, recipe=output_shape_at(0)),
)
register(
    "RandomUniformInt",
    OpType(draws=True, work=_generate, own_state_only=True, differs=_OWN, recipe=output_shape_at(0, {1: 0, 2: 1000})),
)
register("Multinomial", OpType(draws=True, work=_draw, own_state_only=True, differs=_OWN, recipe=_draws_each))
_SAMPLER = OpType(draws=True, own_state_only=True)

register(
    "UniformCandidateSampler AllCandidateSampler",
    replace(_SAMPLER, work=Timed(cpu=((once, 8_030), (elements_out, 72)))),
)
register(
    "LogUniformCandidateSampler",
    replace(_SAMPLER, work=Timed(cpu=((once, 5_220), (elements_in, 115), (elements_out, 205)))),
)
register(
    "LearnedUnigramCandidateSampler ThreadUnsafeUnigramCandidateSampler",
    replace(_SAMPLER, work=Timed(cpu=((once, 815), (elements_in, 84), (elements_out, 1_010)))),
)
register("ParameterizedTruncatedNormal", OpType(draws=True, differs=_OWN))
register("RandomShuffle", OpType(draws=True, work=Timed(cpu=((elements_in, 8.3),)), own_state_only=True))
register("RandomGamma RandomPoissonV2", OpType(draws=True, work=_generate, own_state_only=True))
register(
    "StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomNormal StatelessTruncatedNormal",
    OpType(draws=True, work=_generate, recipe=output_shape_at(0, _SEED)),
)
register("StatelessRandomUniformInt", OpType(draws=True, work=_generate, recipe=output_shape_at(0, {**_SEED, 2: 0, 3: 1000})))
register(
    "StatelessRandomUniformV2 StatelessRandomUniformFullIntV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2",
    OpType(draws=True, work=_generate, recipe=output_shape_at(0, _KEY)),
)
register("StatelessRandomUniformIntV2", OpType(draws=True, work=_generate, recipe=output_shape_at(0, {**_KEY, 4: 0, 5: 1000})))
register("StatelessMultinomial", OpType(draws=True, work=_draw, recipe=lambda op: {**_draws_each(op), 2: (1, 2)}))
register(
    """StatelessRandomBinomial StatelessRandomGammaV3 StatefulUniform StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulUniformInt StatefulUniformFullInt""",
    OpType(draws=True, work=_generate),
)
register(
    """RngReadAndSkip RngSkip StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
    StatelessRandomGetAlg""",
    OpType(work=host_only),
)
