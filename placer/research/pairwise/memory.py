"""What values of variables hold at each moment, and what holding costs at a price."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.research.pairwise.core import Core, ranges


class Memory:
    """The entries of memory of a `Core`, by value."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.entries = np.searchsorted(core.value, np.arange(core.start[-1] + 1))
        """[C + 1]: those of value c are entries[c]:entries[c + 1]."""

    def of(self, value: Ints) -> Ints:
        """The entries of several values, one after the other."""
        return ranges(self.entries[value], self.entries[value + 1] - self.entries[value])

    def held(self, values: Ints) -> Ints:
        """[T]: what a value [V] of each variable holds."""
        return self.spread(self.of(self.core.start[:-1] + values))

    def spread(self, entries: Ints) -> Ints:
        """[T]: what these entries hold."""
        core, change = self.core, np.zeros(len(self.core.room) + 1, np.int64)
        np.add.at(change, core.since[entries], core.amount[entries])
        np.subtract.at(change, core.until[entries], core.amount[entries])
        return change.cumsum()[:-1]

    def rent(self, price: Floats) -> Floats:
        """[C]: what each value pays, at a price [T] per moment for each unit held."""
        core, until = self.core, np.append(0.0, price.cumsum())
        paid: Floats = core.amount * (until[core.until] - until[core.since])
        rent: Floats = np.bincount(core.value, paid, minlength=int(core.start[-1])).astype(np.float64)
        return rent
