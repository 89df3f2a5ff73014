"""No step is shorter than the work that memory limits leave to the busiest resource."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from placer.problem.arrays import Floats
from placer.problem.parts import Links
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.bounds.lagrangian import CUTS, Prices
from placer.solvers.bounds.step_bound import loads
from placer.solvers.bounds.two_sided_relaxation import merged, sides
from placer.solvers.exact.min_cut import minimum_cut
from placer.solvers.primitives.cp_model import Model
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices

ROUNDS = 5
STEEP = 4.0
"""How fast the weights follow the loads."""
MOMENT_S = 0.01
SCALE = 1024
"""Weighted loads are rounded down to this part of a ns."""
LARGEST = 2_000
"""Units that are decided, up to which the relaxation is solved as a program too."""


def limited_load_ns(simulator: Simulator, *, seconds: float, seed: int = 0) -> int:
    """`least_load_ns` of the assignments that meet the memory limits, plus the least of a call's.

    As there, any weights of the resources that sum up to one give a bound: the least weighted load of what fits. That is a total
    cost without copies, so that what bounds it does: prices of memory, then constraint programming with the limits at the moments
    that have a price. Of more than two devices it is that of the `merged` ones; 0 where kernels do not let them be merged.
    """
    started = time.perf_counter()
    problem = merged(simulator.problem) if simulator.problem.num_devices > 1 else None
    if problem is None:
        return 0
    load = _shared_loads(simulator)
    weight = np.full(load.shape[2], 1 / load.shape[2])
    first = np.unique(problem.ops.unit, return_index=True)[1]
    best = 0
    for k in range(ROUNDS):
        left = seconds - (time.perf_counter() - started)
        if left <= 0:
            break
        weighed = np.zeros_like(problem.ops.time_ns)
        weighed[first] = np.floor(SCALE * (load @ weight) * (1 - 1e-9))
        nothing = np.zeros_like(problem.links.latency_ns)
        relaxation = replace(
            problem,
            ops=replace(problem.ops, time_ns=weighed),
            links=Links(latency_ns=nothing, ns_per_byte=nothing.astype(np.float64)),
        )
        bound, there = _least_cost(relaxation, left / (ROUNDS - k), seed)
        best = max(best, bound // SCALE)
        busy = load[np.arange(len(load)), there.device].sum(axis=0)
        weight = weight * np.exp(STEEP * busy / max(1.0, float(np.max(busy))))
        weight /= weight.sum()
    return simulator.whole_ns(best, simulator.least_call_ns)


def _shared_loads(simulator: Simulator) -> Floats:
    """[U, 2, 4]: `loads` of a unit on either side of the `merged` problem, as if its devices shared them equally.

    The busiest of them has at least that.
    """
    load, allowed, side = loads(simulator), simulator.problem.units.allowed, sides(simulator.problem)
    shared = np.zeros((len(load), 2, 4))
    for k in range(2):
        members = np.flatnonzero(side == k)
        own = np.stack([load[:, d, 2 * d : 2 * d + 2] for d in members], axis=1)
        least = np.where(allowed[:, members, None], own, np.inf).min(axis=1)
        shared[:, k, 2 * k : 2 * k + 2] = np.where(np.isfinite(least), least, 0) / len(members)
    return shared


def _least_cost(problem: PlacementProblem, seconds: float, seed: int) -> tuple[int, Assignment]:
    """A bound on the total cost of what fits, and what comes near to it, fitting or not."""
    started = time.perf_counter()
    reduced = reduce(problem)
    prices = Prices(reduced.problem)
    prices.climb(CUTS, started + seconds / 2)
    bound, near = prices.height_ns, minimum_cut(reduced.problem, rent=prices.rent()).assignment
    if choices(reduced.problem) <= LARGEST:
        model = Model(reduced.problem)
        model.limit(prices.moments)
        _, found, proved = model.minimise(near, max(MOMENT_S, started + seconds - time.perf_counter()), seed)
        bound, near = max(bound, proved), near if found is None else found
    return bound, reduced.invert(near)
