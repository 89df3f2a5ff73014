"""Traces a function and reads its op graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.verbs.traced_for import traced_for

if TYPE_CHECKING:
    from cost_models.machines import Machine
    from placer.tf.trace.tracing import Trace


def trace(fn: Any, *args: Any, devices: Machine | str | None = None, **kwargs: Any) -> Trace:
    """Traces a function for example arguments or TensorSpecs; see `placer.tf.trace.tracing.trace`.

    Args:
        fn: the function.
        *args, **kwargs: of a call of the function; a tf.TensorSpec may replace a tensor.
        devices: the machine to plan for, as in `placer.Options`. Code that asks TensorFlow for GPUs while it is traced is told
            those of that machine. None stands for the devices of this process.

    Raises:
        OptionError: there is no such machine.
        TraceError: the function cannot be traced.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.trace import tracing

    with traced_for(Options(devices=devices)):
        return tracing.trace(fn, *args, **kwargs)


def build_graph(fn: Any, *args: Any, devices: Machine | str | None = None, **kwargs: Any) -> OpGraph:
    """The `OpGraph` of a function for example arguments, or of a `Trace`.

    Dimensions the signature leaves open are taken from the example arguments.

    Args:
        fn: the function or the trace.
        *args, **kwargs, devices: as for `trace`. Of a trace, `sizes` and `rounds` as in `placer.Options`, and `seen`, what a run had.

    Raises:
        OptionError: there is no such machine.
        TraceError: the function cannot be traced.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.state import variables
    from placer.tf.trace import reading, tracing
    from placer.tf.trace.known_sizes import KnownSizes

    if isinstance(fn, tracing.Trace):
        traced, known = fn, kwargs
    else:
        traced, known = trace(fn, *args, devices=devices, **kwargs), {}
    return reading.read(traced, KnownSizes(traced, **known), variables.immovable_handles())
