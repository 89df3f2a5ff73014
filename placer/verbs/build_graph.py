"""Traces a function and reads its op graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.verbs.traced_for import traced_for

if TYPE_CHECKING:
    from cost_models.machines import Machine
    from placer.tf.trace.tracing import Trace


def trace(fn: Any, *args: Any, **kwargs: Any) -> Trace:
    """Traces a function for example arguments or TensorSpecs; see `placer.tf.trace.tracing.trace`."""
    from placer.tf.trace import tracing

    return tracing.trace(fn, *args, **kwargs)


def build_graph(
    fn: Any,
    *args: Any,
    devices: Machine | str | None = None,
    sizes: Mapping[str, Any] = MappingProxyType({}),
    rounds: Mapping[str, Any] = MappingProxyType({}),
    **kwargs: Any,
) -> OpGraph:
    """The `OpGraph` of a function for example arguments, or of a `Trace`.

    Dimensions the signature leaves open are taken from the example arguments.

    Args:
        fn: the function or the trace.
        *args, **kwargs: of a call of the function; a tf.TensorSpec may replace a tensor.
        devices: the machine that the graph is to be planned for, as in `placer.Options`. Code that asks TensorFlow for GPUs while
            it is traced is told those of that machine. None stands for the devices of this process.
        sizes, rounds: sizes and numbers of rounds that the graph leaves open, as in `placer.Options`.

    Raises:
        OptionError: there is no such machine, or a size or number of rounds is none.
        TraceError: the function cannot be traced.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.state import variables
    from placer.tf.trace import reading, tracing
    from placer.tf.trace.known_sizes import KnownSizes

    options = Options(devices=devices, sizes=sizes, rounds=rounds)
    with traced_for(options):
        traced = fn if isinstance(fn, tracing.Trace) else tracing.trace(fn, *args, **kwargs)
    return reading.read(traced, KnownSizes(traced, options.sizes, options.rounds), variables.immovable_handles())
