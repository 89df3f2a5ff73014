"""Repair: changes an assignment until it meets the memory limits."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.memory import held_by_unit, usage
from placer.problem.price import move_costs_ns
from placer.problem.problem import Assignment, PlacementProblem

MAX_ROUNDS = 200
"""Limit of the number of rounds, each of which moves units off the fullest device."""
FORBIDDEN_NS = np.iinfo(np.int64).max // 4
"""Cost of a move to a forbidden device, above all costs."""


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
        movable = np.flatnonzero((part > 0) & (to != device) & (cost_at[units, to] < FORBIDDEN_NS))
        if not len(movable):
            return None
        added = (cost_at[movable, to[movable]] - current_cost[movable]) / part[movable]
        order = movable[np.argsort(added, kind="stable")]
        enough = int(np.searchsorted(np.cumsum(part[order]), over[full])) + 1
        device = device.copy()
        device[order[:enough]] = to[order[:enough]]
        open_to[order[:enough], full] = False
    return None
