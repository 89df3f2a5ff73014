"""Upper bounds on the change of the cost of copies by the move of one unit, wherever all other units are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import PlacementProblem

BELOW_ALL_NS = np.iinfo(np.int64).min // 4
"""Below every change of cost, so that a forbidden device never has the largest."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Upper bounds on the change of the cost of copies if one unit moves from device `old` to device `new`, by crossing."""

    problem: PlacementProblem

    @cached_property
    def copy_ns(self) -> Ints:
        """[X, D, P]: the copy from where device d makes the tensor to each place, in ns."""
        crossings, places = crossings_of(self.problem), np.arange(2 * self.problem.num_devices)
        return self.problem.links.copy_ns(
            crossings.nbytes[:, None, None], crossings.count[:, None, None], crossings.place[:, :, None], places
        )

    @cached_property
    def own(self) -> Bools:
        """[E]: whether a use is by the unit that makes the tensor."""
        crossings = crossings_of(self.problem)
        result: Bools = crossings.user == crossings.unit[crossings.user_crossing]
        return result

    @cached_property
    def possible_uses(self) -> Ints:
        """[X, P]: the number of uses that can be at each place."""
        return self._counted(np.ones(len(self.own), np.bool_), self.problem.units.allowed)

    @cached_property
    def possible_other_uses(self) -> Ints:
        """[X, P]: the same without the uses by the producer's unit."""
        return self._counted(~self.own, self.problem.units.allowed)

    @cached_property
    def certain_other_uses(self) -> Ints:
        """[X, P]: the number of uses that must be at each place, without those by the producer's unit."""
        allowed = self.problem.units.allowed
        return self._counted(~self.own, allowed & (allowed.sum(axis=1) == 1)[:, None])

    def _counted(self, among: Bools, able: Bools) -> Ints:
        crossings = crossings_of(self.problem)
        count = np.zeros((len(crossings.unit), 2 * self.problem.num_devices), np.int64)
        entry, d = np.nonzero(able[crossings.user] & among[:, None])
        np.add.at(count, (crossings.user_crossing[entry], crossings.user_place[entry, d]), 1)
        return count

    def use_moves_by_producer_ns(self, old: int, new: int) -> Ints:
        """[E, D]: the change of a crossing's copies at most, if one use moves, for each device of the producer, in ns."""
        crossings = crossings_of(self.problem)
        x, leaves, arrives = crossings.user_crossing, crossings.user_place[:, old], crossings.user_place[:, new]
        added = np.where((self.certain_other_uses[x, arrives] > 0)[:, None], 0, self.copy_ns[x, :, arrives])
        saved = np.where((self.possible_uses[x, leaves] == 1)[:, None], self.copy_ns[x, :, leaves], 0)
        # A use by the producer's unit moves with it: its copy starts on the new device, and no saving is certain.
        return np.where(self.own[:, None], self.copy_ns[x, new, arrives][:, None], added - saved)

    def use_moves_ns(self, old: int, new: int) -> Ints:
        """[E]: the change of a crossing's copies at most, if one use moves, in ns."""
        able = self.problem.units.allowed[crossings_of(self.problem).unit[crossings_of(self.problem).user_crossing]]
        worst: Ints = np.where(able, self.use_moves_by_producer_ns(old, new), BELOW_ALL_NS).max(axis=1, initial=BELOW_ALL_NS)
        return worst

    def producer_moves_ns(self, old: int, new: int) -> tuple[Ints, Ints]:
        """[X, P] twice: the change of the copy to a place if the producer moves: if the place is used, and at most; in ns."""
        more = self.copy_ns[:, new] - self.copy_ns[:, old]
        worst = np.where(self.certain_other_uses > 0, more, np.where(self.possible_other_uses > 0, np.maximum(more, 0), 0))
        return more, worst

    def copies_ns(self, old: int, new: int) -> Ints:
        """[U]: the change of the cost of all copies at most, in ns."""
        crossings = crossings_of(self.problem)
        total = np.zeros(self.problem.num_units, np.int64)
        np.add.at(total, crossings.user, self.use_moves_ns(old, new))
        np.add.at(total, crossings.unit, self.producer_moves_ns(old, new)[1].sum(axis=1))
        return total
