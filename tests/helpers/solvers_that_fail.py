"""Solvers that go wrong in every way, and rules that do not: for other processes, which load them by name."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution, Status, StopReason

OF_TIME = ("time_ns", "compute_ns", "dispatch_ns")
"""The fields of ops that are times."""
TINY = 10
"""Ops up to which they behave: as what is solved first, to load what a solver needs."""


def first_allowed(problem: PlacementProblem) -> Assignment:
    return Assignment(problem.units.allowed.argmax(axis=1))


def drawn(problem: PlacementProblem, rng: np.random.Generator) -> Assignment:
    return Assignment((problem.units.allowed * rng.random(problem.units.allowed.shape)).argmax(axis=1))


def halve_times(problem: PlacementProblem) -> Assignment:
    """The first allowed devices, after a change of the problem that makes them seem twice as fast."""
    object.__setattr__(problem, "ops", replace(problem.ops, **{name: getattr(problem.ops, name) // 2 for name in OF_TIME}))
    vars(problem)["unit_time_ns"] = problem.unit_time_ns // 2
    return first_allowed(problem)


def without_tensorflow(problem: PlacementProblem) -> Assignment:
    assert not {"tensorflow", "keras"} & set(sys.modules)
    return first_allowed(problem)


@dataclass(frozen=True)
class Failing:
    """Does what its name says."""

    name: str
    ran: str = ""
    """A file that gets a line for each run."""

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        return "it never wants to" if self.name == "declines" else ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        started = time.perf_counter()
        device = problem.units.allowed.argmax(axis=1)
        if problem.num_ops <= TINY:
            return Solution(Assignment(device), Status.FEASIBLE, objective, 0, 0, self.name, 0.0, StopReason.COMPLETED)
        if self.ran:
            with Path(self.ran).open("a") as file:
                file.write("ran\n")
        match self.name:
            case "raises":
                raise KeyError("what is missing")
            case "dies":
                os.abort()
            case "exits":
                os._exit(3)
            case "hangs":
                time.sleep(1e6)
            case "returns nothing":
                return None  # type: ignore[return-value]
            case "leaves the devices":
                device = device + problem.num_devices
            case "writes into the problem":
                halve_times(problem)
            case "overfills":
                device = np.where(problem.units.allowed[:, -1], problem.num_devices - 1, device)
        bound = 1 << 50 if self.name == "claims a bound" else 0
        value = 1 if self.name in {"claims less", "leaves the devices"} else 0
        if not value:
            value = answer(problem, objective, Assignment(device), solver="", started=started).objective_ns
        detail = f"seed {seed}"
        return Solution(
            Assignment(device), Status.FEASIBLE, objective, value, bound, self.name, 0.0, StopReason.COMPLETED, detail
        )

    def cite(self) -> str:
        return "nowhere"
