"""Notes on a plan: limits above the memory, variables that have to move, and ops whose results may differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost_models.machines import Machine
from placer.common.units import format_bytes
from placer.graph.assumptions import without_bound
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem

MAX_NAMES_SHOWN = 3
DEVICE_DEPENDENT = {
    "bounds": "what it does with an index out of range depends on the device",
    "division": "what an integer division by zero does depends on the device",
    "power": "what an integer to a negative power is depends on the device",
    "random": "its random numbers depend on the device",
}
"""By flag of an op: why its result may depend on the device."""


def rates_not_measured(machine: Machine) -> list[str]:
    """A note on a machine whose rates are from data sheets."""
    return [f"the rates of {machine.name} are from data sheets, not measured."] if machine.from_data_sheets else []


def assumed(machine: Machine) -> list[str]:
    """A note on what is assumed of a machine."""
    return [f"assumed of {machine.name}: {machine.assumed}."] if machine.assumed else []


def kernels_of_snapshot(graph: OpGraph, machine: Machine) -> list[str]:
    """A note on a plan for GPUs whose kernels are not those of the TensorFlow that traced the function."""
    if not graph.kernel_snapshot or all(device.kind != "GPU" for device in machine.devices):
        return []
    kernels = f"GPU kernels are those of {graph.kernel_snapshot}, from a snapshot"
    return [f"{kernels}: the TensorFlow that traced the function is built without GPU support."]


def used_by_others(machine: Machine) -> list[str]:
    """A note on a machine whose GPUs other programs use."""
    return [f"{machine.used_by_others}."] if machine.used_by_others else []


def limits_above_memory(machine: Machine, limit_bytes: Ints) -> list[str]:
    """A note for each device whose limit is above its memory. `limit_bytes` is [D]."""
    return [
        f"the limit of {device.name}, {format_bytes(limit)}, is above the {format_bytes(device.memory_bytes)} it has."
        for device, limit in zip(machine.devices, limit_bytes.tolist(), strict=True)
        if 0 < device.memory_bytes < limit
    ]


def sizes_without_bound(graph: OpGraph, options: Options) -> list[str]:
    """A note on the tensors that may take more memory than is counted, if memory limits are given."""
    unbounded = without_bound(graph) if options.memory_limits else ()
    if not unbounded:
        return []
    names = in_short([*map(repr, unbounded)])
    return [f"the memory limits may not hold: the size of {names} has no upper bound, and what is assumed of it is counted."]


def variables_to_move(graph: OpGraph, options: Options, problem: PlacementProblem, op_device: Ints) -> list[str]:
    """A note on the variables that the plan has on another device than they are on, the largest first.

    Only for a plan that may move variables, on devices of the process that traced the graph. `op_device` is [N].
    """
    names = problem.devices.names
    if options.variables != "move" or not set(names) <= set(graph.process_devices):
        return []
    planned = dict(zip(problem.ops.names, op_device.tolist(), strict=True))
    holders = [(graph.resources[op.resource], names[planned[op.name]]) for op in graph if op.resource in graph.resources]
    moves = [
        (resource, device)
        for resource, device in holders
        if resource.kind == "variable" and resource.device not in ("", device) and not resource.waits
    ]
    moves.sort(key=lambda move: -move[0].nbytes)
    texts = [f"{resource.name!r} from {resource.device} to {device}" for resource, device in moves]
    size = format_bytes(sum(resource.nbytes for resource, _ in moves))
    return [f"{len(texts)} variables, {size}, move before the first call: {in_short(texts)}."] if texts else []


def results_that_may_differ(graph: OpGraph, problem: PlacementProblem, op_device: Ints, default_device: Ints | None) -> list[str]:
    """Notes on ops whose results may change because they run on another device than in TensorFlow's own placement.

    `op_device` and `default_device` are [N]; without TensorFlow's placement there is nothing to compare with.
    """
    if default_device is None:
        return []
    names = problem.devices.names
    ops: dict[tuple[str, str, str], list[str]] = {}
    for i in np.flatnonzero(op_device != default_device).tolist():
        op = graph.op(problem.ops.names[i])
        for flag in DEVICE_DEPENDENT:
            if flag in op.flags:
                ops.setdefault((flag, names[default_device[i]], names[op_device[i]]), []).append(op.name)
    return [
        f"{in_short([*map(repr, moved)])}: on {device} where TensorFlow's default is {default}; {DEVICE_DEPENDENT[flag]}."
        for (flag, default, device), moved in ops.items()
    ]


def in_short(texts: Sequence[str]) -> str:
    """The first texts, and how many more there are."""
    more = len(texts) - MAX_NAMES_SHOWN
    return ", ".join(texts[:MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
