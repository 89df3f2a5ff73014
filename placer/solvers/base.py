"""The interface of a solver, and the solution that it returns."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from placer.common.gap import relative_gap
from placer.problem.problem import Assignment, PlacementProblem

Objective: TypeAlias = Literal["step_time", "total_cost"]

MIN_GAIN = 0.1
"""Share of a placement's step time that another must gain to be better. A predicted gain of a few percent is within the execution
model's error: measured, it is as often a loss."""


class Status(enum.StrEnum):
    """How much is known about a solution. FEASIBLE is not OPTIMAL."""

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    """Proved: no assignment meets the memory limits."""
    UNKNOWN = "UNKNOWN"
    """No assignment that meets the limits was found, and none was ruled out."""


class StopReason(enum.StrEnum):
    """Why a search ended. The value is the sentence that users read."""

    PROVED_OPTIMAL = "proved optimal"
    LOCAL_OPTIMUM = "local optimum: no single move improves the plan"
    COMPLETED = "the method ran to its end"
    MOVE_BUDGET = "the move budget was used up"
    TIME_LIMIT = "the time limit was reached"
    NO_CHOICE = "no unit has a choice of devices"
    DEFAULT_KEPT = "TensorFlow's own placement is kept where pins allow it"
    ABANDONED = "the search was given up: no start came near the best known plan"
    LIMIT_EXCEEDED = "the plan exceeds a memory limit"
    NOT_FOUND = "no plan that meets the memory limits was found"
    PROVED_INFEASIBLE = "proved: no plan meets the memory limits"


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A solver's answer.

    ``objective_ns`` is the value of the objective that was asked for. ``lower_bound_ns`` is a proved bound on it, 0 where the
    solver has none. ``assignment`` is None if the status is INFEASIBLE; if it is UNKNOWN, it is None or exceeds a memory limit.
    """

    assignment: Assignment | None
    status: Status
    objective: Objective
    objective_ns: int
    lower_bound_ns: int
    solver: str
    seconds: float
    stop_reason: StopReason
    stop_detail: str = ""
    """Details of how the search ended; may be empty."""
    chosen_because: str = ""
    """Why the solver `auto` chose this one; empty if it did not choose."""

    @property
    def stop_text(self) -> str:
        """The stop reason and its detail as one sentence."""
        return f"{self.stop_reason}; {self.stop_detail}" if self.stop_detail else str(self.stop_reason)

    @property
    def gap(self) -> float:
        """(objective - bound) / objective, 0 for a zero objective; 1 where there is no bound."""
        return relative_gap(self.objective_ns, self.lower_bound_ns)


@runtime_checkable
class Solver(Protocol):
    """A solver is a value: a frozen dataclass whose fields are its options.

    The same problem, time limit and seed give the same answer.
    """

    @property
    def name(self) -> str: ...

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Why the solver cannot solve this problem, as text; empty if it can."""
        ...

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Searches for an assignment that minimises the objective within the memory limits."""
        ...

    def cite(self) -> str:
        """The source of the algorithm: references, one a line, each with authors, title, year, and a DOI or an address."""
        ...
