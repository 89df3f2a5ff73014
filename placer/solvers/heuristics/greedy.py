"""Each unit on its fastest device, then one pass of moves that lower the total cost."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.incremental_cost import IncrementalCost
from placer.solvers.sources import own_work

UNIT_OP_RUNS = 5
"""The work to try a unit on all devices, see `placer.common.clock.spend`."""


def greedy_assignment(problem: PlacementProblem) -> Assignment:
    """Puts each unit on its fastest device, then moves each once, in order, to where it lowers the total cost most.

    A baseline for heuristics. It lowers the total cost, whatever the objective, and ignores memory limits. Time: (N + E) D.
    """
    time_ns = np.where(problem.units.allowed, problem.unit_time_ns, np.iinfo(np.int64).max)
    cost = IncrementalCost(problem, Assignment(time_ns.argmin(axis=1)))
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    for unit, devices in enumerate(choices):
        spend(UNIT_OP_RUNS)
        current = cost.device[unit]
        change, _, best = min((cost.change_ns(unit, d) if d != current else 0, d != current, d) for d in devices)
        if change < 0:
            cost.move(unit, best)
    return cost.assignment


def solver() -> Heuristic:
    """The fastest device of each unit, then one pass of moves."""
    source = own_work("the cheapest device of each unit, then one pass of single moves")
    return Heuristic("greedy", greedy_assignment, source, note="one pass over all units")
