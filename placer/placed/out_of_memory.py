"""Calls that run out of memory: an error that says what to do, or another plan with lower limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placer.common.warning import warn
from placer.errors import InfeasibleError, MoveError
from placer.placed.signature import Prepared
from placer.placed.signatures import Signatures
from placer.plan.placement import Placement


def replanned(
    signatures: Signatures, prepared: Prepared, error: Exception, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Plans the signature of a call that ran out of memory once more, if the options ask for that.

    Args:
        signatures: of the placed function.
        prepared: what was called.
        error: what the call raised.
        args: of the call.
        kwargs: of the call.

    Returns:
        Whether the call is to be made again. False for an error of another kind.

    Raises:
        OutOfMemoryError: the call is not to be made again. It says why, and what the user can do.
    """
    from placer.tf.run.exhausted import Exhaustion, changes_nothing, is_out_of_memory

    if not is_out_of_memory(error) or signatures.latest is None or signatures.latest.call_plan is None:
        return False
    # Under a tape, the plan that ran is the one of the call and its gradient.
    exhaustion = Exhaustion.of(error, signatures.latest.plan)
    if exhaustion is None:
        return False
    if signatures.options.on_out_of_memory == "report" or signatures.plans:
        raise exhaustion.explained(exhaustion.way_out(replan=not signatures.plans))
    signature = prepared.signature
    prepared = signature.current or prepared  # not a call that learns
    with signatures.lock:
        if is_first := not signature.replanned:
            signature.replanned = True
            limits = exhaustion.lowered(signatures.options.memory_limits)
            _plan_again(signatures, prepared, exhaustion.placement, limits, args, kwargs)
    if signature.reduced_limits is None:
        raise exhaustion.explained(f"No plan with less was found. {exhaustion.way_out(limit=False)}")
    if not is_first:
        raise exhaustion.explained(exhaustion.way_out())
    planned = f"The next call is planned with memory_limits={limits}."
    if not changes_nothing(exhaustion.placement.graph):
        raise exhaustion.explained(f"{planned} This one may have changed variables in part: put them back.")
    try:
        signatures.prepare(args, kwargs)
    except MoveError as refusal:  # a tape that watched a variable before the call failed holds its storage
        raise exhaustion.explained(f"{planned} This one is not made again: {refusal}") from refusal
    warn(f"{exhaustion.text} {planned}")
    return True


def _plan_again(
    signatures: Signatures,
    prepared: Prepared,
    placement: Placement,
    limits: Mapping[str, str | int],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Plans a signature with other limits. Where these cannot be met, also for the plan that ran, nothing changes.

    Args:
        signatures: of the placed function.
        prepared: what was called.
        placement: the plan that the call ran by. Under a tape it is the plan of the call and its gradient.
        limits: the memory limits to plan with.
        args: of the call.
        kwargs: of the call.
    """
    from placer.tf.state import moving, variables

    signature = prepared.signature
    signature.reduced_limits = limits
    signatures.forget(signature)
    variables.release_variables(prepared.run)
    try:
        signatures.plan(args, kwargs)
        if placement is not prepared.plan:
            signatures.solve(placement.graph, limits)
    except InfeasibleError:
        signature.reduced_limits = None
        signature.current = signatures.latest = prepared
        moving.move([], prepared.run)
