"""Repair and local search: values of one or two variables change, until all fit and then while that is cheaper."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core
from placer.research.pairwise.memory import Memory

MIN_GAIN = 0.5
"""A change must gain more than this. Costs are integers, so it allows for rounding only."""
MAX_PAIR_CHANGES = 64
"""The most changes of one pair of variables that are tried, the cheapest first."""


class LocalSearch:
    """A value [V] for each variable, the room [T] that remains, and the cost of each other value."""

    def __init__(self, core: Core, memory: Memory, values: Ints) -> None:
        self.core = core
        self.values = values.copy()
        self.room = core.room - memory.held(values)
        self._memory = memory
        self._costs: list[Floats | None] = [None] * len(values)

    def costs(self, variable: int) -> Floats:
        """The cost of each value of a variable, if the other variables keep theirs."""
        known = self._costs[variable]
        if known is None:
            known = self.core.cost[variable].copy()
            for other, table in self.core.table[variable].items():
                known += table[:, self.values[other]]
            self._costs[variable] = known
        return known

    def repair(self, price: Floats) -> bool:
        """Changes values until all fit, of each variable at most once. Returns whether they fit.

        Args:
            price: [T]: memory prices, which count in the choice of a change.
        """
        core, start = self.core, self.core.start
        first, size = start[:-1], np.diff(start)
        memory_cost = self._memory.cost_at(price)
        free = np.ones(len(size), np.bool_)
        while (self.room < 0).any():
            costs = np.concatenate([self.costs(v) for v in range(len(size))]) + memory_cost
            relief = -self._memory.cost_at(np.maximum(0, -self.room) / core.room.max(initial=1))
            extra, relief = (each - np.repeat(each[first + self.values], size) for each in (costs, relief))
            useful = np.flatnonzero((relief > 1e-9) & np.repeat(free, size))
            if not len(useful):
                return False
            rate = np.where(extra[useful] > 0, extra[useful] / relief[useful], extra[useful] * relief[useful])
            value = int(useful[rate.argmin()])
            variable = int(np.searchsorted(start, value, side="right")) - 1
            free[variable] = False
            self.change((variable, value - int(start[variable])))
        return True

    def improve(self) -> None:
        """Changes the value of one variable, or of two neighbours, while that is cheaper and fits."""
        waiting = dict.fromkeys(range(len(self.values)))
        while waiting:
            v = next(iter(waiting))
            del waiting[v]
            changed = [v] if self._improve_one(v) else []
            for u, table in self.core.table[v].items():
                if u not in waiting and self._improve_two(v, u, table):  # a neighbour that waits will try the pair itself
                    changed = [v, u]
            for w in changed:
                waiting |= {w: None} | dict.fromkeys(self.core.table[w])

    def _improve_one(self, v: int) -> bool:
        costs = self.costs(v)
        cheaper = np.flatnonzero(costs < costs[self.values[v]] - MIN_GAIN)
        for value in cheaper[np.argsort(costs[cheaper], kind="stable")].tolist():
            if self.fits((v, value)):
                self.change((v, value))
                return True
        return False

    def _improve_two(self, v: int, u: int, table: Floats) -> bool:
        at_v, at_u = self.values[v], self.values[u]
        costs = (self.costs(v) - table[:, at_u])[:, None] + (self.costs(u) - table[at_v]) + table
        threshold = costs[at_v, at_u] - MIN_GAIN
        if costs.min() >= threshold:
            return False
        cheaper = np.flatnonzero(costs < threshold)
        for pair in cheaper[np.argsort(costs.flat[cheaper], kind="stable")[:MAX_PAIR_CHANGES]].tolist():
            changes = (v, pair // len(table.T)), (u, pair % len(table.T))
            if self.fits(*changes):
                self.change(*changes)
                return True
        return False

    def fits(self, *changes: tuple[int, int]) -> bool:
        """Whether these (variable, value) changes fit."""
        added, begin = self._added(changes)
        return bool((added <= self.room[begin : begin + len(added)]).all())

    def change(self, *changes: tuple[int, int]) -> None:
        """Makes these (variable, value) changes, whether they fit or not."""
        added, begin = self._added(changes)
        self.room[begin : begin + len(added)] -= added
        for variable, value in changes:
            self.values[variable] = value
            for other in self.core.table[variable]:
                self._costs[other] = None

    def _added(self, changes: tuple[tuple[int, int], ...]) -> tuple[Ints, int]:
        """The memory that changes add at each moment from the first to the last that they touch; and the first."""
        core, entries = self.core, self._memory.entries
        first = [int(core.start[v]) for v, _ in changes]
        new = [slice(entries[f + i], entries[f + i + 1]) for f, (_, i) in zip(first, changes, strict=True)]
        present = [int(self.values[v]) for v, _ in changes]
        old = [slice(entries[f + i], entries[f + i + 1]) for f, i in zip(first, present, strict=True)]
        since = np.concatenate([core.since[s] for s in new + old])
        if not len(since):
            return since, 0
        until = np.concatenate([core.until[s] for s in new + old])
        amount = np.concatenate([core.amount[s] for s in new] + [-core.amount[s] for s in old])
        begin = int(since.min())
        change = np.zeros(int(until.max()) - begin + 1, np.int64)
        np.add.at(change, since - begin, amount)
        np.subtract.at(change, until - begin, amount)
        return change.cumsum()[:-1], begin
