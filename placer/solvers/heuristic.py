"""A heuristic: a function from a problem to an assignment, as a solver."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from placer.common.clock import TimeUpError, limit
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, overfull, unfinished
from placer.solvers.base import Objective, Solution

FixedRule: TypeAlias = Callable[[PlacementProblem], Assignment]
RandomRule: TypeAlias = Callable[[PlacementProblem, np.random.Generator], Assignment]
Rule: TypeAlias = FixedRule | RandomRule


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A solver that gives the assignment of one function. The objective and the seed do not change it."""

    name: str
    assign: FixedRule
    source: str
    note: str | Callable[[PlacementProblem, Assignment], str] = "a fixed rule"
    """The kind of method, for the stop detail: a text, or a function of the problem and its assignment."""

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says which memory limit the assignment exceeds, if it exceeds one."""
        return overfull(problem, self.assign(problem)) if limits_can_bind(problem) else ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Applies the function once; gives a simple placement if the function tells more work than the time limit allows."""
        started = time.perf_counter()
        try:
            with limit(time_limit_s):
                assignment = self.assign(problem)
        except TimeUpError:
            return unfinished(problem, objective, solver=self.name, started=started)
        note = self.note if isinstance(self.note, str) else self.note(problem, assignment)
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_detail=note)

    def cite(self) -> str:
        """The source of the function."""
        return self.source


@dataclass(frozen=True, slots=True)
class RandomHeuristic:
    """A solver that gives the assignment of one function that draws random numbers. The seed is that of the generator."""

    name: str
    assign: RandomRule
    source: str

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Empty: whether a memory limit is exceeded depends on the seed."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Applies the function once, with ``numpy.random.default_rng(seed)``; the time limit is as for `Heuristic`."""
        started = time.perf_counter()
        try:
            with limit(time_limit_s):
                assignment = self.assign(problem, np.random.default_rng(seed))
        except TimeUpError:
            return unfinished(problem, objective, solver=self.name, started=started)
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_detail="a random rule")

    def cite(self) -> str:
        """The source of the function."""
        return self.source
