"""PairwiseSolution: the answer of the solver for pairwise problems."""

from __future__ import annotations

from dataclasses import dataclass

from placer.common.gap import relative_gap
from placer.problem.arrays import Ints
from placer.solvers.base import Status


@dataclass(frozen=True, slots=True, eq=False)
class PairwiseSolution:
    """Choices that are allowed and fit, their cost, and a proven lower bound on the cost of all such choices."""

    choice: Ints | None
    """[N]; None for UNKNOWN and INFEASIBLE."""
    status: Status
    cost: int
    """0 if there are no choices."""
    lower_bound: int
    seconds: float
    stop_reason: str

    @property
    def gap(self) -> float:
        """(cost - bound) / cost; 0 for a zero cost, 1 if there are no choices."""
        return 1.0 if self.choice is None else relative_gap(self.cost, self.lower_bound)
