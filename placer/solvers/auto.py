"""The default: picks a solver by objective, devices and limits, and says why."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from placer.problem.memory import excess
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.lagrangian import Lagrangian
from placer.solvers.exact.cp_sat import CpSat, cannot_fit
from placer.solvers.exact.min_cut import MinCut
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.search.step_time import StepTime
from placer.solvers.sources import here

CP_SAT_S = 3.0
"""How long constraint programming may take where no limit is given."""
CP_SAT_OPS = 5_000
"""From here on its model takes longer to build than cuts take to come within a few percent."""
WORTH_MOVING = 0.1
"""The share of the default's step time that has to be gained. What the execution model cannot tell apart is not moved: a gain
of a few percent that it predicts is as often a loss in reality."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Step time by local search; total cost by a minimum cut, or where limits bind by priced ones and constraint programming.

    For step time TensorFlow's own placement stands unless a better one gains `WORTH_MOVING` of it.
    """

    name: str = "auto"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """It takes everything."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Solves with the solver chosen; the stop detail says why it was chosen.

        Args:
            time_limit_s: None lets it grow with the size: half a second at 10,000 ops, a few seconds at 100,000;
                where limits bind, two to three times that.
            seed: makes searches repeatable.
        """
        started = time.perf_counter()
        if why := cannot_fit(problem):
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, why)
        if objective == "step_time":
            found = StepTime().solve(problem, objective, time_limit_s=time_limit_s, seed=seed)
            if found.assignment is not None:
                return _chosen(_unless_default_is_as_good(problem, found), "the objective is the predicted step time")
            # What is left is to find anything that fits.
            fitting = CpSat().solve(problem, "total_cost", time_limit_s=time_limit_s or CP_SAT_S, seed=seed)
            if fitting.assignment is None:
                return replace(_chosen(fitting, "the memory limits bind"), objective=objective)
            priced = answer(
                problem,
                objective,
                fitting.assignment,
                solver=fitting.solver,
                started=started,
                stop_reason=fitting.stop_reason,
                stop_detail=fitting.stop_detail,
                lower_bound_ns=found.lower_bound_ns,
            )
            return _chosen(priced, "the memory limits bind: this is the least total cost found that fits")
        if problem.num_devices == 2:
            cut = MinCut().solve(problem, objective)
            if cut.status is not Status.UNKNOWN:
                return _chosen(cut, "there are two devices and no memory limit binds")
        why = "a memory limit binds" if problem.num_devices == 2 else f"there are {problem.num_devices} devices"
        if time_limit_s is None and problem.num_ops > CP_SAT_OPS:
            relaxed = Lagrangian().solve(problem, objective, seed=seed)
            if relaxed.status is not Status.UNKNOWN:
                return _chosen(relaxed, why)
        return _chosen(CpSat().solve(problem, objective, time_limit_s=time_limit_s or CP_SAT_S, seed=seed), why)

    def cite(self) -> str:
        """Those of the solvers it calls."""
        return here("a choice by objective, devices and limits among its exact and bounded solvers")


def _unless_default_is_as_good(problem: PlacementProblem, found: Solution) -> Solution:
    """TensorFlow's own placement in the place of what gains under `WORTH_MOVING` of it, with the bound that was found."""
    default = default_assignment(problem)
    best_ns, default_ns = found.objective_ns, Simulator(problem).step_ns(default)
    if best_ns == default_ns or best_ns < (1 - WORTH_MOVING) * default_ns or excess(problem, default).any():
        return found
    gain = f"{max(0, default_ns - best_ns) / default_ns:.1%}"
    return replace(
        found,
        assignment=default,
        status=Status.FEASIBLE,
        objective_ns=default_ns,
        stop_reason=StopReason.DEFAULT_KEPT,
        stop_detail=f"the best plan found would gain {gain}, and less than {WORTH_MOVING:.0%} is not worth a move "
        f"({found.stop_text})",
    )


def _chosen(solution: Solution, why: str) -> Solution:
    """The solution, whose stop detail also says why its solver was chosen."""
    choice = f"chosen because {why}"
    return replace(solution, stop_detail=f"{solution.stop_detail}; {choice}" if solution.stop_detail else choice)
