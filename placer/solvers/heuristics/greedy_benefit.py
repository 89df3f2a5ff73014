"""From everything on the CPU, units move by what they gain, most first, where memory allows."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.primitives.incremental_cost import Ledger
from placer.solvers.primitives.incremental_memory import Room
from placer.solvers.sources import here

PASSES = 20


def greedy_benefit_assignment(problem: PlacementProblem) -> Assignment:
    """Takes units by the time that their best device saves them, most first, and moves each where the total cost falls most.

    Copies count as things stand, so that a unit follows its neighbours in a later pass; passes end when one moves nothing, or
    after `PASSES`. A move that breaks a limit is not made. A pass is linear in what units touch, plus what `Room` takes where
    limits can bind.
    """
    start = all_on(problem, "CPU").device
    ledger, room = Ledger(problem, Assignment(start)), Room(problem)
    for unit, device in enumerate(start.tolist()):
        room.move(unit, device)
    every = np.arange(problem.num_units)
    best = np.where(problem.units.allowed, problem.unit_time_ns, np.iinfo(np.int64).max).min(axis=1)
    order = np.argsort(best - problem.unit_time_ns[every, start], kind="stable").tolist()
    choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
    for _ in range(PASSES):
        moved = False
        for unit in order:
            changes = sorted((ledger.change_ns(unit, d), d) for d in choices[unit] if d != ledger.device[unit])
            for change, device in changes:
                if change < 0 and room.take(unit, device):
                    ledger.move(unit, device)
                    moved = True
                    break
        if not moved:
            break
    return ledger.assignment


greedy_benefit = partial(
    Heuristic,
    "greedy_benefit",
    greedy_benefit_assignment,
    here("single moves from everything on the CPU, in the order of the time they save"),
    note="no move lowers the total cost",
)
