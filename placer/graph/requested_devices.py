"""The devices that a graph's `tf.device` scopes ask for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cost_models.machines import host_of
from placer.common.device_spec import parse
from placer.graph.op_graph import OpGraph


def has_requested_devices(graph: OpGraph) -> bool:
    """Whether this process has all devices that `tf.device` scopes ask for. A plan relaxes others, an unplaced call cannot."""
    requested = {op.requested_device for op in graph if op.requested_device}
    return all(any(parse(spec).matches(device) for device in graph.process_devices) for spec in requested)


def device_with_kernel(requested: str, kinds: Collection[str]) -> str:
    """Where TensorFlow runs an op that asks for a device: there, or on the host of its task if the op has no kernel there.

    Args:
        requested: the device spec. Without an index it stands for the first device of its type.
        kinds: the types of devices for which the op has a kernel.
    """
    spec = parse(requested)
    device = replace(spec, index=spec.index or 0).short
    return device if spec.type in kinds else host_of(device)
