"""Branch and bound on memory prices: a unit that the cuts place differently is fixed to one device, then to the other."""

from __future__ import annotations

import heapq
import itertools
import math
from contextlib import suppress

import numpy as np

from placer.common.clock import TimeUpError, limit, now, spend
from placer.problem.arrays import Bools, Floats
from placer.problem.memory import held_by_unit
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment
from placer.solvers.bounds.memory_prices import MAX_CUTS, MemoryPrices
from placer.solvers.primitives.local_search import local_search
from placer.solvers.primitives.repair import repair

LAND = (
    "A. H. Land, A. G. Doig, An automatic method of solving discrete programming problems, Econometrica 28(3), 1960, "
    "doi:10.2307/1910129"
)

MIN_SHARE = 1e-3
"""A unit is decided if the mixture has less than this share of it on one of the devices."""
MAX_PASSES = 3
"""Limit of the passes of local search on a new best assignment."""


def branch_and_bound(root: MemoryPrices, best: Assignment, *, time_limit_s: float) -> tuple[Assignment, int]:
    """The best assignment, and a lower bound on the total cost of all that fit (Land, Doig 1960; Fisher 1981).

    The bound at the best prices is the cost of a mixture of cuts. A unit that the mixture has on both devices is fixed to one and
    to the other, which gives two subproblems; in each, the ascent of the prices continues. Subproblems with a bound below the
    best cost stay open, and the one with the lowest bound is divided next.

    Args:
        root: the prices of a problem on two devices.
        best: an assignment that fits.
        time_limit_s: in seconds.
    """
    ends, problem = now() + time_limit_s, root.problem
    root.ascend(MAX_CUTS, ends)
    least = total_cost_ns(problem, best)
    number = itertools.count()
    open_nodes = [(root.bound_ns, next(number), root)]
    closed = math.inf  # the lowest bound of the subproblems that cannot be divided
    dividing = math.inf  # the bound of the subproblem that is being divided
    with limit(ends - now()), suppress(TimeUpError):
        while open_nodes and open_nodes[0][0] < min(least, closed):
            spend(1)
            bound, _, prices = heapq.heappop(open_nodes)
            unit = _most_divided(prices)
            if unit is None:
                closed = min(closed, bound)
                continue
            dividing = bound
            for device in range(2):
                part = _fixed(prices, unit, device)
                part.ascend(MAX_CUTS, ends, enough_ns=least)
                part.bound_ns = max(bound, part.bound_ns)
                last = part.planes[-1] if part.planes else None
                fitting = repair(problem, last.assignment) if last is not None and last.cost_ns < least else None
                if fitting is not None and total_cost_ns(problem, fitting) < least:
                    best = local_search(problem, fitting, max_passes=MAX_PASSES)
                    least = total_cost_ns(problem, best)
                if part.bound_ns < least:
                    heapq.heappush(open_nodes, (part.bound_ns, next(number), part))
            dividing = math.inf
    return best, int(min(least, closed, dividing, open_nodes[0][0] if open_nodes else math.inf))


def _fixed(prices: MemoryPrices, unit: int, device: int) -> MemoryPrices:
    """The prices of the subproblem with a unit fixed to a device, with the planes of the mixture that have it there."""
    return MemoryPrices(
        prices.problem,
        fixed={**prices.fixed, unit: device},
        moments=list(prices.moments),
        best=prices.best,
        planes=[
            plane
            for weight, plane in zip(prices.weights, prices.planes, strict=False)
            if weight > 0 and plane.assignment.device[unit] == device
        ],
    )


def _most_divided(prices: MemoryPrices) -> int | None:
    """A unit that the mixture has on both devices and that pays most for memory; None if no unit is divided.

    Units that pay the same, as in equal layers, compensate for the fixing of one of them. So units without an equal come first.
    """
    part = prices.mixture()[:, 1]
    open_to = (np.minimum(part, 1 - part) > MIN_SHARE) & (prices.problem.units.allowed.sum(axis=1) > 1)
    open_to[list(prices.fixed)] = False
    if not open_to.any():
        return None
    units = np.flatnonzero(open_to)
    pays = _memory_cost_ns(prices, part, open_to)[units]
    _, alike, size = np.unique(np.rint(pays), return_inverse=True, return_counts=True)
    divided = np.minimum(part, 1 - part)[units]
    unique = size[alike] == 1
    return int(units[np.argmax(divided * pays * np.where(unique.any(), unique, 1))])


def _memory_cost_ns(prices: MemoryPrices, part: Floats, undecided: Bools) -> Floats:
    """[U]: what an undecided unit pays for memory at the best prices, on the device where it pays more, in ns."""
    problem = prices.problem
    total = np.zeros((problem.num_devices, problem.num_units))
    for (device, moment), price in zip(prices.moments, prices.best, strict=True):
        if price > 0:
            assignment = Assignment(np.where(undecided, device, part > 0.5).astype(np.int64))
            held = held_by_unit(problem, assignment, device, moment)
            total[device] += price / max(1, int(problem.devices.memory_limit_bytes[device])) * held
    highest: Floats = total.max(axis=0)
    return highest
