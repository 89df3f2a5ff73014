"""Values of variables made to fit, and made cheaper within the limit, by changing one or two at a time."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core
from placer.research.pairwise.memory import Memory

GAIN = 0.5
"""Costs are integers."""
TRIED = 64
"""Changes of one pair that are tried for size, the best first."""


class Descent:
    """A value [V] of each variable, the room [T] it leaves, and what each other value would cost."""

    def __init__(self, core: Core, memory: Memory, values: Ints) -> None:
        self.core = core
        self.values = values.copy()
        self.room = core.room - memory.held(values)
        self._memory = memory
        self._costs: list[Floats | None] = [None] * len(values)

    def costs(self, variable: int) -> Floats:
        """What each of its values costs, with the others as they are."""
        known = self._costs[variable]
        if known is None:
            known = self.core.cost[variable].copy()
            for other, table in self.core.table[variable].items():
                known += table[:, self.values[other]]
            self._costs[variable] = known
        return known

    def fit(self, price: Floats) -> bool:
        """Changes values until all fit, each variable's at most once; whether they do. `price` [T] is what memory is worth."""
        core, start = self.core, self.core.start
        first, size = start[:-1], np.diff(start)
        rent = self._memory.rent(price)
        free = np.ones(len(size), np.bool_)
        while (self.room < 0).any():
            costs = np.concatenate([self.costs(v) for v in range(len(size))]) + rent
            relief = -self._memory.rent(np.maximum(0, -self.room) / core.room.max(initial=1))
            extra, relief = (per - np.repeat(per[first + self.values], size) for per in (costs, relief))
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
        """Changes one value, or two of neighbours, while that is cheaper and fits."""
        waiting = dict.fromkeys(range(len(self.values)))
        while waiting:
            v = next(iter(waiting))
            del waiting[v]
            changed = [v] if self._improve_one(v) else []
            for u, table in self.core.table[v].items():
                if u not in waiting and self._improve_two(v, u, table):  # one that waits will look at the pair itself
                    changed = [v, u]
            for w in changed:
                waiting |= {w: None} | dict.fromkeys(self.core.table[w])

    def _improve_one(self, v: int) -> bool:
        costs = self.costs(v)
        less = np.flatnonzero(costs < costs[self.values[v]] - GAIN)
        for value in less[np.argsort(costs[less], kind="stable")].tolist():
            if self.fits((v, value)):
                self.change((v, value))
                return True
        return False

    def _improve_two(self, v: int, u: int, table: Floats) -> bool:
        at_v, at_u = self.values[v], self.values[u]
        costs = (self.costs(v) - table[:, at_u])[:, None] + (self.costs(u) - table[at_v]) + table
        least = costs[at_v, at_u] - GAIN
        if costs.min() >= least:
            return False
        less = np.flatnonzero(costs < least)
        for pair in less[np.argsort(costs.flat[less], kind="stable")[:TRIED]].tolist():
            changes = (v, pair // len(table.T)), (u, pair % len(table.T))
            if self.fits(*changes):
                self.change(*changes)
                return True
        return False

    def fits(self, *changes: tuple[int, int]) -> bool:
        """Whether there is room for these variables with these values."""
        more, since = self._more(changes)
        return bool((more <= self.room[since : since + len(more)]).all())

    def change(self, *changes: tuple[int, int]) -> None:
        """Gives variables values, whether they fit or not."""
        more, since = self._more(changes)
        self.room[since : since + len(more)] -= more
        for variable, value in changes:
            self.values[variable] = value
            for other in self.core.table[variable]:
                self._costs[other] = None

    def _more(self, changes: tuple[tuple[int, int], ...]) -> tuple[Ints, int]:
        """What would be held more, from some moment on to the last one that changes; and that moment."""
        core, entries = self.core, self._memory.entries
        first = [int(core.start[v]) for v, _ in changes]
        new = [slice(entries[f + i], entries[f + i + 1]) for f, (_, i) in zip(first, changes, strict=True)]
        now = [int(self.values[v]) for v, _ in changes]
        old = [slice(entries[f + i], entries[f + i + 1]) for f, i in zip(first, now, strict=True)]
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
