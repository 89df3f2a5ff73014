"""What solvers of split problems answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from placer.problem.arrays import Ints
from placer.research.splits.problem import SplitObjective
from placer.solvers.base import Status


@dataclass(frozen=True, slots=True, eq=False)
class SplitSolution:
    """A split that meets the memory limit, its value, and a proved bound on that of all that do."""

    device: Ints | None
    """[U]; None for UNKNOWN and INFEASIBLE."""
    status: Status
    objective: SplitObjective
    objective_ns: int
    lower_bound_ns: int
    seconds: float
    stop_reason: str

    @classmethod
    def of(cls, device: Ints, objective: SplitObjective, objective_ns: int, bound_ns: int, started: float) -> SplitSolution:
        """The best that a search found until now: OPTIMAL where the bound proves it. `started` is on `time.perf_counter`."""
        proved = objective_ns <= bound_ns
        return cls(
            device,
            Status.OPTIMAL if proved else Status.FEASIBLE,
            objective,
            objective_ns,
            min(bound_ns, objective_ns),
            time.perf_counter() - started,
            "optimal" if proved else "time limit",
        )

    @property
    def gap(self) -> float:
        """(objective - bound) / objective, 0 for a zero objective."""
        return 0.0 if self.objective_ns <= 0 else max(0.0, (self.objective_ns - self.lower_bound_ns) / self.objective_ns)
