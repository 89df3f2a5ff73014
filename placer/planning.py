"""From a function to a plan and back: trace, read, solve, rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from placer.opgraph import OpGraph
from placer.options import Options

if TYPE_CHECKING:
    from placer.decorator import PlacedFunction
    from placer.placement import Placement
    from placer.tf.tracing import Trace


def trace(fn: Any, *args: Any, **kwargs: Any) -> Trace:
    """Traces a function for example arguments or TensorSpecs; see `placer.tf.tracing.trace`."""
    from placer.tf import tracing

    return tracing.trace(fn, *args, **kwargs)


def build_graph(fn: Any, *args: Any, **kwargs: Any) -> OpGraph:
    """The `OpGraph` of a function for example arguments, or of a `Trace`.

    Dimensions the signature leaves open are taken from the example arguments.

    Raises:
        TraceError: the function cannot be traced.
    """
    from placer.tf import calling, reading, tracing

    traced = fn if isinstance(fn, tracing.Trace) else tracing.trace(fn, *args, **kwargs)
    return reading.read(traced, calling.known_shapes(traced))


def place(fn: Callable[..., Any], *args: Any, **options: Any) -> PlacedFunction:
    """Wraps a function so that its calls run where a solved plan says; plans at once if example arguments are given.

    Args:
        fn: a callable, a tf.function or a method.
        *args: example arguments or TensorSpecs; without any, each signature is planned at its first call.
        **options: the fields of `placer.Options`.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.
        PlacerError: planning failed; the function is as it was.
    """
    from placer.decorator import PlacedFunction

    placed = PlacedFunction(fn, Options.of(options))
    if args:
        placed.plan(*args)
    return placed


def apply(fn: Callable[..., Any], placement: Placement) -> PlacedFunction:
    """Wraps a function so that its calls run by a plan made before.

    Raises (at the first call):
        PlanError: the function's graph is not the one the plan was made for.
        DeviceError: the plan uses devices this process does not have.
    """
    from placer.decorator import PlacedFunction

    return PlacedFunction(fn, Options(), plan=placement)
