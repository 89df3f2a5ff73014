"""One assignment by a rule: what every heuristic shares, so that one is a function and a line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, overfull
from placer.solvers.base import Objective, Solution

Rule: TypeAlias = Callable[[PlacementProblem], Assignment]


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A function from a problem to an assignment, as a solver. Neither the objective nor the seed changes what it does."""

    name: str
    assign: Rule
    source: str
    note: str | Callable[[PlacementProblem, Assignment], str] = "a fixed rule"
    """What the method is, for the stop detail."""

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Only what exceeds a memory limit so placed."""
        return overfull(problem, self.assign(problem)) if limits_can_bind(problem) else ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """There is nothing to search."""
        started = time.perf_counter()
        assignment = self.assign(problem)
        note = self.note if isinstance(self.note, str) else self.note(problem, assignment)
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_detail=note)

    def cite(self) -> str:
        """The source of the rule."""
        return self.source
