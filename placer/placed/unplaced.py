"""Calls that run unplaced: what runs them, and a warning that says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from placer.common.environment import DISABLE_VARIABLE, is_disabled
from placer.common.warning import warn
from placer.errors import TraceError
from placer.placed.saving import function_to_save
from placer.placed.signature import Prepared, Signature
from placer.placed.signatures import Signatures


def function_for_call(signatures: Signatures, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """What runs a call that is not to be placed because of where it is made; None for a call that is placed."""
    from placer.tf._private.functions import caller_to_be_compiled
    from placer.tf._private.runtime import in_dataset_function, is_saving
    from placer.tf.run import calling

    if is_disabled():
        signatures.latest = Prepared(Signature(signatures.name, f"every call, since {DISABLE_VARIABLE} is set"), None, None, None)
        return signatures.traceable  # type: ignore[no-any-return]
    if calling.runs_eagerly():
        return signatures.traceable  # type: ignore[no-any-return]
    if calling.in_replica() and not signatures.of_replicas:
        leave_to_strategy(signatures)
        # Inside a function of its own a replica could not wait for the others.
        return calling.converted_like_caller(signatures.function)  # type: ignore[no-any-return]
    if in_dataset_function():
        _leave(signatures, "a dataset calls it, in functions that run beside the step, on the host")
        return signatures.traceable  # type: ignore[no-any-return]
    if caller := caller_to_be_compiled():
        signatures.compiled_callers.add(caller)
        signatures.unasked.undo(f"{caller} uses them")
        _leave(
            signatures,
            f"{caller} calls it, and XLA compiles that as a whole, for one device, so plan and pins are ignored there; "
            "jit_compile=False, in tf.function or in compile of a Keras model, lets it run by plan",
        )
        return signatures.traceable  # type: ignore[no-any-return]
    if is_saving():
        return function_to_save(signatures, args, kwargs)  # type: ignore[no-any-return]
    return None


def initialising_function(signatures: Signatures, error: TraceError) -> Callable[..., Any]:
    """What runs a first call whose arguments give variables their initial values.

    Args:
        signatures: of the placed function.
        error: raised while it was traced.

    Raises:
        Exception: what the function's own code raised while it was traced, unchanged, since callers may expect it.
        TraceError: tracing failed for another reason than such initial values.
    """
    from placer.tf.run.calling import error_of_function, initialising_function

    concrete = initialising_function(signatures.traceable, error.__cause__)
    if concrete is None:
        if (own := error_of_function(error)) is not None:
            raise own from own.__cause__
        raise error
    warn(f"{signatures.name} is left as it is in its first call, whose arguments give its variables their initial values")
    return concrete  # type: ignore[no-any-return]


def leave_to_strategy(signatures: Signatures) -> None:
    """Warns that a distribution strategy decides the devices of a call."""
    from placer.tf.trace.replicas import why_left_to_strategy

    _leave(signatures, why_left_to_strategy())


def _leave(signatures: Signatures, reason: str) -> None:
    signatures.warn_once(reason, f"{signatures.name} is left as it is: {reason}")
    signatures.latest = Prepared(Signature(signatures.name, reason), None, None, None)
