"""The two placements everyone tries first: everything on the CPU, everything on the GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, overfull
from placer.solvers.base import Objective, Solution


def all_on(problem: PlacementProblem, kind: str) -> Assignment:
    """Each unit on the first device of `kind` that it may use, otherwise on the first CPU, otherwise on the first of any kind."""
    order = sorted(range(problem.devices), key=lambda d: (problem.device_kinds[d] != kind, problem.device_kinds[d] != "CPU", d))
    return Assignment(np.array(order)[problem.unit_allowed[:, order].argmax(axis=1)])


@dataclass(frozen=True, slots=True)
class AllOn:
    """Everything on the first device of one kind, as far as it can be there. Knows no memory limits."""

    kind: str

    @property
    def name(self) -> str:
        """Such as "all_cpu"."""
        return f"all_{self.kind.lower()}"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Only what exceeds a memory limit so placed."""
        return overfull(problem, all_on(problem, self.kind))

    def solve(
        self,
        problem: PlacementProblem,
        objective: Objective,
        *,
        time_limit_s: float = 10.0,
        seed: int = 0,
    ) -> Solution:
        """There is nothing to search."""
        started = time.perf_counter()
        assignment = all_on(problem, self.kind)
        elsewhere = int((np.array(problem.device_kinds)[assignment.device] != self.kind).sum())
        reason = f"by rule; {elsewhere} of {problem.units} units cannot be on a {self.kind}" if elsewhere else "by rule"
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_reason=reason)

    def cite(self) -> str:
        """A rule, no algorithm."""
        return "A rule: the first device of one kind wherever a kernel allows."


all_cpu = partial(AllOn, "CPU")
all_gpu = partial(AllOn, "GPU")
