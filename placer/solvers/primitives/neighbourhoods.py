"""Large-neighbourhood search: parts of an assignment are decided anew, by constraint programming, with the rest as it is."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from placer.problem.arrays import Bools
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.bounds.lagrangian import Relaxed
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.repair import fit
from placer.solvers.reductions.reduce import reduce

ROUNDS = 8
LARGEST = 400
"""Units in a neighbourhood."""
TIGHTENINGS = 4


def improved(problem: PlacementProblem, best: Assignment, relaxed: Relaxed, *, seconds: float, seed: int) -> Assignment:
    """A cheaper assignment that fits, or `best`, which must fit (Shaw 1998).

    What is decided anew is, in turn, what another good assignment has elsewhere, and what lies around a unit at a border.
    """
    others = [other for other in relaxed.found if other.device.tobytes() != best.device.tobytes()]
    ends, rng = time.perf_counter() + seconds, np.random.default_rng(seed)
    several = problem.units.allowed.sum(axis=1) > 1
    for k in range(ROUNDS):
        left = ends - time.perf_counter()
        if left <= 0 or not several.any():
            break
        other = others[k // 2 % len(others)] if others and k % 2 == 0 else None
        free = several & (_around(problem, best, rng) if other is None else other.device != best.device)
        if free.any():
            best = _decided_anew(problem, best, free, relaxed.moments, min(left, seconds / ROUNDS), seed)
    return best


def _around(problem: PlacementProblem, assignment: Assignment, rng: np.random.Generator) -> Bools:
    """[U]: at most `LARGEST` units, neighbours of neighbours of one whose copies cross."""
    maker, user = crossings_of(problem).unit[crossings_of(problem).user_crossing], crossings_of(problem).user
    near = np.zeros(problem.num_units, np.bool_)
    crossing = np.flatnonzero(assignment.device[maker] != assignment.device[user])
    near[rng.choice(maker[crossing]) if len(crossing) else rng.integers(problem.num_units)] = True
    while near.sum() < LARGEST:
        more = near.copy()
        more[user[near[maker]]] = more[maker[near[user]]] = True
        added = np.flatnonzero(more & ~near)
        if not len(added):
            break
        near[rng.permutation(added)[: LARGEST - int(near.sum())]] = True
    return near


def _decided_anew(
    problem: PlacementProblem, best: Assignment, free: Bools, moments: Iterable[tuple[int, int]], seconds: float, seed: int
) -> Assignment:
    """The best found with all other units where they are."""
    there = best.device[:, None] == np.arange(problem.num_devices)
    part = reduce(problem.with_allowed(np.where(free[:, None], problem.units.allowed, there)))
    model, hint, least = Model(part.problem), part.forward(best), total_cost_ns(problem, best)
    model.limit(moments)
    for _ in range(TIGHTENINGS):
        _, found, _ = model.minimise(hint, seconds / TIGHTENINGS, seed)
        if found is None or total_cost_ns(part.problem, found) >= least:
            break
        fitting = fit(part.problem, found)
        if fitting is not None and total_cost_ns(part.problem, fitting) < least:
            hint, least = fitting, total_cost_ns(part.problem, fitting)
            best = part.invert(fitting)
        if not excess(part.problem, found).any():
            break
        model.limit_where_exceeded(found)
    return best
