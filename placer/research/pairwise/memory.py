"""The memory that values of variables use at each moment, and its cost at a price."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, ranges


class Memory:
    """The memory entries of a `Core`, by value."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.entries = np.searchsorted(core.value, np.arange(core.start[-1] + 1))
        """[C + 1]: the entries of value c are entries[c]:entries[c + 1]."""

    def of(self, value: Ints) -> Ints:
        """The entries of several values, in the order of the values."""
        return ranges(self.entries[value], self.entries[value + 1] - self.entries[value])

    def held(self, values: Ints) -> Ints:
        """[T]: the memory in use when each variable has its value [V]."""
        return self.spread(self.of(self.core.start[:-1] + values))

    def spread(self, entries: Ints) -> Ints:
        """[T]: the memory in use at each moment if these entries are held and no others."""
        core, change = self.core, np.zeros(len(self.core.room) + 1, np.int64)
        np.add.at(change, core.since[entries], core.amount[entries])
        np.subtract.at(change, core.until[entries], core.amount[entries])
        return change.cumsum()[:-1]

    def cost_at(self, price: Floats) -> Floats:
        """[C]: the cost of the memory of each value, at a price [T] for each unit of memory at each moment."""
        core, total = self.core, np.append(0.0, price.cumsum())
        entry_cost: Floats = core.amount * (total[core.until] - total[core.since])
        cost: Floats = np.bincount(core.value, entry_cost, minlength=int(core.start[-1])).astype(np.float64)
        return cost
