"""Starts with everything on the CPU and moves units that lower the total cost, within the memory limits."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.greedy import UNIT_OP_RUNS
from placer.solvers.primitives.incremental_cost import IncrementalCost
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.sources import own_work

MAX_PASSES = 20
"""Limit of the number of passes over all units."""


def greedy_benefit_assignment(problem: PlacementProblem) -> Assignment:
    """Tries units in the order of the time that their fastest device saves; moves each to where the total cost falls most.

    The cost of a move counts the copies to its neighbours where they are at that time, so a unit may follow them in a later
    pass. Passes end when one moves nothing, or after `MAX_PASSES`. A move that exceeds a memory limit is not made.
    Time: (N + E) D a pass, plus that of `IncrementalMemory`.
    """
    start = all_on(problem, "CPU").device
    cost, memory = IncrementalCost(problem, Assignment(start)), IncrementalMemory(problem)
    for unit, device in enumerate(start.tolist()):
        memory.move(unit, device)
    units = np.arange(problem.num_units)
    best = np.where(problem.units.allowed, problem.unit_time_ns, np.iinfo(np.int64).max).min(axis=1)
    order = np.argsort(best - problem.unit_time_ns[units, start], kind="stable").tolist()
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    for _ in range(MAX_PASSES):
        moved = False
        for unit in order:
            spend(UNIT_OP_RUNS)
            changes = sorted((cost.change_ns(unit, d), d) for d in choices[unit] if d != cost.device[unit])
            for change, device in changes:
                if change < 0 and memory.move_if_fits(unit, device):
                    cost.move(unit, device)
                    moved = True
                    break
        if not moved:
            break
    return cost.assignment


def solver() -> Heuristic:
    """Moves from the CPU, by the time they save."""
    source = own_work("single moves from everything on the CPU, in the order of the time they save")
    return Heuristic("greedy_benefit", greedy_benefit_assignment, source, note="no move lowers the total cost")
