"""Where the ops of a placed call really ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placer.placed.signature import Prepared

if TYPE_CHECKING:
    from placer.tf.run.observing import Observation


def observe(prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Observation:
    """Makes one real call and compares the device of each op with the plan.

    Args:
        prepared: the call, as `PlacedFunction.prepare` gives it.
        args: of the call.
        kwargs: of the call.
    """
    from placer.tf.run.observing import observe_call

    plans = [prepared.plan]
    run = prepared.run.again(plans.append)
    return observe_call(lambda: run(*args, **kwargs), lambda: plans[-1], 1)


def observe_gradient(prepared: Prepared, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Observation:
    """Like `observe`, of a call under a tape and the gradient of all its results, by the plan for both."""
    from placer.tf.run.observing import observe_call, with_gradient

    plans = [prepared.plan]
    run = prepared.run.again(plans.append)
    return observe_call(lambda: with_gradient(run, args, kwargs), lambda: plans[-1], 2)
