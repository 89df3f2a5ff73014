"""Where the ops of a placed call really ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placer.placed.lost_workers import names_lost_workers
from placer.placed.signature import Prepared
from placer.placed.signatures import Signatures

if TYPE_CHECKING:
    from placer.tf.rewrite.taping import TapedFunction
    from placer.tf.run.observing import Observation


@names_lost_workers
def observe(signatures: Signatures, prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Observation:
    """Makes one real call and compares the device of each op with the plan.

    Args:
        signatures: of the placed function.
        prepared: the call, as `PlacedFunction.prepare` gives it.
        args: of the call.
        kwargs: of the call.
    """
    from placer.tf.run.observing import observe_call

    plans = [prepared.planned]
    run = _placed(signatures, prepared).again(plans.append)
    observation = observe_call(lambda: run(*args, **kwargs), lambda: plans[-1].placement, 1)
    return _with_compiled_callers(observation, signatures)


@names_lost_workers
def observe_gradient(signatures: Signatures, prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Observation:
    """Like `observe`, of a call under a tape and the gradient of all its results, by the plan for both."""
    from placer.tf.run.observing import observe_call, with_gradient

    plans = [prepared.planned]
    run = _placed(signatures, prepared).again(plans.append)
    observation = observe_call(lambda: with_gradient(run, args, kwargs), lambda: plans[-1].placement, 2)
    return _with_compiled_callers(observation, signatures)


def _placed(signatures: Signatures, prepared: Prepared) -> TapedFunction:
    """The rewritten function of a call; where the plain function runs after a race, one with the default's devices."""
    from placer.tf.rewrite.taping import TapedFunction

    if isinstance(prepared.run, TapedFunction) or prepared.trace is None:
        return prepared.run  # type: ignore[no-any-return]
    return signatures.rewritten(prepared, prepared.trace, prepared.planned)


def _with_compiled_callers(observation: Observation, signatures: Signatures) -> Observation:
    """The observation, with the functions in which the plan has no effect because XLA compiles them."""
    from placer.tf.run.compiled_callers import compiled_callers

    callers = signatures.compiled_callers.union(compiled_callers(signatures.call_plans().values()))
    return replace(observation, compiled_callers=tuple(sorted(callers)))
