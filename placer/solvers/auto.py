"""The default: picks a solver by objective, devices and limits, and says why."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from placer.problem.problem import PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.cp_sat import CpSat, cannot_fit
from placer.solvers.min_cut import MinCut
from placer.solvers.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Auto:
    """Step time by local search; total cost by a minimum cut where that is exact; otherwise constraint programming."""

    name: str = "auto"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """It takes everything."""
        return ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Solves with the solver chosen; its name and the reason lead the stop reason."""
        started = time.perf_counter()
        if why := cannot_fit(problem):
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, time.perf_counter() - started, why)
        if objective == "step_time":
            found = StepTime().solve(problem, objective, time_limit_s=time_limit_s, seed=seed)
            if found.assignment is not None:
                return _told(found, "step time is what the execution model predicts")
            # Only a solver that knows memory over lifetimes can still find something that fits.
            left = max(1.0, time_limit_s - (time.perf_counter() - started))
            fitting = CpSat().solve(problem, "total_cost", time_limit_s=left, seed=seed)
            if fitting.assignment is None:
                return replace(_told(fitting, "the memory limits bind"), objective=objective)
            priced = answer(
                problem, objective, fitting.assignment, solver="cp_sat", started=started, stop_reason=fitting.stop_reason
            )
            return _told(priced, "the memory limits bind; least total cost that fits")
        cut = MinCut()
        if not cut.unsupported(problem, objective):
            found = cut.solve(problem, objective, time_limit_s=time_limit_s, seed=seed)
            if found.status is not Status.UNKNOWN:
                return _told(found, "two devices and no limit that binds")
        return _told(
            CpSat().solve(problem, objective, time_limit_s=time_limit_s, seed=seed),
            "a memory limit binds" if problem.devices == 2 else f"{problem.devices} devices",
        )

    def cite(self) -> str:
        """Those of the solvers it calls."""
        return "placer's choice among its solvers."


def _told(solution: Solution, why: str) -> Solution:
    return replace(solution, stop_reason=f"{why}: {solution.stop_reason}")
