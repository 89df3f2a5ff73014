"""Whether a function can be placed, or why it must run as TensorFlow runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from cost_models.ops import entry_of
from placer.common.device_spec import parse
from placer.common.environment import DISABLE_VARIABLE, is_disabled
from placer.errors import TraceError
from placer.tf._private.func_graphs import external_captures, is_of_unplanned_strategy
from placer.tf._private.handles import is_parallel, location, strategy_of
from placer.tf.devices import connected_devices, process_devices
from placer.tf.trace.op_types import unplaceable
from placer.tf.trace.replicas import is_planned_for, schedules, why_left_to_strategy
from placer.tf.trace.requests import is_of_strategy
from placer.tf.trace.tracing import Trace, trace_concrete


def trace_if_placeable(
    concrete: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    devices: Collection[str] = (),
    *,
    of_replicas: bool = False,
) -> tuple[Trace | None, str]:
    """The Trace of a ConcreteFunction for a call, and ""; for a function that cannot be placed, None and the reason.

    Args:
        concrete: the function.
        args, kwargs: of the call.
        devices: those that are planned for, beside the ones of this process.
        of_replicas: whether the function runs the replicas of a strategy and is planned as such.
    """
    if is_disabled():
        return None, f"{DISABLE_VARIABLE} is set"
    try:
        trace = trace_concrete(concrete, args, kwargs)
        reason = _reason_against(trace, devices, of_replicas)
    except TraceError as error:
        return None, str(error)
    return (None, reason) if reason else (trace, "")


def _reason_against(trace: Trace, planned: Collection[str], of_replicas: bool) -> str:
    if trace.is_jit_compiled:
        return "it is compiled by XLA as a whole (jit_compile=True), so no op of it can be placed by itself"
    captured = [outer for body in trace.root.walk() for outer, _ in external_captures(body.graph)]
    if any(map(is_parallel, [*trace.arguments, *captured])):
        return "it uses DTensors or packed replicas, whose layout decides the devices"
    if tf.distribute.has_strategy() and not of_replicas:
        return why_left_to_strategy()
    strategies = map(strategy_of, trace.concrete.graph.variables)
    if not all(each is None or is_planned_for(each) or (of_replicas and schedules(each)) for each in strategies):
        return "it uses variables of a distribution strategy that decides the devices"
    for body in trace.root.walk():
        for name, node in body.nodes.items():
            is_left_to_strategy = entry_of(node.op).names_partners and (of_replicas or is_of_strategy(body, name))
            if name not in body.children and not is_left_to_strategy and (why := unplaceable(node.op)):
                return f"its {body.names[name]!r} ({node.op}) {why}"
            if not of_replicas and is_of_unplanned_strategy(body.operations[name]):
                return "it runs replicas of a distribution strategy that decides the devices"
    return _reason_in_cluster(trace, captured, planned)


def _reason_in_cluster(trace: Trace, captured: Sequence[Any], planned: Collection[str]) -> str:
    """Why a function cannot be placed in a process that is connected to others; "" in any other process."""
    others = set(connected_devices()).difference(process_devices())
    if not others:
        return ""
    devices = [trace.root.outer_scope, *map(location, (*trace.arguments, *captured))]
    devices += [node.device for body in trace.root.walk() for node in body.nodes.values()]
    specs = {d: parse(d) for d in dict.fromkeys(devices)}
    elsewhere = [d for d, spec in specs.items() if not spec.is_of_process and not any(map(spec.matches, planned))]
    return f"it uses {elsewhere[0]}, which is not planned for" if elsewhere else ""
