"""Minimises the cost of a pairwise problem: reduction, memory prices, message passing, then large-neighbourhood search."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, core
from placer.research.pairwise.local_search import LocalSearch
from placer.research.pairwise.memory import Memory
from placer.research.pairwise.messages import Messages
from placer.research.pairwise.prices import Prices
from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem, pairwise_cost, peak_usage
from placer.research.pairwise.solution import PairwiseSolution
from placer.research.pairwise.window import any_that_fit, decide_anew, window
from placer.solvers.base import Status
from placer.solvers.primitives.cp_model import PERRON
from placer.solvers.primitives.neighbourhoods import SHAW
from placer.solvers.sources import references

KOLMOGOROV = (
    "V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, IEEE Transactions on Pattern Analysis "
    "and Machine Intelligence 28(10), 2006, doi:10.1109/TPAMI.2006.200"
)
LEMPITSKY = (
    "V. Lempitsky, C. Rother, S. Roth, A. Blake, Fusion moves for Markov random field optimization, IEEE Transactions on Pattern "
    "Analysis and Machine Intelligence 32(8), 2010, doi:10.1109/TPAMI.2009.143"
)
BARAHONA = (
    "F. Barahona, R. Anbil, The volume algorithm: producing primal solutions with a subgradient method, Mathematical Programming "
    "87(3), 2000, doi:10.1007/s101070050002"
)

PRICING_SHARE = 0.7
"""The share of the time after which prices end, if some values fit by then."""
IMPROVE_ROUNDS = 40
"""After so many rounds of prices, the most promising values of these rounds are repaired and improved."""
FUSED_SHARES = tuple(share / 20 for share in range(19, 0, -1))
"""Shares of the prices at which further values are made, which use more memory and cost less."""
FUSED_SWEEPS = 20
"""Sweeps of messages for each share."""
FUSE_LIMIT_S = 5.0
"""Time limit for one combination of values."""
MAX_COST_RATIO = 1.25
"""Values that fit are improved if they cost at most this many times the best."""
FIRST_WINDOW, MIN_WINDOW = 20, 4
"""Number of variables of the first window, and the least number."""
WINDOW_LIMIT_S = 2.0
"""Time limit for one window."""
RESERVED_SHARE = 0.03
"""The share of the time that is kept for steps that end late and for the answer."""


def minimise_pairwise(problem: PairwiseProblem, *, time_limit_s: float = 60.0, seed: int = 0) -> PairwiseSolution:
    """Searches for the choices of the least cost until the bound proves them or the time is over.

    1. The problem is reduced to its `core`.
    2. The memory limit becomes memory prices, one for each moment. At given prices, tree-reweighted messages give a lower bound
       and values; the volume algorithm raises the prices. Values on the way are repaired until they fit, and improved by local
       search.
    3. At lower prices, values cost less and use too much memory. They are fused with the best: each variable keeps its value or
       takes the other one, by constraint programming. Where the two differ in many places, the memory limit allows some of them.
    4. Large-neighbourhood search decides windows of variables anew by constraint programming.
    """
    started = time.perf_counter()
    reduced = core(problem)
    if reduced is None:
        return _unsolved(Status.INFEASIBLE, 0, started, "costs forbid all choices")
    if (reduced.room < 0).any():
        over = -int(reduced.room.min())
        return _unsolved(Status.INFEASIBLE, 0, started, f"the memory that any choices use exceeds the limit by {over}")
    search = _Search(reduced)
    if len(reduced.cost):
        if not search.start(PRICING_SHARE * time_limit_s, seed):
            return _unsolved(Status.INFEASIBLE, 0, started, "no choices fit in memory")
        messages, price = search.price(started, (1 - RESERVED_SHARE) * time_limit_s)
        search.fuse_at_lower_prices(messages, price, started + (1 - RESERVED_SHARE) * time_limit_s, seed)
        search.decide_windows(started + (1 - RESERVED_SHARE) * time_limit_s, seed)
    proved = search.cost <= search.bound
    bound = max(0, search.bound)
    if search.best is None:
        return _unsolved(Status.UNKNOWN, bound, started, "time limit, without choices that fit")
    choice = reduced.choices(search.best)
    cost = pairwise_cost(problem, choice)
    if cost >= FORBIDDEN and proved:
        return _unsolved(Status.INFEASIBLE, 0, started, "costs forbid all choices that fit")
    if cost >= FORBIDDEN or peak_usage(problem, choice) > problem.usage_limit:
        return _unsolved(Status.UNKNOWN, bound, started, "time limit, without choices that are allowed")
    return PairwiseSolution(
        choice,
        Status.OPTIMAL if proved else Status.FEASIBLE,
        cost,
        min(bound, cost),
        time.perf_counter() - started,
        "optimal" if proved else "time limit",
    )


def cite() -> str:
    """The sources of the algorithm, one on each line."""
    return references(KOLMOGOROV, BARAHONA, LEMPITSKY, SHAW, PERRON)


def _unsolved(status: Status, bound: int, started: float, why: str) -> PairwiseSolution:
    return PairwiseSolution(None, status, 0, bound, time.perf_counter() - started, why)


class _Search:
    """The best values that fit, and the best bound."""

    def __init__(self, reduced: Core) -> None:
        self.core = reduced
        self.memory = Memory(reduced)
        self.best: Ints | None = None
        self.cost = math.inf
        self.bound = reduced.constant
        self.value_bound = np.zeros(len(reduced.value_cost))
        """[C]: a lower bound on the total cost if the variable has this value."""
        self._take(np.zeros(len(reduced.cost), np.int64))

    def start(self, seconds: float, seed: int) -> bool:
        """Finds first values that fit, by repair or by constraint programming. False if it is proven that no values fit."""
        self._improve(self._smallest(), np.zeros(len(self.core.room)))
        if self.best is None:
            values, proven = any_that_fit(self.memory, seconds=seconds, seed=seed)
            if values is None:
                return not proven
            self._improve(values, np.zeros(len(self.core.room)))
        return True

    def _take(self, values: Ints) -> None:
        """Keeps values as the best if they fit and are cheaper."""
        if (cost := self.core.total(values)) < self.cost and (self.memory.held(values) <= self.core.room).all():
            self.best, self.cost = values.copy(), cost

    def price(self, started: float, seconds: float) -> tuple[Messages, Floats]:
        """Raises the bound by memory prices, until the prices settle and some values fit, or the time is over.

        Returns:
            The messages, and the best prices.
        """
        reduced, memory = self.core, self.memory
        messages, prices = Messages(reduced), Prices(len(reduced.room))
        rounds, promising, least_priced = 0, np.zeros(0, np.int64), math.inf
        while self.cost > self.bound:
            cost = reduced.value_cost + memory.cost_at(prices.price)
            forth, values = messages.sweep(cost, forward=True)
            back, _ = messages.sweep(cost, forward=False)
            excess = memory.held(values) - reduced.room
            income = float(prices.price @ reduced.room)
            bound = max(forth, back) + reduced.constant - income
            # Costs are integers. The tolerance allows for rounding in sums of floats.
            self.bound = max(self.bound, math.ceil(bound - 1e-9 * (abs(bound) + income) - 1e-3))
            if not (excess > 0).any():
                self._take(values)
            rounds += 1
            if (priced := reduced.total(values) + float(prices.price @ np.maximum(0, excess))) < least_priced:
                promising, least_priced = values, priced
            if rounds % IMPROVE_ROUNDS == 0:
                self._improve(promising, prices.price)
                least_priced = math.inf
            spent = time.perf_counter() - started
            if spent >= seconds or (self.best is not None and (spent >= PRICING_SHARE * seconds or prices.settled)):
                break
            prices.learn(bound, excess.astype(np.float64), self.cost if self.best is not None else 2 * abs(bound))

        income = float(prices.best @ reduced.room)
        least = messages.least(reduced.value_cost + memory.cost_at(prices.best)) + reduced.constant - income
        self.value_bound = least - 1e-9 * (np.abs(least) + income) - 1e-3
        return messages, prices.best

    def fuse_at_lower_prices(self, messages: Messages, price: Floats, deadline: float, seed: int) -> None:
        """Makes values at shares of the prices, and fuses each with the best."""
        for share in FUSED_SHARES:
            cost = self.core.value_cost + self.memory.cost_at(share * price)
            for k in range(FUSED_SWEEPS):
                if self.best is None or self.cost <= self.bound or time.perf_counter() >= deadline:
                    return
                _, values = messages.sweep(cost, forward=k % 2 == 0)
            self._fuse(values, min(deadline, time.perf_counter() + FUSE_LIMIT_S), seed)

    def _fuse(self, values: Ints, deadline: float, seed: int) -> None:
        """Takes the cheapest choice for each variable between its best and its other value that fits.

        V. Lempitsky, C. Rother, S. Roth, A. Blake, Fusion moves for Markov random field optimization, IEEE Transactions on
        Pattern Analysis and Machine Intelligence 32(8), 2010.
        """
        assert self.best is not None
        allowed = np.zeros(len(self.core.value_cost), np.bool_)
        allowed[self.core.start[:-1] + values] = True
        search = LocalSearch(self.core, self.memory, self.best)
        free = np.flatnonzero(values != self.best).tolist()
        if free:
            decide_anew(search, self.memory, free, allowed, deadline=deadline, seed=seed)
            self._take(search.values)

    def _smallest(self) -> Ints:
        """[V]: the value of each variable that uses the least memory, summed over all moments."""
        area = self.memory.cost_at(np.ones(len(self.core.room)))
        return np.array([int(area[a:b].argmin()) for a, b in pairwise(self.core.start.tolist())], np.int64)

    def _improve(self, values: Ints, price: Floats) -> None:
        """Repairs values until they fit and improves them by local search."""
        search = LocalSearch(self.core, self.memory, values)
        if search.repair(price) and self.core.total(search.values) < MAX_COST_RATIO * self.cost:
            search.improve()
            self._take(search.values)

    def decide_windows(self, deadline: float, seed: int) -> None:
        """Large-neighbourhood search: windows grow while they are solved in time, and shrink if they are not.

        Values that the bound excludes from any cheaper answer are left out. A solved window of all variables is a proof.
        """
        if self.best is None:
            return
        rng = np.random.default_rng(seed)
        search = LocalSearch(self.core, self.memory, self.best)
        first, size = self.core.start[:-1], float(FIRST_WINDOW)
        while self.cost > self.bound and time.perf_counter() < deadline:
            allowed = self.value_bound <= self.cost - 1
            alternatives = allowed.copy()
            alternatives[first + self.best] = False
            undecided = np.logical_or.reduceat(alternatives, first)
            free = window(search, undecided, round(size), rng) if undecided.any() else []
            window_deadline = min(deadline, time.perf_counter() + WINDOW_LIMIT_S)
            solved = not free or decide_anew(search, self.memory, free, allowed, deadline=window_deadline, seed=seed)
            self._take(search.values)
            if solved and len(free) == undecided.sum():
                self.bound = math.ceil(self.cost)
            size = max(MIN_WINDOW, size * (1.01 if solved else 0.8))
