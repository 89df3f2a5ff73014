"""Traces a function and reads its op graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placer.graph.op_graph import OpGraph

if TYPE_CHECKING:
    from placer.tf.trace.tracing import Trace


def trace(fn: Any, *args: Any, **kwargs: Any) -> Trace:
    """Traces a function for example arguments or TensorSpecs; see `placer.tf.trace.tracing.trace`."""
    from placer.tf.trace import tracing

    return tracing.trace(fn, *args, **kwargs)


def build_graph(fn: Any, *args: Any, **kwargs: Any) -> OpGraph:
    """The `OpGraph` of a function for example arguments, or of a `Trace`.

    Dimensions the signature leaves open are taken from the example arguments.

    Raises:
        TraceError: the function cannot be traced.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.state import variables
    from placer.tf.trace import reading, tracing
    from placer.tf.trace.known_sizes import KnownSizes

    traced = fn if isinstance(fn, tracing.Trace) else tracing.trace(fn, *args, **kwargs)
    return reading.read(traced, KnownSizes(traced), variables.immovable_handles())
