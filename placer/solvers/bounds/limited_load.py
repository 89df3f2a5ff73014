"""A lower bound on the step time under memory limits: the least load of the busiest resource."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from placer.common.clock import TimeUpError, limit, now, remaining_s
from placer.problem.arrays import Floats
from placer.problem.parts import Links
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.bounds.memory_prices import MAX_CUTS, MemoryPrices
from placer.solvers.bounds.step_bound import loads
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.two_sided_relaxation import sides, two_sided_relaxation
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices

WEIGHT_UPDATES = 5
"""Number of updates of the multiplicative weights."""
LEARNING_RATE = 4.0
"""Exponent of the multiplicative weights: how fast they follow the loads."""
SCALE = 1024
"""Weighted loads are rounded down to 1/`SCALE` ns."""
MAX_UNITS = 2_000
"""Up to this number of units to decide, the relaxation is also solved by constraint programming."""


def limited_load_ns(simulator: Simulator, *, seconds: float) -> int:
    """A lower bound on the step time of the assignments that meet the memory limits, in ns.

    As in `least_load_ns`, any weights of the resources with sum 1 give a bound: the least weighted load of an assignment that
    fits. A weighted load is a total cost without copies, so bounds on the total cost apply: memory prices, then constraint
    programming with the limits at the moments that have a price. More than two devices are replaced by the two of
    `two_sided_relaxation`; the bound is 0 if there is no such relaxation.

    Args:
        seconds: the time limit.
    """
    best = 0
    with limit(seconds), suppress(TimeUpError):
        for load_ns in _load_bounds_ns(simulator):
            best = max(best, load_ns)
    return simulator.whole_ns(best, simulator.least_call_ns)


def _load_bounds_ns(simulator: Simulator) -> Iterator[int]:
    """Yields bounds on the least load of the busiest resource, in ns, for weights that follow the loads."""
    problem = two_sided_relaxation(simulator.problem) if simulator.problem.num_devices > 1 else None
    if problem is None:
        return
    load = _shared_loads(simulator)
    weight = np.full(load.shape[2], 1 / load.shape[2])
    first = np.unique(problem.ops.unit, return_index=True)[1]
    for k in range(WEIGHT_UPDATES):
        weighted = np.zeros_like(problem.ops.time_ns)
        weighted[first] = np.floor(SCALE * (load @ weight) * (1 - 1e-9))
        free = np.zeros_like(problem.links.latency_ns)
        relaxation = replace(
            problem,
            ops=replace(problem.ops, time_ns=weighted),
            links=Links(latency_ns=free, ns_per_byte=free.astype(np.float64)),
        )
        bound, assignment = _least_cost(relaxation, remaining_s() / (WEIGHT_UPDATES - k))
        yield bound // SCALE
        busy = load[np.arange(len(load)), assignment.device].sum(axis=0)
        weight = weight * np.exp(LEARNING_RATE * busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()


def _shared_loads(simulator: Simulator) -> Floats:
    """[U, 2, 4]: for each unit and side of the relaxation, the least of its `loads` on the side's devices, in ns.

    It is divided by the number of these devices: the busiest of them has at least the sum over the units on that side.
    """
    load, allowed, side = loads(simulator), simulator.problem.units.allowed, sides(simulator.problem)
    shared = np.zeros((len(load), 2, 4))
    for k in range(2):
        members = np.flatnonzero(side == k)
        own = np.stack([load[:, d, 2 * d : 2 * d + 2] for d in members], axis=1)
        least = np.where(allowed[:, members, None], own, np.inf).min(axis=1)
        shared[:, k, 2 * k : 2 * k + 2] = np.where(np.isfinite(least), least, 0) / len(members)
    return shared


def _least_cost(problem: PlacementProblem, seconds: float) -> tuple[int, Assignment]:
    """A bound on the total cost of assignments that fit, in ns, and an assignment near it, which may exceed limits."""
    started = now()
    reduced = reduce(problem)
    prices = MemoryPrices(reduced.problem)
    prices.ascend(MAX_CUTS, started + seconds / 2)
    bound, assignment = prices.bound_ns, minimum_cut(reduced.problem, memory_price=prices.per_byte()).assignment
    if choices(reduced.problem) <= MAX_UNITS:
        model = Model(reduced.problem)
        model.limit(prices.moments)
        _, candidate, proved = model.minimise(assignment, max(0.0, started + seconds - now()), seed=0)
        bound, assignment = max(bound, proved), assignment if candidate is None else candidate
    return bound, reduced.invert(assignment)
