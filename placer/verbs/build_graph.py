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
    from placer.graph.seen import Seen
    from placer.tf.trace.tracing import Trace


def trace(fn: Any, *args: Any, devices: Machine | str | None = None, **kwargs: Any) -> Trace:
    """Traces a function for example arguments or TensorSpecs. `build_graph` takes the result in place of the function.

    Args:
        fn: the function.
        *args: of a call of the function; a tf.TensorSpec may replace a tensor.
        **kwargs: of the same call.
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


def build_graph(
    fn: Any,
    *args: Any,
    devices: Machine | str | None = None,
    sizes: Mapping[str, Any] = MappingProxyType({}),
    rounds: Mapping[str, Any] = MappingProxyType({}),
    seen: Seen | None = None,
    **kwargs: Any,
) -> OpGraph:
    """The `OpGraph` of a function for example arguments, or of a `Trace`.

    Dimensions the signature leaves open are taken from the example arguments.

    Args:
        fn: the function or the trace.
        *args: of a call, as for `trace`.
        devices: as for `trace`.
        **kwargs: of a call, as for `trace`.
        sizes: sizes that the graph leaves open, as in `placer.Options`.
        rounds: how often loops run, as in `placer.Options`.
        seen: what a run of the function had, see `PlacedFunction.learn`.

    Raises:
        OptionError: there is no such machine, or a size or number of rounds is none.
        TraceError: the function cannot be traced.
        TypeError: it cannot be called with these arguments.
    """
    from placer.tf.state import variables
    from placer.tf.trace import reading, tracing
    from placer.tf.trace.known_sizes import KnownSizes

    given = Options(sizes=sizes, rounds=rounds)
    traced = fn if isinstance(fn, tracing.Trace) else trace(fn, *args, devices=devices, **kwargs)
    return reading.read(traced, KnownSizes(traced, given.sizes, given.rounds, seen), variables.immovable_handles())
