"""What is answered to a pairwise problem."""

from __future__ import annotations

from dataclasses import dataclass

from placer.problem.arrays import Ints
from placer.solvers.base import Status


@dataclass(frozen=True, slots=True, eq=False)
class PairwiseSolution:
    """Choices that are allowed and fit, what they cost, and a proved bound on that of all such choices."""

    choice: Ints | None
    """[N]; None for UNKNOWN and INFEASIBLE."""
    status: Status
    cost: int
    """0 where there are no choices."""
    lower_bound: int
    seconds: float
    stop_reason: str

    @property
    def gap(self) -> float:
        """(cost - bound) / cost, 0 for a zero cost; 1 where there are no choices."""
        if self.choice is None:
            return 1.0
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.lower_bound) / self.cost)
