"""Every assignment of a small problem priced at once, from the definitions alone."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Ints, PlacementProblem

MOST = 3**12


def every_assignment(problem: PlacementProblem) -> Ints:
    """[A, U]: the device of each unit, for all allowed assignments."""
    choices = [np.flatnonzero(row) for row in problem.unit_allowed]
    assert np.prod([len(some) for some in choices]) <= MOST
    return np.stack([grid.ravel() for grid in np.meshgrid(*choices, indexing="ij")], axis=1).astype(np.int64)


def total_costs_ns(problem: PlacementProblem, device: Ints) -> Ints:
    """[A]: of each assignment, `total_cost_ns`."""
    op_device = device[:, problem.op_unit]
    total = problem.op_time_ns[np.arange(problem.ops), op_device].sum(axis=1)
    source, taken = places(problem, op_device)
    for t in np.flatnonzero(~problem.tensor_free).tolist():
        for place in range(2 * problem.devices):
            wanted = (taken[:, problem.consumer_tensor == t] == place).any(axis=1) & (source[:, t] != place)
            price = problem.copy_ns(problem.copied_bytes[t], problem.tensor_count[t], source[:, t], np.array(place))
            total += np.where(wanted, price, 0)
    for op in np.unique(problem.control_src).tolist():
        waiting = problem.control_dst[problem.control_src == op]
        after, runs = op_device[:, waiting], min(problem.op_count[op], problem.op_count[waiting].max())
        for d in range(problem.devices):
            crosses = (after == d).any(axis=1) & (op_device[:, op] != d)
            hop = problem.copy_latency_ns[op_device[:, op], d]
            total += np.where(crosses, np.rint(runs * hop).astype(np.int64), 0)
    return total


def peak_bytes(problem: PlacementProblem, device: Ints) -> Ints:
    """[A, D]: of each assignment, `peaks`."""
    op_device = device[:, problem.op_unit]
    source, taken = places(problem, op_device)
    peak = np.zeros((len(device), problem.devices), np.int64)
    runs = np.arange(problem.ops) if problem.op_moment is None else problem.op_moment
    ends = runs[problem.consumer_op] if problem.consumer_until is None else problem.consumer_until
    size = problem.tensor_bytes if problem.tensor_held_bytes is None else problem.tensor_held_bytes
    for moment in range(problem.ops):
        held = np.zeros_like(peak)
        now = int(np.flatnonzero(runs == moment)[0])
        for d in range(problem.devices):
            held[:, d] = ((device == d) * problem.unit_persistent_bytes).sum(axis=1)
            held[:, d] += np.where(op_device[:, now] == d, problem.op_workspace_bytes[now, d], 0)
        for t, maker in enumerate(problem.tensor_op.tolist()):
            entries = problem.consumer_tensor == t
            last = problem.ops - 1 if problem.tensor_is_result[t] else max([runs[maker], *ends[entries]])
            free = bool(problem.tensor_free[t])
            if not (free or runs[maker] <= moment):
                continue
            for place in range(2 * problem.devices):
                if problem.tensor_shared is not None and problem.tensor_shared[t]:
                    elsewhere = source[:, t] != place  # the value of a variable takes nothing where that is
                else:
                    elsewhere = np.ones(len(device), np.bool_)
                waiting = entries & (free | (ends >= moment))
                there = (taken[:, waiting] == place).any(axis=1)
                there |= (source[:, t] == place) & (free or last >= moment)
                held[:, problem.place_device[place]] += np.where(there & elsewhere, size[t], 0)
        peak = np.maximum(peak, held)
    return peak


def optimum_ns(problem: PlacementProblem) -> int | None:
    """The least total cost that fits; None where nothing does."""
    device = every_assignment(problem)
    limits = problem.memory_limit_bytes
    fits = ((peak_bytes(problem, device) <= limits) | (limits < 0)).all(axis=1)
    costs = total_costs_ns(problem, device)[fits]
    return int(costs.min()) if len(costs) else None


def places(problem: PlacementProblem, op_device: Ints) -> tuple[Ints, Ints]:
    """[A, T] where each tensor is made, [A, C] where each entry takes it."""
    tensors, entries = np.arange(len(problem.tensor_op)), np.arange(len(problem.consumer_op))
    made, taken = op_device[:, problem.tensor_op], op_device[:, problem.consumer_op]
    source = np.where(problem.tensor_on_host[tensors, made], problem.host_place[made], made)
    return source, np.where(problem.consumer_on_host[entries, taken], problem.host_place[taken], taken)
