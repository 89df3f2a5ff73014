"""What moving one unit adds to the cost of copies at most, wherever all others are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import PlacementProblem

NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True, eq=False)
class Moves:
    """Bounds on moves of one unit from device `here` to device `there`, crossing by crossing."""

    problem: PlacementProblem

    @cached_property
    def price(self) -> Ints:
        """[X, D, P]: a copy from where device d makes it to each place."""
        crossings, places = crossings_of(self.problem), np.arange(2 * self.problem.num_devices)
        return self.problem.links.copy_ns(
            crossings.nbytes[:, None, None], crossings.count[:, None, None], crossings.place[:, :, None], places
        )

    @cached_property
    def own(self) -> Bools:
        """[E]: uses by the unit that makes the crossing."""
        crossings = crossings_of(self.problem)
        result: Bools = crossings.user == crossings.unit[crossings.user_crossing]
        return result

    @cached_property
    def reach(self) -> Ints:
        """[X, P]: how many uses can be there."""
        return self._counted(np.ones(len(self.own), np.bool_), self.problem.units.allowed)

    @cached_property
    def others(self) -> Ints:
        """[X, P]: the same, the maker's own aside."""
        return self._counted(~self.own, self.problem.units.allowed)

    @cached_property
    def sure(self) -> Ints:
        """[X, P]: how many uses must be there, the maker's own aside."""
        allowed = self.problem.units.allowed
        return self._counted(~self.own, allowed & (allowed.sum(axis=1) == 1)[:, None])

    def _counted(self, among: Bools, able: Bools) -> Ints:
        crossings = crossings_of(self.problem)
        count = np.zeros((len(crossings.unit), 2 * self.problem.num_devices), np.int64)
        entry, d = np.nonzero(able[crossings.user] & among[:, None])
        np.add.at(count, (crossings.user_crossing[entry], crossings.user_place[entry, d]), 1)
        return count

    def by_origin(self, here: int, there: int) -> Ints:
        """[E, D]: what a use that moves adds to its crossing at most, by the device of the maker."""
        crossings = crossings_of(self.problem)
        x, leaves, arrives = crossings.user_crossing, crossings.user_place[:, here], crossings.user_place[:, there]
        added = np.where((self.sure[x, arrives] > 0)[:, None], 0, self.price[x, :, arrives])
        saved = np.where((self.reach[x, leaves] == 1)[:, None], self.price[x, :, leaves], 0)
        # The maker's own use moves with it: it is paid from there, and nothing is sure to be saved.
        return np.where(self.own[:, None], self.price[x, there, arrives][:, None], added - saved)

    def of_users(self, here: int, there: int) -> Ints:
        """[E]: the same, whatever the maker's device."""
        able = self.problem.units.allowed[crossings_of(self.problem).unit[crossings_of(self.problem).user_crossing]]
        worst: Ints = np.where(able, self.by_origin(here, there), NEVER).max(axis=1, initial=NEVER)
        return worst

    def of_makers(self, here: int, there: int) -> tuple[Ints, Ints]:
        """[X, P]: what a crossing whose maker moves costs more at a place: if it is taken there, and at most."""
        more = self.price[:, there] - self.price[:, here]
        worst = np.where(self.sure > 0, more, np.where(self.others > 0, np.maximum(more, 0), 0))
        return more, worst

    def copies_ns(self, here: int, there: int) -> Ints:
        """[U]: what the move adds to all copies at most."""
        crossings = crossings_of(self.problem)
        total = np.zeros(self.problem.num_units, np.int64)
        np.add.at(total, crossings.user, self.of_users(here, there))
        np.add.at(total, crossings.unit, self.of_makers(here, there)[1].sum(axis=1))
        return total
