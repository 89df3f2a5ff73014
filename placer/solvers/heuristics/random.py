"""Random devices: the baseline that a heuristic must beat."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import RandomHeuristic
from placer.solvers.primitives.filling import in_order
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.sources import own_work


def random_assignment(problem: PlacementProblem, rng: np.random.Generator) -> Assignment:
    """Draws a device for each unit, each allowed one with equal chance, until the memory limits hold with it.

    A unit that fits on no allowed device keeps the first draw. Time: N D, plus that of `IncrementalMemory`.
    """
    memory = IncrementalMemory(problem)
    weight = np.where(problem.units.allowed, rng.random(problem.units.allowed.shape), -1)
    ranked = np.argsort(-weight, axis=1).tolist()
    count = problem.units.allowed.sum(axis=1).tolist()
    device = np.zeros(problem.num_units, np.int64)
    for unit in in_order(problem):
        choices = ranked[unit][: count[unit]]
        device[unit] = next((d for d in choices if memory.move_if_fits(unit, d)), choices[0])
        memory.move(unit, int(device[unit]))
    return Assignment(device)


def solver() -> RandomHeuristic:
    """Random placement. It may exceed memory limits: units are placed in order and never moved again."""
    return RandomHeuristic("random", random_assignment, own_work("any allowed device with equal chance"))
