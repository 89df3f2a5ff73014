"""Tuning in the scope of a strategy: what is timed is the step in which the strategy runs a function in all replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placer.errors import PlanError
from placer.placed.strategy.replicated_signatures import in_place_of_call
from placer.placed.tune import Compile, SideEffects, tune

if TYPE_CHECKING:
    from placer.placed.function import PlacedFunction
    from placer.placed.signatures import Signatures
    from placer.placed.tuned import Tuned


def tune_where_called(
    placed: PlacedFunction,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    budget_s: float,
    compiling: Compile,
    side_effects: SideEffects,
) -> Tuned:
    """Tunes a placed function; in the scope of a distribution strategy, as the function of a replica.

    Args:
        placed: the function.
        args, kwargs, budget_s, compiling, side_effects: see `placer.placed.tune.tune`. In the scope of a strategy, arguments may
            have a value for each replica.

    Raises:
        PlanError: no functions are planned for under the strategy; or see `placer.placed.tune.tune`.
    """
    from placer.tf.run.calling import in_scope
    from placer.tf.trace.replicas import is_one_device, run_in_all_replicas, runs_in_threads, why_left_to_strategy

    def tuned(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tuned:
        in_place_of_call.set(None)  # other placed functions, which it calls, run
        return tune(signatures, args, kwargs, budget_s, compiling, side_effects)

    if not in_scope():
        return tuned(placed.signatures, args, kwargs)
    if not (runs_in_threads() or is_one_device()):
        raise PlanError(f"{placed.signatures.name} cannot be tuned: {why_left_to_strategy()}.")
    before = in_place_of_call.set(tuned)
    try:
        return run_in_all_replicas(placed, args, kwargs)  # type: ignore[no-any-return]
    finally:
        in_place_of_call.reset(before)
