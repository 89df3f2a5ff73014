"""Applies all reductions in turn, until none changes the problem."""

from __future__ import annotations

from placer.common.clock import spend
from placer.problem.problem import PlacementProblem
from placer.solvers.reductions.dominated import dominated
from placer.solvers.reductions.followers import followers
from placer.solvers.reductions.forced import forced
from placer.solvers.reductions.reduced import Reduced, choices
from placer.solvers.reductions.towers import towers

REDUCTIONS = (forced, dominated, followers, towers)
MAX_ROUNDS = 10
"""Limit of the number of rounds, each of which applies all reductions."""


def reduce(problem: PlacementProblem) -> Reduced:
    """A smaller problem whose optima of the total cost, inverted, are optima of `problem` within its memory limits.

    Ops that share a state or a loop variable are one unit already (`placer.problem.constraints`).
    """
    reduced = Reduced.identity(problem)
    for _ in range(MAX_ROUNDS):
        spend(3 * problem.num_ops * problem.num_devices)
        before = choices(reduced.problem)
        for reduction in REDUCTIONS:
            reduced = reduction(reduced)
        if choices(reduced.problem) == before:
            break
    return reduced
