"""Each unit where it is cheapest, then one pass that lets each follow its neighbours."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.incremental_cost import Ledger
from placer.solvers.sources import here


def greedy_assignment(problem: PlacementProblem) -> Assignment:
    """Starts where each unit works fastest and moves each once, in order, where that lowers the total cost most.

    A baseline for heuristics, in linear time. It lowers the total cost whatever the objective, and knows no memory limits.
    """
    none = np.iinfo(np.int64).max
    ledger = Ledger(problem, Assignment(np.where(problem.units.allowed, problem.unit_time_ns, none).argmin(axis=1)))
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    for unit, devices in enumerate(choices):
        here = ledger.device[unit]
        change, _, best = min((ledger.change_ns(unit, d) if d != here else 0, d != here, d) for d in devices)
        if change < 0:
            ledger.move(unit, best)
    return ledger.assignment


greedy = partial(
    Heuristic,
    "greedy",
    greedy_assignment,
    here("the cheapest device of each unit, then one pass of single moves"),
    note="one pass over all units",
)
