"""Local search of the total cost within the memory limits: moves of one unit, or of two that exchange memory."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from placer.common.clock import TimeUpError, limit, spend
from placer.problem.price import move_costs_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.incremental_cost import IncrementalCost
from placer.solvers.primitives.incremental_memory import IncrementalMemory

MOVE_OP_RUNS = 6
"""The work of trying a move, see `placer.common.clock.spend`."""
MAX_PARTNERS = 8
"""Limit of the number of units that are tried as partners of a move that exceeds a limit."""


def local_search(
    problem: PlacementProblem, assignment: Assignment, *, max_passes: int, time_limit_s: float = math.inf
) -> Assignment:
    """Moves units, in order, if that lowers the total cost, until no move does.

    A move that exceeds a memory limit is tried again with a partner: a unit that leaves the device and costs less than the move
    saves, by the costs before the pass.

    Args:
        assignment: it must fit.
        max_passes: limit of the number of passes over all units.
        time_limit_s: in seconds.
    """
    cost, memory = IncrementalCost(problem, assignment), IncrementalMemory(problem)
    for unit, device in enumerate(cost.device):
        memory.move(unit, device)
    choices = [(unit, np.flatnonzero(row).tolist()) for unit, row in enumerate(problem.units.allowed) if row.sum() > 1]
    with limit(time_limit_s), suppress(TimeUpError):
        for _ in range(max_passes):
            moved, leaving = False, _leaving(problem, cost.assignment)
            for unit, devices in choices:
                for device in devices:
                    spend(MOVE_OP_RUNS)
                    current = cost.device[unit]
                    if device == current:
                        continue
                    added = cost.move(unit, device)
                    if added < 0 and (
                        memory.move_if_fits(unit, device) or _partner_moved(cost, memory, unit, current, -added, leaving[device])
                    ):
                        moved = True
                    else:
                        cost.move(unit, current)
            if not moved:
                break
    return cost.assignment


def _leaving(problem: PlacementProblem, assignment: Assignment) -> list[list[tuple[int, int, int]]]:
    """For each device its units' moves to other devices: (unit, device, change of the total cost in ns), the cheapest first."""
    units = np.arange(problem.num_units)
    cost_at = problem.unit_time_ns + move_costs_ns(problem, assignment)
    added = cost_at - cost_at[units, assignment.device][:, None]
    unit, to = np.nonzero(problem.units.allowed & (np.arange(problem.num_devices) != assignment.device[:, None]))
    order = np.argsort(added[unit, to], kind="stable")
    moves = list(zip(unit[order].tolist(), to[order].tolist(), added[unit, to][order].tolist(), strict=True))
    device = assignment.device.tolist()
    return [[move for move in moves if device[move[0]] == d] for d in range(problem.num_devices)]


def _partner_moved(
    cost: IncrementalCost, memory: IncrementalMemory, unit: int, previous: int, saved: int, leaving: list[tuple[int, int, int]]
) -> bool:
    """Whether a partner could leave the device that `unit` moved to, so that all limits hold and the total cost falls.

    If not, all units are where they were, but `cost` still has `unit` on its new device.
    """
    device, tried = cost.device[unit], 0
    memory.move(unit, device)
    for other, elsewhere, added in leaving:
        if added >= saved or tried == MAX_PARTNERS:
            break
        if other == unit or cost.device[other] != device:
            continue
        tried += 1
        if memory.move_if_fits(other, elsewhere):
            if cost.move(other, elsewhere) < saved:
                return True
            cost.move(other, device)
            memory.move(other, device)
    memory.move(unit, previous)
    return False
