"""The default solver: chooses another solver by objective, devices and limits, and says why."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from placer.common.clock import now
from placer.problem.memory import excess
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.answer import answer
from placer.solvers.base import MIN_GAIN, Objective, Solution, Status, StopReason
from placer.solvers.exact.cp_sat import CpSat, cannot_fit
from placer.solvers.exact.lagrangian import Lagrangian
from placer.solvers.exact.min_cut import MinCut
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.search.step_time import StepTime
from placer.solvers.sources import own_work

CP_SAT_S = 3.0
"""Time limit of constraint programming, in seconds, if none is given."""
MAX_CP_SAT_OPS = 5_000
"""Above this number of ops, building the CP-SAT model takes longer than cuts take to come within a few percent."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Minimises the step time by `step_time`, the total cost by `min_cut` if it is exact, otherwise by `lagrangian` or `cp_sat`.

    For the step time, TensorFlow's own placement is kept unless another gains the share `MIN_GAIN` of its step time.
    """

    name: str = "auto"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Empty: it solves every problem."""
        return ""

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Solves with the chosen solver; `chosen_because` says why it was chosen.

        Args:
            time_limit_s: None lets the time grow with the size: half a second for 10,000 ops, a few seconds for 100,000;
                two to three times as much where limits bind.
            seed: of the searches.
        """
        started, began = time.perf_counter(), now()
        if why := cannot_fit(problem):
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, why)
        if objective == "step_time":
            improved = StepTime().solve(problem, objective, time_limit_s=time_limit_s, seed=seed)
            if improved.assignment is not None:
                return replace(
                    _default_unless_slower(problem, improved), chosen_because="the objective is the predicted step time"
                )
            # No start of `step_time` meets the limits: look for any assignment that does.
            remaining_s = CP_SAT_S if time_limit_s is None else began + time_limit_s - now()
            feasible = CpSat().solve(problem, "total_cost", time_limit_s=remaining_s, seed=seed)
            if feasible.assignment is None:
                return replace(feasible, chosen_because="the memory limits bind", objective=objective)
            priced = answer(
                problem,
                objective,
                feasible.assignment,
                solver=feasible.solver,
                started=started,
                stop_reason=feasible.stop_reason,
                stop_detail=feasible.stop_detail,
                lower_bound_ns=improved.lower_bound_ns,
            )
            return replace(priced, chosen_because="the memory limits bind: this is the least total cost found that fits")
        if problem.num_devices == 2:
            cut = MinCut().solve(problem, objective)
            if cut.status is not Status.UNKNOWN:
                return replace(cut, chosen_because="there are two devices and no memory limit binds")
        why = "a memory limit binds" if problem.num_devices == 2 else f"there are {problem.num_devices} devices"
        if time_limit_s is None and problem.num_ops > MAX_CP_SAT_OPS:
            relaxed = Lagrangian().solve(problem, objective, seed=seed)
            if relaxed.status is not Status.UNKNOWN:
                return replace(relaxed, chosen_because=why)
        remaining_s = CP_SAT_S if time_limit_s is None else began + time_limit_s - now()
        solution = CpSat().solve(problem, objective, time_limit_s=remaining_s, seed=seed)
        return replace(solution, chosen_because=why)

    def cite(self) -> str:
        """This package: it only chooses."""
        return own_work("a choice by objective, devices and limits among its exact and bounded solvers")


def _default_unless_slower(problem: PlacementProblem, improved: Solution) -> Solution:
    """TensorFlow's own placement if the solution gains less than `MIN_GAIN` of its step time; the bound is the solution's."""
    default = default_assignment(problem)
    best_ns, default_ns = improved.objective_ns, Simulator(problem).step_ns(default)
    if best_ns == default_ns or best_ns < (1 - MIN_GAIN) * default_ns or excess(problem, default).any():
        return improved
    gain = f"{max(0, default_ns - best_ns) / default_ns:.1%}"
    return replace(
        improved,
        assignment=default,
        status=Status.FEASIBLE,
        objective_ns=default_ns,
        stop_reason=StopReason.DEFAULT_KEPT,
        stop_detail=f"the best plan found would gain {gain}, and less than {MIN_GAIN:.0%} is not worth a move "
        f"({improved.stop_text})",
    )


solver = Auto
