"""Branch and bound on memory prices: units of which cuts disagree are tried on either device."""

from __future__ import annotations

import heapq
import itertools
import math
import time

import numpy as np

from placer.problem.arrays import Bools, Floats
from placer.problem.memory import held_by_unit
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment
from placer.solvers.bounds.lagrangian import CUTS, Prices
from placer.solvers.primitives.local_search import exchange
from placer.solvers.primitives.repair import fit

UNDECIDED = 1e-3
"""Less than this part of a unit on the one device or the other decides it."""
PASSES = 3
"""How often all moves are tried on what is better than the best before."""


def branched(root: Prices, best: Assignment, *, time_limit_s: float) -> tuple[Assignment, int]:
    """The best assignment known and a lower bound on the total cost of all that fit (Land, Doig 1960; Fisher 1981).

    The bound at the best prices is what a mixture of cuts costs. A unit that the mixture has on both devices is fixed to the one
    and to the other, and prices climb on from where they are; what is less than the best known stays open, the least goes first.

    Args:
        root: of a problem on two devices.
        best: one that fits.
    """
    ends, problem = time.perf_counter() + time_limit_s, root.problem
    root.climb(CUTS, ends)
    least = total_cost_ns(problem, best)
    number = itertools.count()
    left = [(root.height_ns, next(number), root)]
    closed = math.inf  # the least bound of what cannot be divided
    while left and left[0][0] < min(least, closed) and time.perf_counter() < ends:
        height, _, prices = heapq.heappop(left)
        unit = _most_divided(prices)
        if unit is None:
            closed = min(closed, height)
            continue
        for device in range(2):
            part = _fixed(prices, unit, device)
            part.climb(CUTS, ends, enough_ns=least)
            part.height_ns = max(height, part.height_ns)
            last = part.planes[-1]
            fitting = fit(problem, last.assignment) if last.cost_ns < least else None
            if fitting is not None and total_cost_ns(problem, fitting) < least:
                best = exchange(problem, fitting, passes=PASSES, time_limit_s=max(0.0, ends - time.perf_counter()))
                least = total_cost_ns(problem, best)
            if part.height_ns < least:
                heapq.heappush(left, (part.height_ns, next(number), part))
    return best, int(min(least, closed, left[0][0] if left else math.inf))


def _fixed(prices: Prices, unit: int, device: int) -> Prices:
    """The same with a unit fixed to a device, before they climb on; of the planes those that hold there and have a part."""
    return Prices(
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


def _most_divided(prices: Prices) -> int | None:
    """A unit that the mixture has on both devices and that pays much for memory; None where there is none.

    What fixing one changes, others that pay the same make good, as in equal layers. So those without their like go first.
    """
    part = prices.mixed()[:, 1]
    open_to = (np.minimum(part, 1 - part) > UNDECIDED) & (prices.problem.units.allowed.sum(axis=1) > 1)
    open_to[list(prices.fixed)] = False
    if not open_to.any():
        return None
    units = np.flatnonzero(open_to)
    pays = _rent_ns(prices, part, open_to)[units]
    _, alike, size = np.unique(np.rint(pays), return_inverse=True, return_counts=True)
    divided = np.minimum(part, 1 - part)[units]
    alone = size[alike] == 1
    return int(units[np.argmax(divided * pays * np.where(alone.any(), alone, 1))])


def _rent_ns(prices: Prices, part: Floats, undecided: Bools) -> Floats:
    """[U]: what a unit pays for memory at the best prices, on the device where that is more, if undecided."""
    problem = prices.problem
    total = np.zeros((problem.num_devices, problem.num_units))
    for (device, moment), price in zip(prices.moments, prices.best, strict=True):
        if price > 0:
            there = Assignment(np.where(undecided, device, part > 0.5).astype(np.int64))
            held = held_by_unit(problem, there, device, moment)
            total[device] += price / max(1, int(problem.devices.memory_limit_bytes[device])) * held
    most: Floats = total.max(axis=0)
    return most
