"""The least cost of a pairwise problem: choices merged, memory priced, messages passed, then parts decided anew."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, core
from placer.research.pairwise.descent import Descent
from placer.research.pairwise.memory import Memory
from placer.research.pairwise.messages import Messages
from placer.research.pairwise.prices import Prices
from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem, pairwise_cost, peak_usage
from placer.research.pairwise.solution import PairwiseSolution
from placer.research.pairwise.window import around, decide_anew, something_that_fits
from placer.solvers.base import Status
from placer.solvers.sources import BARAHONA, KOLMOGOROV, PERRON, SHAW, lines

PRICED = 0.7
"""Of the time, at most, for prices, if anything that fits was found by then."""
EVERY = 40
"""Rounds of prices of which the most promising values are made to fit and improved."""
NEAR = 1.25
"""Values that fit and cost more than so many times the best are not improved."""
WINDOW, SMALLEST = 20, 4
"""Variables of the first window, and of the smallest."""
WINDOW_S = 2.0
"""For one, at most."""
SPARE = 0.03
"""Of the time, for what ends late and for the answer."""


def minimise_pairwise(problem: PairwiseProblem, *, time_limit_s: float = 60.0, seed: int = 0) -> PairwiseSolution:
    """Searches until the bound is met or the time is over.

    What follows from other choices is merged (`core`). At prices of memory over time, the rest is bounded by tree-reweighted
    messages; prices climb by the volume algorithm. Values met on the way are made to fit and improved; then windows of the best
    are decided anew by constraint programming.
    """
    started = time.perf_counter()
    merged = core(problem)
    if merged is None:
        return _nothing(Status.INFEASIBLE, 0, started, "costs forbid every choice")
    if (merged.room < 0).any():
        over = -int(merged.room.min())
        return _nothing(Status.INFEASIBLE, 0, started, f"what is in use in any case misses the limit by {over}")
    search = _Search(merged)
    if len(merged.cost):
        if not search.start(PRICED * time_limit_s, seed):
            return _nothing(Status.INFEASIBLE, 0, started, "no choices fit at all times")
        search.price(started, (1 - SPARE) * time_limit_s)
        search.decide_windows(started + (1 - SPARE) * time_limit_s, seed)
    proved = search.cost <= search.bound
    bound = max(0, search.bound)
    if search.best is None:
        return _nothing(Status.UNKNOWN, bound, started, "nothing that fits was found in the time")
    choice = merged.choices(search.best)
    cost = pairwise_cost(problem, choice)
    if cost >= FORBIDDEN and proved:
        return _nothing(Status.INFEASIBLE, 0, started, "costs forbid all choices that fit")
    if cost >= FORBIDDEN or peak_usage(problem, choice) > problem.usage_limit:
        return _nothing(Status.UNKNOWN, bound, started, "nothing that is allowed was found in the time")
    return PairwiseSolution(
        choice,
        Status.OPTIMAL if proved else Status.FEASIBLE,
        cost,
        min(bound, cost),
        time.perf_counter() - started,
        "optimal" if proved else "time limit",
    )


def cite() -> str:
    """The sources of the algorithm, one a line."""
    return lines(KOLMOGOROV, BARAHONA, SHAW, PERRON)


def _nothing(status: Status, bound: int, started: float, why: str) -> PairwiseSolution:
    return PairwiseSolution(None, status, 0, bound, time.perf_counter() - started, why)


class _Search:
    """The best values that fit, and the best bound."""

    def __init__(self, merged: Core) -> None:
        self.core = merged
        self.memory = Memory(merged)
        self.best: Ints | None = None
        self.cost = math.inf
        self.bound = merged.constant
        self.least = np.zeros(len(merged.value_cost))
        """[C]: a lower bound on the cost with this value."""
        self._take(np.zeros(len(merged.cost), np.int64))

    def start(self, seconds: float, seed: int) -> bool:
        """From what holds least, and if that cannot be made to fit from anything that does; False if nothing does, proved."""
        self._improve(self._smallest(), np.zeros(len(self.core.room)))
        if self.best is None:
            found, proved = something_that_fits(self.memory, seconds=seconds, seed=seed)
            if found is None:
                return not proved
            self._improve(found, np.zeros(len(self.core.room)))
        return True

    def _take(self, values: Ints) -> None:
        """Values that fit, where they are the cheapest."""
        if (cost := self.core.total(values)) < self.cost and (self.memory.held(values) <= self.core.room).all():
            self.best, self.cost = values.copy(), cost

    def price(self, started: float, seconds: float) -> None:
        """Until prices settle, and on until something fits."""
        merged, memory = self.core, self.memory
        messages, prices = Messages(merged), Prices(len(merged.room))
        rounds, promising, merit = 0, np.zeros(0, np.int64), math.inf
        while self.cost > self.bound:
            cost = merged.value_cost + memory.rent(prices.price)
            forth, values = messages.sweep(cost, forward=True)
            back, _ = messages.sweep(cost, forward=False)
            excess = memory.held(values) - merged.room
            income = float(prices.price @ merged.room)
            bound = max(forth, back) + merged.constant - income
            # Costs are integers; sums of floats may be a little off.
            self.bound = max(self.bound, math.ceil(bound - 1e-9 * (abs(bound) + income) - 1e-3))
            if not (excess > 0).any():
                self._take(values)
            rounds += 1
            if (cost_and_rent := merged.total(values) + float(prices.price @ np.maximum(0, excess))) < merit:
                promising, merit = values, cost_and_rent
            if rounds % EVERY == 0:
                self._improve(promising, prices.price)
                merit = math.inf
            spent = time.perf_counter() - started
            if spent >= seconds or (self.best is not None and (spent >= PRICED * seconds or prices.settled)):
                break
            prices.learn(bound, excess.astype(np.float64), self.cost if self.best is not None else 2 * abs(bound))

        income = float(prices.best @ merged.room)
        least = messages.least(merged.value_cost + memory.rent(prices.best)) + merged.constant - income
        self.least = least - 1e-9 * (np.abs(least) + income) - 1e-3

    def _smallest(self) -> Ints:
        """Of each variable the value that holds the least over all moments."""
        area = self.memory.rent(np.ones(len(self.core.room)))
        return np.array([int(area[a:b].argmin()) for a, b in pairwise(self.core.start.tolist())], np.int64)

    def _improve(self, values: Ints, price: Floats) -> None:
        descent = Descent(self.core, self.memory, values)
        if descent.fit(price) and self.core.total(descent.values) < NEAR * self.cost:
            descent.improve()
            self._take(descent.values)

    def decide_windows(self, ends: float, seed: int) -> None:
        """Larger windows while they are decided in time, smaller ones where they are not; until all variables are one.

        Values with which nothing is cheaper, by the bound, are left out.
        """
        if self.best is None:
            return
        rng = np.random.default_rng(seed)
        descent = Descent(self.core, self.memory, self.best)
        first, size = self.core.start[:-1], float(WINDOW)
        while self.cost > self.bound and time.perf_counter() < ends:
            allowed = self.least <= self.cost - 1
            other = allowed.copy()
            other[first + self.best] = False
            open_ = np.logical_or.reduceat(other, first)
            free = around(descent, open_, round(size), rng) if open_.any() else []
            until = min(ends, time.perf_counter() + WINDOW_S)
            decided = not free or decide_anew(descent, self.memory, free, allowed, ends=until, seed=seed)
            self._take(descent.values)
            if decided and len(free) == open_.sum():
                self.bound = math.ceil(self.cost)
            size = max(SMALLEST, size * (1.01 if decided else 0.8))
