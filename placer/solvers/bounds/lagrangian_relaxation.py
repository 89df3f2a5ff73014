"""Lagrangian relaxation of the memory limits: a bound on the total cost, and assignments that fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from placer.common.clock import TimeUpError, limit, now, remaining_s
from placer.problem.arrays import Floats
from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.bounds.memory_prices import MAX_CUTS, MemoryPrices, cheapest_cut
from placer.solvers.primitives.device_subset import DeviceSubset, halved
from placer.solvers.primitives.local_search import local_search
from placer.solvers.primitives.partition import partitions
from placer.solvers.primitives.repair import repair
from placer.solvers.primitives.two_sided_relaxation import two_sided_relaxation

MAX_SCALES = 30
"""Limit of the number of price scales, each of which gives other assignments."""
CUT_OPS, MIN_CUTS = 400_000, 8
"""Effort without a time limit: the ops in all cuts of the ascent, and in those of all price scales; but at least so many cuts."""
DOUBLINGS, HALVINGS = 6, 7
"""Steps of the search for the lowest factor of the prices at which the limits hold."""
MAX_IMPROVED, MAX_PASSES = 3, 20
"""Limits of the number of assignments that are improved by local search, and of its passes."""


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """The result: assignments that meet the limits, and a lower bound on the total cost of every assignment that does."""

    assignments: tuple[Assignment, ...]
    """The cheapest first."""
    bound_ns: int
    prices: MemoryPrices

    @property
    def moments(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a device and a moment that have a price: there memory is scarce."""
        return tuple(self.prices.moments)


def lagrangian_relaxation(
    problem: PlacementProblem, *, time_limit_s: float = math.inf, seed: int = 0, halves: bool = True
) -> Relaxation:
    """Prices memory where its limits bind, which gives a bound, and makes assignments that fit from cuts at such prices.

    The bound is that of `MemoryPrices`. At the best prices, a cut often moves all or none of a set of similar layers, so that no
    cut nearly fills a limit. Therefore the prices are multiplied by price scales, which differ along the step, and raised until
    the cut meets the limits. Each price scale gives another assignment. These are repaired and improved by local search.

    With three or more devices, cuts are alpha-expansions, which give no bound; the two-sided relaxation gives the bound.
    Expansions move single units well but whole layers badly, so partitions over accelerators are repaired and improved as well.

    Args:
        time_limit_s: in seconds; infinite bounds the number of cuts by the number of ops instead.
        seed: of the price scales.
        halves: also make partitions over half of the accelerators, a quarter and so on, which need fewer copies.
    """
    started = now()
    timed = not math.isinf(time_limit_s)
    effort = CUT_OPS // max(1, problem.num_ops)
    cuts = MAX_CUTS if timed else min(MAX_CUTS, max(MIN_CUTS, effort))
    scales = MAX_SCALES if timed else min(MAX_SCALES, max(1, effort // (DOUBLINGS + HALVINGS)))
    passes = MAX_PASSES if timed else min(MAX_PASSES, effort // 20)
    improved = MAX_IMPROVED if timed else min(1, passes)

    prices = MemoryPrices(problem)
    prices.ascend(cuts, started + 0.3 * time_limit_s)
    bound = prices.bound_ns
    if problem.num_devices > 2:
        bound = _least_work_ns(problem)
        if (relaxed := two_sided_relaxation(problem)) is not None:
            relaxed_prices = MemoryPrices(relaxed)
            relaxed_prices.ascend(cuts, started + 0.4 * time_limit_s)
            bound = max(bound, relaxed_prices.bound_ns)

    costs: dict[bytes, tuple[int, Assignment]] = {}

    def offer(fitting: Assignment | None) -> None:
        if fitting is not None:
            costs.setdefault(fitting.device.tobytes(), (total_cost_ns(problem, fitting), fitting))

    def ranked() -> list[Assignment]:
        return [a for _, a in sorted(costs.values(), key=lambda entry: entry[0])]

    with limit(started + time_limit_s - now()), suppress(TimeUpError):
        for price_scale in _price_scales(problem.num_ops, scales if prices.moments else 1, seed):
            with limit(started + 0.7 * time_limit_s - now()):
                candidates = _cuts_at_limits(problem, prices.per_byte(), price_scale)
            for candidate in candidates:
                offer(repair(problem, candidate))
            if now() > started + 0.7 * time_limit_s:
                break
        subsets = [DeviceSubset(problem, np.arange(problem.num_devices)), *(halved(problem) if halves else ())]
        for fitting in _partitions_that_fit(subsets) if prices.moments else ():
            offer(fitting)
        for k, assignment in enumerate(ranked()[:improved]):
            offer(local_search(problem, assignment, max_passes=passes, time_limit_s=remaining_s() / (improved - k)))
    return Relaxation(tuple(ranked()), bound, prices)


def _partitions_that_fit(subsets: list[DeviceSubset]) -> Iterator[Assignment]:
    """Partitions over the accelerators of each subset of the devices, repaired where they exceed a limit."""
    for subset in subsets:
        for reduced, start in partitions(subset.problem):
            coarse = repair(reduced.problem, start)
            fitting = repair(subset.problem, reduced.invert(start)) if coarse is None else reduced.invert(coarse)
            if fitting is not None:
                yield subset.invert(fitting)


def _price_scales(ops: int, count: int, seed: int) -> Iterator[Floats | None]:
    """Factors of prices, each of shape [N]: first None, then rising, falling, high in the middle, low in the middle, then random
    steps.
    """
    at = np.linspace(0, 1, ops)
    regular = [None, 1 + at, 2 - at, 1 + 2 * np.minimum(at, 1 - at), 2 - 2 * np.minimum(at, 1 - at)]
    yield from regular[:count]
    rng = np.random.default_rng(seed)
    for _ in range(count - len(regular)):
        stretches = int(rng.integers(3, 40))
        yield rng.uniform(0.5, 2, stretches)[np.arange(ops) * stretches // max(1, ops)]


def _cuts_at_limits(problem: PlacementProblem, memory_price: Floats, price_scale: Floats | None) -> list[Assignment]:
    """The cut at the lowest multiple of the prices at which all limits hold, and the one at the next lower multiple tried."""
    low, high = 0.0, None
    under = over = None
    factor = 1.0
    for _ in range(DOUBLINGS + HALVINGS if memory_price.any() else 1):
        try:
            cut = cheapest_cut(problem, factor * memory_price, price_scale).assignment
        except TimeUpError:
            break
        if not excess(problem, cut).any():
            high, under = factor, cut
        else:
            low, over = factor, cut
        if high is None:
            factor *= 2
        elif low == 0.0:
            factor /= 2
        else:
            factor = math.sqrt(low * high)
    return [cut for cut in (under, over) if cut is not None]


def _least_work_ns(problem: PlacementProblem) -> int:
    """The total cost if each unit were on its fastest device and copies were free."""
    return int(np.where(problem.units.allowed, problem.unit_time_ns, np.iinfo(np.int64).max).min(axis=1).sum())
