"""Total cost under memory limits by Lagrangian relaxation: assignments that fit, and a bound."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from placer.problem.problem import PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.lagrangian_relaxation import lagrangian_relaxation
from placer.solvers.bounds.memory_prices import FISHER, HELD, MARSTEN
from placer.solvers.primitives.graph_cut import BOYKOV
from placer.solvers.sources import references


@dataclass(frozen=True, slots=True)
class Lagrangian:
    """Minimises the total cost under memory limits, with a bound, by up to a few hundred minimum cuts."""

    name: str = "lagrangian"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective is another."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = math.inf, seed: int = 0
    ) -> Solution:
        """Runs the relaxation once. UNKNOWN if no cut can be repaired."""
        started = time.perf_counter()
        relaxation = lagrangian_relaxation(problem, time_limit_s=time_limit_s, seed=seed)
        if not relaxation.assignments:
            seconds = time.perf_counter() - started
            detail = "no cut, at any memory price, could be repaired"
            return Solution(
                None, Status.UNKNOWN, objective, 0, relaxation.bound_ns, self.name, seconds, StopReason.NOT_FOUND, detail
            )
        return answer(
            problem,
            objective,
            relaxation.assignments[0],
            solver=self.name,
            started=started,
            stop_detail="memory has a price where limits bind",
            lower_bound_ns=relaxation.bound_ns,
        )

    def cite(self) -> str:
        """Lagrangian relaxation, the ascent of the prices, and alpha-expansion."""
        return references(HELD, FISHER, MARSTEN, BOYKOV)


solver = Lagrangian
