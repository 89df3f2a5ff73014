"""SplitSolution: the answer of a solver for split problems."""

from __future__ import annotations

import time
from dataclasses import dataclass

from placer.common.gap import relative_gap
from placer.problem.arrays import Ints
from placer.research.splits.problem import SplitObjective
from placer.solvers.base import Status


@dataclass(frozen=True, slots=True, eq=False)
class SplitSolution:
    """A split within the memory limit, its value, and a proven lower bound on the value of every such split."""

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
        """A split with its status: OPTIMAL if the bound proves it, else FEASIBLE. ``started`` is a `time.perf_counter` value."""
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
        return relative_gap(self.objective_ns, self.lower_bound_ns)
