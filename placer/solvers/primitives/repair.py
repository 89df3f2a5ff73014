"""Repair: changes an assignment until it meets the memory limits."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.memory import usage
from placer.problem.price import move_costs_ns
from placer.problem.problem import Assignment, PlacementProblem

MAX_ROUNDS = 200
FORBIDDEN_NS = np.iinfo(np.int64).max // 4


def repair(problem: PlacementProblem, assignment: Assignment, staying: Ints | None = None) -> Assignment | None:
    """Moves units off overfull devices, first those that add least to the total cost per byte they hold at the peak.

    A heuristic: None does not prove that no assignment fits. It ends because a unit never returns to a device it left.

    Args:
        staying: numbers of units that must not move.
    """
    device = assignment.device.copy()
    open_to = problem.units.allowed.copy()
    if staying is not None:
        open_to[staying] = False
    units = np.arange(problem.num_units)
    for _ in range(MAX_ROUNDS):
        current = Assignment(device)
        held = usage(problem, current)
        over = np.where(
            problem.devices.memory_limit_bytes < 0, 0, held.max(axis=1, initial=0) - problem.devices.memory_limit_bytes
        )
        full = int(np.argmax(over))
        if over[full] <= 0:
            return current
        part = held_by_unit(problem, current, full, int(np.argmax(held[full])))
        open_to[:, full] &= device == full  # no unit moves to the full device
        cost_at = problem.unit_time_ns + move_costs_ns(problem, current)
        cost_at[~open_to] = FORBIDDEN_NS
        current_cost = np.where(open_to[units, device], cost_at[units, device], 0)
        cost_at[:, full] = FORBIDDEN_NS
        to = cost_at.argmin(axis=1)
        movable = np.flatnonzero((part > 0) & (cost_at[units, to] < FORBIDDEN_NS))
        if not len(movable):
            return None
        added = (cost_at[movable, to[movable]] - current_cost[movable]) / part[movable]
        order = movable[np.argsort(added, kind="stable")]
        enough = int(np.searchsorted(np.cumsum(part[order]), over[full])) + 1
        device = device.copy()
        device[order[:enough]] = to[order[:enough]]
        open_to[order[:enough], full] = False
    return None


def held_by_unit(problem: PlacementProblem, assignment: Assignment, device: int, moment: int) -> Ints:
    """Bytes of `device`'s memory that each unit has a part in at a moment of the step, shape [U].

    A tensor counts for its maker where it is made, and for each unit that still waits for it at a place it is copied to.
    """
    op_device = assignment.device[problem.ops.unit]
    every, entries = np.arange(problem.num_tensors), np.arange(len(problem.consumers))
    src = problem.tensor_place[every, op_device[problem.tensors.op]]
    dst = problem.consumer_place[entries, op_device[problem.consumers.op]]
    begun = problem.tensor_begin <= moment
    made = (problem.devices.place_device[src] == device) & ~problem.tensors.shared & begun & (problem.tensor_last >= moment)

    held = np.where(assignment.device == device, problem.units.persistent_bytes, 0)
    np.add.at(held, problem.ops.unit[problem.tensors.op[made]], problem.tensors.held_bytes[made])
    t = problem.consumers.tensor
    copied = (problem.devices.place_device[dst] == device) & (dst != src[t]) & begun[t] & (problem.consumer_last >= moment)
    np.add.at(held, problem.ops.unit[problem.consumers.op[copied]], problem.tensors.held_bytes[t[copied]])
    now = problem.ops.at_moment[moment]
    if op_device[now] == device:
        held[problem.ops.unit[now]] += problem.ops.workspace_bytes[now, device]
    return held
