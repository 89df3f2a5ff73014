"""All reductions in turn, until nothing changes."""

from __future__ import annotations

from placer.problem.problem import PlacementProblem
from placer.solvers.reductions.dominated import dominated
from placer.solvers.reductions.followers import followers
from placer.solvers.reductions.forced import forced
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.reductions.towers import towers

REDUCTIONS = (forced, dominated, followers, towers)
ROUNDS = 10


def reduce(problem: PlacementProblem) -> Reduced:
    """A problem whose optima for the total cost are optima of `problem`, under its limits, once expanded.

    What shares a state or a loop variable is one unit already (`placer.problem.constraints`).
    """
    reduced = Reduced.nothing(problem)
    for _ in range(ROUNDS):
        before = choices(reduced.problem)
        for reduction in REDUCTIONS:
            reduced = reduction(reduced)
        if choices(reduced.problem) == before:
            break
    return reduced
