"""Large neighbourhood search: constraint programming optimises part of the units while the others stay."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

import numpy as np

from placer.common.clock import TimeUpError, limit, now
from placer.problem.arrays import Bools
from placer.problem.crossings import crossings_of
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.repair import repair
from placer.solvers.reductions.reduce import reduce

SHAW = (
    "P. Shaw, Using constraint programming and local search methods to solve vehicle routing problems, 4th International "
    "Conference on Principles and Practice of Constraint Programming (CP), 1998, doi:10.1007/3-540-49481-2_30"
)

MAX_NEIGHBOURHOODS = 8
"""Limit of the number of neighbourhoods that are searched."""
MAX_UNITS = 400
"""Limit of the number of units in a neighbourhood."""
MAX_TIGHTENINGS = 4
"""Limit of the number of solutions of one neighbourhood, each with more memory limits."""


def search_neighbourhoods(
    problem: PlacementProblem,
    best: Assignment,
    assignments: Sequence[Assignment],
    moments: Collection[tuple[int, int]],
    *,
    seconds: float,
    seed: int,
) -> Assignment:
    """Lowers the total cost of an assignment that fits (Shaw 1998); returns the best that fits.

    The neighbourhoods are, in turn, the units that another good assignment has on another device, and the units around one whose
    tensors are copied.

    Args:
        best: an assignment that fits.
        assignments: other good assignments.
        moments: pairs of a device and a moment at which memory is scarce.
        seconds: the time limit.
        seed: of the neighbourhoods and of constraint programming.
    """
    others = [other for other in assignments if other.device.tobytes() != best.device.tobytes()]
    ends, rng = now() + seconds, np.random.default_rng(seed)
    several = problem.units.allowed.sum(axis=1) > 1
    for k in range(MAX_NEIGHBOURHOODS):
        remaining_s = ends - now()
        if remaining_s <= 0 or not several.any():
            break
        other = others[k // 2 % len(others)] if others and k % 2 == 0 else None
        free = several & (_around(problem, best, rng) if other is None else other.device != best.device)
        if free.any():
            with limit(remaining_s), suppress(TimeUpError):
                best = _optimised(problem, best, free, moments, min(remaining_s, seconds / MAX_NEIGHBOURHOODS), seed)
    return best


def _around(problem: PlacementProblem, assignment: Assignment, rng: np.random.Generator) -> Bools:
    """[U]: at most `MAX_UNITS` units around one whose tensors are copied: its neighbours, their neighbours, and so on."""
    maker, user = crossings_of(problem).unit[crossings_of(problem).user_crossing], crossings_of(problem).user
    chosen = np.zeros(problem.num_units, np.bool_)
    crossing = np.flatnonzero(assignment.device[maker] != assignment.device[user])
    chosen[rng.choice(maker[crossing]) if len(crossing) else rng.integers(problem.num_units)] = True
    while chosen.sum() < MAX_UNITS:
        extended = chosen.copy()
        extended[user[chosen[maker]]] = extended[maker[chosen[user]]] = True
        added = np.flatnonzero(extended & ~chosen)
        if not len(added):
            break
        chosen[rng.permutation(added)[: MAX_UNITS - int(chosen.sum())]] = True
    return chosen


def _optimised(
    problem: PlacementProblem, best: Assignment, free: Bools, moments: Collection[tuple[int, int]], seconds: float, seed: int
) -> Assignment:
    """The best assignment that fits and has all units outside the neighbourhood `free` where they are."""
    current = best.device[:, None] == np.arange(problem.num_devices)
    part = reduce(problem.with_allowed(np.where(free[:, None], problem.units.allowed, current)))
    model, hint, least = Model(part.problem), part.forward(best), total_cost_ns(problem, best)
    model.limit(moments)
    for _ in range(MAX_TIGHTENINGS):
        _, candidate, _ = model.minimise(hint, seconds / MAX_TIGHTENINGS, seed)
        if candidate is None or total_cost_ns(part.problem, candidate) >= least:
            break
        fitting = repair(part.problem, candidate)
        if fitting is not None and total_cost_ns(part.problem, fitting) < least:
            hint, least = fitting, total_cost_ns(part.problem, fitting)
            best = part.invert(fitting)
        if not excess(part.problem, candidate).any():
            break
        model.limit_where_exceeded(candidate)
    return best
