"""The devices that a graph's `tf.device` scopes ask for."""

from __future__ import annotations

from placer.common.device_spec import parse
from placer.graph.op_graph import OpGraph


def has_requested_devices(graph: OpGraph) -> bool:
    """Whether this process has all devices that `tf.device` scopes ask for. A plan relaxes others, an unplaced call cannot."""
    requested = {op.requested_device for op in graph if op.requested_device}
    return all(any(parse(spec).matches(device) for device in graph.process_devices) for spec in requested)
