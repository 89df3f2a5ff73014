"""Total cost over two devices by a minimum cut."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from placer.problem.problem import PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, overfull
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.primitives.graph_cut import IHLER, STONE, minimum_cut
from placer.solvers.sources import references


@dataclass(frozen=True, slots=True)
class MinCut:
    """Minimises the total cost over two devices by one maximum flow, in near-linear time. Ignores memory limits."""

    name: str = "min_cut"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective or the number of devices is another, or which memory limit the cut exceeds."""
        if objective != "total_cost":
            return f"it minimises total_cost, not {objective}"
        if problem.num_devices != 2:
            return f"it splits over two devices, and there are {problem.num_devices}: {', '.join(problem.devices.names)}"
        return overfull(problem, minimum_cut(problem).assignment) if limits_can_bind(problem) else ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Computes one maximum flow, whatever the time limit."""
        started = time.perf_counter()
        cut = minimum_cut(problem)
        solution = answer(
            problem,
            objective,
            cut.assignment,
            solver=self.name,
            started=started,
            stop_reason=StopReason.PROVED_OPTIMAL,
            lower_bound_ns=cut.bound_ns,
        )
        if solution.status is not Status.FEASIBLE:
            return solution
        detail = "copies within a GPU, which no cut can express, are priced after the cut"
        return replace(solution, stop_reason=StopReason.COMPLETED, stop_detail=detail)

    def cite(self) -> str:
        """Cuts for two devices, and for tensors with several users."""
        return references(STONE, IHLER)


solver = MinCut
