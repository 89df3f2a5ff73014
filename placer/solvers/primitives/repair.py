"""Making an assignment meet the memory limits."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.memory import held_by_unit, usage
from placer.problem.price import move_costs_ns
from placer.problem.problem import Assignment, PlacementProblem

ROUNDS = 200
NEVER = np.iinfo(np.int64).max // 4


def fit(problem: PlacementProblem, assignment: Assignment, staying: Ints | None = None) -> Assignment | None:
    """Moves units off overfull devices, those first that add least to the total cost per byte they hold at the peak.

    A heuristic: None says that it found nothing, not that there is nothing. A unit never comes back to a device it left, so
    it ends.

    Args:
        staying: units that are not moved; none if not given.
    """
    device = assignment.device.copy()
    open_to = problem.units.allowed.copy()
    if staying is not None:
        open_to[staying] = False
    units = np.arange(problem.num_units)
    for _ in range(ROUNDS):
        current = Assignment(device)
        held = usage(problem, current)
        over = np.where(
            problem.devices.memory_limit_bytes < 0, 0, held.max(axis=1, initial=0) - problem.devices.memory_limit_bytes
        )
        full = int(np.argmax(over))
        if over[full] <= 0:
            return current
        part = held_by_unit(problem, current, full, int(np.argmax(held[full])))
        open_to[:, full] &= device == full  # who is elsewhere stays elsewhere
        there = problem.unit_time_ns + move_costs_ns(problem, current)
        there[~open_to] = NEVER
        now = np.where(open_to[units, device], there[units, device], 0)
        there[:, full] = NEVER
        to = there.argmin(axis=1)
        movable = np.flatnonzero((part > 0) & (there[units, to] < NEVER))
        if not len(movable):
            return None
        added = (there[movable, to[movable]] - now[movable]) / part[movable]
        order = movable[np.argsort(added, kind="stable")]
        enough = int(np.searchsorted(np.cumsum(part[order]), over[full])) + 1
        device = device.copy()
        device[order[:enough]] = to[order[:enough]]
        open_to[order[:enough], full] = False
    return None
