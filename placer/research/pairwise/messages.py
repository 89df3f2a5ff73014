"""Tree-reweighted message passing: a lower bound on the cost without the memory limit, and values that come close to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, ranges

SHARED_FRACTION = 0.5
"""The fraction of its cost that a variable passes on where a bound for each of its values is computed."""


class Messages:
    """Sequential tree-reweighted message passing over a `Core`; independent variables are handled together.

    The variables are in an order, those with more neighbours first. A sweep goes through the order forward or backward. A
    variable adds the messages it got to its own costs and splits the sum among its neighbours further on. The message to a
    neighbour has the least cost for each of the neighbour's values. The minima that are subtracted on the way add up to a lower
    bound, whatever the messages were before.

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
        """[C]: the core's values in the order of this class."""

        # Messages are stored by the variable that gets them.
        pairs = [(v, u) for v in range(len(size)) for u in sorted(rank[list(core.table[variable[v]])].tolist())]
        to, by = np.array(pairs, np.int64).reshape(-1, 2).T
        place = {pair: m for m, pair in enumerate(pairs)}
        back = np.array([place[u, v] for v, u in pairs], np.int64)
        starts = np.append(0, np.cumsum(size[to]))
        self._messages = np.zeros(starts[-1])
        message_value = ranges(first[to], size[to])
        share = 1.0 / np.maximum(1, np.maximum(*(np.bincount(to[side], minlength=len(size)) for side in (by < to, by > to))))

        bounds = np.searchsorted(level[variable], np.arange(level.max(initial=-1) + 2))
        message_bounds = np.searchsorted(to, bounds)
        self._levels = []
        for v0, v1, m0, m1 in zip(bounds[:-1], bounds[1:], message_bounds[:-1], message_bounds[1:], strict=True):
            here = np.arange(m0, m1)
            self._levels.append(_Level(
                slice(first[v0], first[v1]), slice(v0, v1), first[v0:v1] - first[v0], np.repeat(np.arange(v1 - v0), size[v0:v1]),
                slice(starts[m0], starts[m1]), message_value[starts[m0] : starts[m1]] - first[v0],
                *(
                    _Side.of(core, variable, size, starts, message_value, share, to, by, back, here[side], first[v0])
                    for side in (by[here] > to[here], by[here] < to[here])
                ),
            ))  # fmt: skip

    def sweep(self, cost: Floats, *, forward: bool) -> tuple[float, Ints]:
        """A lower bound on the cost, and values [V] that are chosen on the way.

        The value of a variable is the best one, given the values chosen before and the messages of the variables further on.

        Args:
            cost: [C]: the cost of each value, in place of the core's costs.
            forward: the direction of the sweep.
        """
        messages, total = self._messages, 0.0
        own = cost[self._value]
        chosen = np.zeros(len(self._variable), np.int64)
        for level in self._levels if forward else reversed(self._levels):
            ahead, behind = (level.after, level.before) if forward else (level.before, level.after)
            count = level.values.stop - level.values.start
            belief = own[level.values] + np.bincount(level.message_value, messages[level.messages], minlength=count)
            conditional = belief
            if len(behind.other):
                with_chosen = behind.columns(chosen) - messages[behind.received]
                conditional = belief + np.bincount(behind.value, with_chosen, minlength=count)
            chosen[level.variables] = _first_least(conditional, level.first, level.of)
            least = np.minimum.reduceat(belief, level.first)
            total += least.sum()
            belief -= least[level.of]
            if len(ahead.other):
                shared = ahead.share * belief[ahead.value] - messages[ahead.received]
                message = np.minimum.reduceat(ahead.costs + shared[ahead.gather], ahead.row)
                least = np.minimum.reduceat(message, ahead.message)
                total += least.sum()
                messages[ahead.sent] = message - least[ahead.edge]
        values = np.empty_like(chosen)
        values[self._variable] = chosen
        return float(total), values

    def least(self, cost: Floats) -> Floats:
        """[C]: a lower bound on the cost if the variable of a value takes that value.

        After the turn of a variable in a sweep, the sum of the minima so far is a lower bound of the cost up to that variable.
        The bound for one of its values adds two terms: the part of the value's cost that is not passed on, and the excess of its
        tables over the messages.
        """
        return np.maximum(self._least(cost, forward=True), self._least(cost, forward=False))

    def _least(self, cost: Floats, *, forward: bool) -> Floats:
        messages, total = self._messages, 0.0
        own = cost[self._value]
        unshared = np.zeros(len(own))
        for level in self._levels if forward else reversed(self._levels):
            ahead = level.after if forward else level.before
            count = level.values.stop - level.values.start
            belief = own[level.values] + np.bincount(level.message_value, messages[level.messages], minlength=count)
            least = np.minimum.reduceat(belief, level.first)
            total += least.sum()
            belief -= least[level.of]
            unshared[level.values] = belief
            if len(ahead.other):
                shared = SHARED_FRACTION * ahead.share * belief[ahead.value]
                costs = ahead.costs + (shared - messages[ahead.received])[ahead.gather]
                message = np.minimum.reduceat(costs, ahead.row)
                least = np.minimum.reduceat(message, ahead.message)
                total += least.sum()
                messages[ahead.sent] = message - least[ahead.edge]
                above_message = np.full(len(shared), np.inf)
                np.minimum.at(above_message, ahead.gather, costs - np.repeat(message, np.diff(np.append(ahead.row, len(costs)))))
                unshared[level.values] += np.bincount(ahead.value, above_message - shared, minlength=count)
        result = np.empty(len(own))
        result[self._value] = total + unshared
        return result


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """The E edges from the variables of a level to their neighbours on one side of it. Values are numbered within the level."""

    other: Ints
    """[E]: the neighbour."""
    size: Ints
    """[E]: the number of values of the variable in the level."""
    received: Ints
    """[K]: positions of the messages that the variables get, one after the other."""
    value: Ints
    """[K]: the value that an entry of a message is about."""
    share: Floats
    """[K]: the share of its cost that the variable passes on."""
    costs: Floats
    """[L]: by edge, by value of the neighbour, by value in the level."""
    table: Ints
    """[E]: the start of each table in `costs`."""
    gather: Ints
    """[L]: the position in [K]."""
    row: Ints
    """[R]: the start in `costs` of each row, which is one value of a neighbour."""
    sent: Ints
    """[R]: positions of the messages that the neighbours get."""
    message: Ints
    """[E]: the first row of each edge."""
    edge: Ints
    """[R]: the edge of a row."""

    @classmethod
    def of(
        cls, core: Core, variable: Ints, size: Ints, starts: Ints, message_value: Ints, share: Floats, to: Ints,
        by: Ints, back: Ints, edges: Ints, offset: int,
    ) -> _Side:  # fmt: skip
        here, other = to[edges], by[edges]
        mine, theirs = size[here], size[other]
        received = ranges(starts[edges], mine)
        pairs = zip(variable[other].tolist(), variable[here].tolist(), strict=True)
        start = np.append(0, np.cumsum(mine))[:-1]
        edge = np.repeat(np.arange(len(edges)), theirs)
        return cls(
            other, mine, received, message_value[received] - offset, np.repeat(share[here], mine),
            np.concatenate([np.zeros(0), *(core.table[u][v].ravel() for u, v in pairs)]),
            np.append(0, np.cumsum(mine * theirs))[:-1], ranges(start[edge], mine[edge]),
            np.append(0, np.cumsum(mine[edge]))[:-1], ranges(starts[back[edges]], theirs),
            np.append(0, np.cumsum(theirs))[:-1], edge,
        )  # fmt: skip

    def columns(self, chosen: Ints) -> Floats:
        """[K]: the cost of each value in the level with the values that the neighbours chose."""
        return self.costs[ranges(self.table + chosen[self.other] * self.size, self.size)]


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Variables that are not neighbours of each other."""

    values: slice
    variables: slice
    first: Ints
    """By variable: its first value, counted from the first value of the level."""
    of: Ints
    """By value: its variable, counted from the first variable of the level."""
    messages: slice
    """The messages that the variables get."""
    message_value: Ints
    """By entry of these messages: the value to which it belongs, counted from the first value of the level."""
    after: _Side
    before: _Side


def _levels(core: Core, order: Ints) -> Ints:
    """[V]: the level of each variable: the length of the longest chain of neighbours that come before it in the order."""
    level = np.full(len(order), -1)
    for v in order.tolist():
        level[v] = max((level[u] + 1 for u in core.table[v] if level[u] >= 0), default=0)
    return level


def _first_least(cost: Floats, first: Ints, of: Ints) -> Ints:
    """By variable: the first of its values with the least cost."""
    least = np.flatnonzero(cost == np.minimum.reduceat(cost, first)[of])
    return least[np.searchsorted(least, first)] - first
