"""Random devices: what a heuristic must beat."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution
from placer.solvers.primitives.filling import in_order
from placer.solvers.primitives.incremental_memory import Room
from placer.solvers.sources import here


def random_assignment(problem: PlacementProblem, rng: np.random.Generator) -> Assignment:
    """Each unit on any device it may use with equal chance; what has no room there goes to another drawn for it, if one has."""
    room = Room(problem)
    weight = np.where(problem.units.allowed, rng.random(problem.units.allowed.shape), -1)
    ranked = np.argsort(-weight, axis=1).tolist()
    count = problem.units.allowed.sum(axis=1).tolist()
    device = np.zeros(problem.num_units, np.int64)
    for unit in in_order(problem):
        choices = ranked[unit][: count[unit]]
        device[unit] = next((d for d in choices if room.take(unit, d)), choices[0])
        room.move(unit, int(device[unit]))
    return Assignment(device)


@dataclass(frozen=True, slots=True)
class RandomPlacement:
    """One random placement by the seed. Memory limits are met as far as units in their order leave each other room."""

    name: str = "random"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """It takes everything; whether a limit is missed depends on the seed."""
        return ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """There is nothing to search."""
        started = time.perf_counter()
        assignment = random_assignment(problem, np.random.default_rng(seed))
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_detail="a random draw")

    def cite(self) -> str:
        """A rule, no algorithm."""
        return here("any allowed device with equal chance")
