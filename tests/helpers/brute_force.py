"""Every assignment of a small problem priced at once, from the definitions alone."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem

MOST = 3**12


def every_assignment(problem: PlacementProblem) -> Ints:
    """[A, U]: the device of each unit, for all allowed assignments."""
    choices = [np.flatnonzero(row) for row in problem.units.allowed]
    assert np.prod([len(some) for some in choices]) <= MOST
    return np.stack([grid.ravel() for grid in np.meshgrid(*choices, indexing="ij")], axis=1).astype(np.int64)


def total_costs_ns(problem: PlacementProblem, device: Ints) -> Ints:
    """[A]: of each assignment, `total_cost_ns`."""
    op_device = device[:, problem.ops.unit]
    total = problem.ops.time_ns[np.arange(problem.num_ops), op_device].sum(axis=1)
    source, taken = places(problem, op_device)
    for t in np.flatnonzero(~problem.tensors.free).tolist():
        for place in range(2 * problem.num_devices):
            wanted = (taken[:, problem.consumers.tensor == t] == place).any(axis=1) & (source[:, t] != place)
            price = problem.links.copy_ns(problem.tensors.copy_bytes[t], problem.tensors.count[t], source[:, t], np.array(place))
            total += np.where(wanted, price, 0)
    for op in np.unique(problem.ops.control_src).tolist():
        waiting = problem.ops.control_dst[problem.ops.control_src == op]
        after, runs = op_device[:, waiting], min(problem.ops.count[op], problem.ops.count[waiting].max())
        for d in range(problem.num_devices):
            crosses = (after == d).any(axis=1) & (op_device[:, op] != d)
            hop = problem.links.latency_ns[op_device[:, op], d]
            total += np.where(crosses, np.rint(runs * hop).astype(np.int64), 0)
    return total


def peak_bytes(problem: PlacementProblem, device: Ints) -> Ints:
    """[A, D]: of each assignment, `peaks`."""
    op_device = device[:, problem.ops.unit]
    source, taken = places(problem, op_device)
    peak = np.zeros((len(device), problem.num_devices), np.int64)
    runs = np.arange(problem.num_ops) if problem.ops.moment is None else problem.ops.moment
    ends = runs[problem.consumers.op] if problem.consumers.until is None else problem.consumers.until
    size = problem.tensors.nbytes if problem.tensors.held_bytes is None else problem.tensors.held_bytes
    for moment in range(problem.num_ops):
        held = np.zeros_like(peak)
        now = int(np.flatnonzero(runs == moment)[0])
        for d in range(problem.num_devices):
            held[:, d] = ((device == d) * problem.units.persistent_bytes).sum(axis=1)
            held[:, d] += np.where(op_device[:, now] == d, problem.ops.workspace_bytes[now, d], 0)
        for t, maker in enumerate(problem.tensors.op.tolist()):
            entries = problem.consumers.tensor == t
            last = problem.num_ops - 1 if problem.tensors.is_result[t] else max([runs[maker], *ends[entries]])
            free = bool(problem.tensors.free[t])
            if not (free or runs[maker] <= moment):
                continue
            for place in range(2 * problem.num_devices):
                if problem.tensors.shared is not None and problem.tensors.shared[t]:
                    elsewhere = source[:, t] != place  # the value of a variable takes nothing where that is
                else:
                    elsewhere = np.ones(len(device), np.bool_)
                waiting = entries & (free | (ends >= moment))
                there = (taken[:, waiting] == place).any(axis=1)
                there |= (source[:, t] == place) & (free or last >= moment)
                held[:, problem.devices.place_device[place]] += np.where(there & elsewhere, size[t], 0)
        peak = np.maximum(peak, held)
    return peak


def optimum_ns(problem: PlacementProblem) -> int | None:
    """The least total cost that fits; None where nothing does."""
    device = every_assignment(problem)
    limits = problem.devices.memory_limit_bytes
    fits = ((peak_bytes(problem, device) <= limits) | (limits < 0)).all(axis=1)
    costs = total_costs_ns(problem, device)[fits]
    return int(costs.min()) if len(costs) else None


def places(problem: PlacementProblem, op_device: Ints) -> tuple[Ints, Ints]:
    """[A, T] where each tensor is made, [A, C] where each entry takes it."""
    tensors, entries = np.arange(problem.num_tensors), np.arange(len(problem.consumers))
    made, taken = op_device[:, problem.tensors.op], op_device[:, problem.consumers.op]
    source = np.where(problem.tensors.on_host[tensors, made], problem.devices.host_place[made], made)
    return source, np.where(problem.consumers.on_host[entries, taken], problem.devices.host_place[taken], taken)
