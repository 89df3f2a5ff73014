"""Calls that a server makes before its first request, so that no request has to wait for a trace, a plan or a race."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from placer.errors import OptionError, TraceError
from placer.placed.background import waiting_for_plans
from placer.placed.signatures import Signatures

if TYPE_CHECKING:
    from placer.placed.function import PlacedFunction

MAX_CALLS = 100
"""The most calls of one kind: a race and a trial with variables in other places take fewer."""
MIN_CALLS = 3
"""In the first calls TensorFlow prepares a function, chooses kernels and takes memory."""


def warm_up(placed: PlacedFunction, calls: Iterable[Any]) -> None:
    """Makes calls until nothing is left to decide: each kind of call is planned, and its race is over.

    Args:
        placed: the function.
        calls: an example of each kind: a tuple of arguments, a dict of keyword arguments, or a single argument of another type. A
            `tf.TensorSpec` of known size stands for a tensor of ordinary values.

    Raises:
        OptionError: `calls` is no list of examples, or a size is not known.
        PlacerError: a call cannot be planned, or the plan's devices are not here.
        Exception: a call fails.
    """
    from placer.tf.run.example_arguments import with_values

    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Iterable) or hasattr(calls, "shape"):
        raise OptionError(
            f"calls={calls!r:.80} is no list of examples: give one for each kind of call, [(images,), (more_images,)]."
        )
    for call in calls:
        args, kwargs = (call, {}) if isinstance(call, tuple) else ((), call) if isinstance(call, dict) else ((call,), {})
        _warm_up_one(placed, *with_values(args, kwargs))


def _warm_up_one(placed: PlacedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    from placer.tf.run.timing import restored_variables

    signatures = placed.signatures
    if signatures.moves_variables:
        placed.plan(*args, **kwargs)  # its first plan creates the variables
    try:
        concrete = signatures.traced_function(*placed.arguments(args, kwargs))
    except TraceError:
        placed(*args, **kwargs)  # initial values of its variables depend on the arguments, or the call raises the error
        concrete = signatures.traced_function(*placed.arguments(args, kwargs))
    signatures.signature_of(concrete).asked_for = True
    with restored_variables(concrete, (args, kwargs)), waiting_for_plans():
        for count in range(MAX_CALLS):
            placed(*args, **kwargs)
            if count + 1 >= MIN_CALLS and not _is_deciding(signatures):
                break


def _is_deciding(signatures: Signatures) -> bool:
    """Whether calls race, or try variables in other places."""
    latest = signatures.latest
    return signatures.unasked.trial is not None or (latest is not None and latest.timing is not None and latest.timing.races)
