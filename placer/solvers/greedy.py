"""Each unit where it is cheapest, then one pass that lets each follow its neighbours."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, overfull
from placer.solvers.base import Objective, Solution
from placer.solvers.ledger import Ledger


def greedy_assignment(problem: PlacementProblem) -> Assignment:
    """Starts where each unit works fastest and moves each once, in order, where that lowers the total cost most."""
    none = np.iinfo(np.int64).max
    ledger = Ledger(problem, Assignment(np.where(problem.unit_allowed, problem.unit_time_ns, none).argmin(axis=1)))
    choices = [np.flatnonzero(row).tolist() for row in problem.unit_allowed]
    for unit, devices in enumerate(choices):
        here = ledger.device[unit]
        change, _, best = min((ledger.change_ns(unit, d) if d != here else 0, d != here, d) for d in devices)
        if change < 0:
            ledger.move(unit, best)
    return ledger.assignment


@dataclass(frozen=True, slots=True)
class Greedy:
    """A baseline for heuristics. Lowers the total cost whatever the objective, and knows no memory limits."""

    name: str = "greedy"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Only what exceeds a memory limit so placed."""
        return overfull(problem, greedy_assignment(problem))

    def solve(
        self,
        problem: PlacementProblem,
        objective: Objective,
        *,
        time_limit_s: float = 10.0,
        seed: int = 0,
    ) -> Solution:
        """One pass, in linear time."""
        started = time.perf_counter()
        assignment = greedy_assignment(problem)
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_reason="one pass done")

    def cite(self) -> str:
        """A heuristic without a paper."""
        return "A heuristic: the cheapest device of each unit, then one pass of single moves."
