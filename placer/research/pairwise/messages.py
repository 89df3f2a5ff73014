"""Messages between variables: a lower bound on costs of variables and pairs, without memory, and values that come close to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, ranges

KEPT = 0.5
"""Of what a variable could share, for bounds with one value."""


class Messages:
    """Sequential tree-reweighted message passing over a `Core`, variables that do not wait for each other side by side.

    Variables are in an order, those with more neighbours first. A sweep goes through it, or back: each variable shares what
    it costs, by its own costs and what it was told, among its neighbours further on, and tells each the least that either
    of its values costs then. Whatever was told before, what is taken off on the way adds up to a lower bound.

    V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, IEEE Transactions on Pattern Analysis and
    Machine Intelligence 28(10), 2006.
    """

    def __init__(self, core: Core) -> None:
        self.values = core.start[-1]
        degree = np.array([len(neighbours) for neighbours in core.table], np.int64)
        level = _levels(core, np.argsort(-degree, kind="stable"))
        variable = np.argsort(level, kind="stable")
        rank = np.argsort(variable)
        size = np.diff(core.start)[variable]
        first = np.append(0, np.cumsum(size))
        self._variable = variable
        self._value = ranges(core.start[variable], size)
        """[values]: numbers of the core's values in the order used here."""

        # Messages are kept by the variable they are told to.
        pairs = [(v, u) for v in range(len(size)) for u in sorted(rank[list(core.table[variable[v]])].tolist())]
        to, by = np.array(pairs, np.int64).reshape(-1, 2).T
        place = {pair: m for m, pair in enumerate(pairs)}
        back = np.array([place[u, v] for v, u in pairs], np.int64)
        starts = np.append(0, np.cumsum(size[to]))
        self._told = np.zeros(starts[-1])
        told_value = ranges(first[to], size[to])
        share = 1.0 / np.maximum(1, np.maximum(*(np.bincount(to[side], minlength=len(size)) for side in (by < to, by > to))))

        bounds = np.searchsorted(level[variable], np.arange(level.max(initial=-1) + 2))
        told = np.searchsorted(to, bounds)
        self._levels = []
        for v0, v1, m0, m1 in zip(bounds[:-1], bounds[1:], told[:-1], told[1:], strict=True):
            here = np.arange(m0, m1)
            self._levels.append(_Level(
                slice(first[v0], first[v1]), slice(v0, v1), first[v0:v1] - first[v0], np.repeat(np.arange(v1 - v0), size[v0:v1]),
                slice(starts[m0], starts[m1]), told_value[starts[m0] : starts[m1]] - first[v0],
                *(
                    _Side.of(core, variable, size, first, starts, told_value, share, to, by, back, here[side], first[v0])
                    for side in (by[here] > to[here], by[here] < to[here])
                ),
            ))  # fmt: skip

    def sweep(self, cost: Floats, *, forward: bool) -> tuple[float, Ints]:
        """A lower bound on the sum of the costs [values] of one value of each variable and of tables, and such values [V].

        Values are chosen on the way: each the best with those chosen before, and by what the variables further on told.
        """
        told, total = self._told, 0.0
        own = cost[self._value]
        chosen = np.zeros(len(self._variable), np.int64)
        for level in self._levels if forward else reversed(self._levels):
            ahead, behind = (level.after, level.before) if forward else (level.before, level.after)
            count = level.values.stop - level.values.start
            belief = own[level.values] + np.bincount(level.told_value, told[level.told], minlength=count)
            known = belief
            if len(behind.other):
                real = behind.columns(chosen) - told[behind.told]
                known = belief + np.bincount(behind.value, real, minlength=count)
            chosen[level.variables] = _first_least(known, level.first, level.of)
            least = np.minimum.reduceat(belief, level.first)
            total += least.sum()
            belief -= least[level.of]
            if len(ahead.other):
                shared = ahead.share * belief[ahead.value] - told[ahead.told]
                message = np.minimum.reduceat(ahead.costs + shared[ahead.gather], ahead.row)
                least = np.minimum.reduceat(message, ahead.message)
                total += least.sum()
                told[ahead.tells] = message - least[ahead.edge]
        values = np.empty_like(chosen)
        values[self._variable] = chosen
        return float(total), values

    def least(self, cost: Floats) -> Floats:
        """[values]: a lower bound on the sum of costs where its variable takes this value, whatever the others take.

        In a sweep back, say, the sum over all variables up to one is at least what was told to those before it, plus, with a
        value, what it keeps of that value's cost, plus what a table costs with it above what was told of it. Half is kept.
        """
        return np.maximum(self._least(cost, forward=True), self._least(cost, forward=False))

    def _least(self, cost: Floats, *, forward: bool) -> Floats:
        told, total = self._told, 0.0
        own = cost[self._value]
        above = np.zeros(len(own))
        for level in self._levels if forward else reversed(self._levels):
            ahead = level.after if forward else level.before
            count = level.values.stop - level.values.start
            belief = own[level.values] + np.bincount(level.told_value, told[level.told], minlength=count)
            least = np.minimum.reduceat(belief, level.first)
            total += least.sum()
            belief -= least[level.of]
            above[level.values] = belief
            if len(ahead.other):
                given = KEPT * ahead.share * belief[ahead.value]
                costs = ahead.costs + (given - told[ahead.told])[ahead.gather]
                message = np.minimum.reduceat(costs, ahead.row)
                least = np.minimum.reduceat(message, ahead.message)
                total += least.sum()
                told[ahead.tells] = message - least[ahead.edge]
                more = np.full(len(given), np.inf)
                np.minimum.at(more, ahead.gather, costs - np.repeat(message, np.diff(np.append(ahead.row, len(costs)))))
                above[level.values] += np.bincount(ahead.value, more - given, minlength=count)
        result = np.empty(len(own))
        result[self._value] = total + above
        return result


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The neighbours, before or after it, of the variables of a level: E of them. Values are numbered from the level's first."""

    other: Ints
    """[E]: the neighbour."""
    size: Ints
    """[E]: values of the variable here."""
    told: Ints
    """Positions of what they told, message by message; K in all."""
    value: Ints
    """[K]: the value it was told about."""
    share: Floats
    """[K]"""
    costs: Floats
    """By neighbour, by value of the neighbour, by value here; L in all."""
    table: Ints
    """[E]: where each table begins in `costs`."""
    gather: Ints
    """[L]: positions in [K]."""
    row: Ints
    """Where costs of another value of a neighbour begin."""
    tells: Ints
    """[rows]: positions of what they are told."""
    message: Ints
    """[E]: the first row of each."""
    edge: Ints
    """[rows]: which of the E."""

    @classmethod
    def of(
        cls, core: Core, variable: Ints, size: Ints, first: Ints, starts: Ints, told_value: Ints, share: Floats, to: Ints,
        by: Ints, back: Ints, edges: Ints, offset: int,
    ) -> _Side:  # fmt: skip
        here, other = to[edges], by[edges]
        mine, theirs = size[here], size[other]
        told = ranges(starts[edges], mine)
        pairs = zip(variable[other].tolist(), variable[here].tolist(), strict=True)
        start = np.append(0, np.cumsum(mine))[:-1]
        edge = np.repeat(np.arange(len(edges)), theirs)
        return cls(
            other, mine, told, told_value[told] - offset, np.repeat(share[here], mine),
            np.concatenate([np.zeros(0), *(core.table[u][v].ravel() for u, v in pairs)]),
            np.append(0, np.cumsum(mine * theirs))[:-1], ranges(start[edge], mine[edge]),
            np.append(0, np.cumsum(mine[edge]))[:-1], ranges(starts[back[edges]], theirs),
            np.append(0, np.cumsum(theirs))[:-1], edge,
        )  # fmt: skip

    def columns(self, chosen: Ints) -> Floats:
        """[K]: what each value here costs with what the neighbours chose."""
        return self.costs[ranges(self.table + chosen[self.other] * self.size, self.size)]


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Variables none of which is a neighbour of another."""

    values: slice
    variables: slice
    first: Ints
    """By variable: its first value, from the first of the level."""
    of: Ints
    """By value: its variable, from the first of the level."""
    told: slice
    told_value: Ints
    """By what is told: the value it is about, from the first of the level."""
    after: _Side
    before: _Side


def _levels(core: Core, order: Ints) -> Ints:
    """[V]: how many variables, at most, come one after the other as neighbours before this one."""
    level = np.full(len(order), -1)
    for v in order.tolist():
        level[v] = max((level[u] + 1 for u in core.table[v] if level[u] >= 0), default=0)
    return level


def _first_least(cost: Floats, first: Ints, of: Ints) -> Ints:
    """By variable: its first value of the least cost."""
    least = np.flatnonzero(cost == np.minimum.reduceat(cost, first)[of])
    return least[np.searchsorted(least, first)] - first
