"""The total cost while single units move."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placer.problem.crossings import crossings_of
from placer.problem.problem import Assignment, PlacementProblem


class IncrementalCost:
    """An assignment that changes, and the change of the total cost by each move.

    It keeps the number of users of each crossing at each place. So the time of a move is linear in the crossings of its unit,
    however many users they have.
    """

    def __init__(self, problem: PlacementProblem, assignment: Assignment) -> None:
        crossings, places = crossings_of(problem), 2 * problem.num_devices
        self.device: list[int] = assignment.device.tolist()
        self._work: list[list[int]] = problem.unit_time_ns.tolist()
        self._maker: list[int] = crossings.unit.tolist()
        self._made_at: list[list[int]] = crossings.place.tolist()
        self._places = range(places)
        numbers = np.arange(len(crossings.unit))
        self._copy: list[list[list[int]]] = problem.links.copy_ns(
            crossings.nbytes[:, None, None], crossings.count[:, None, None], crossings.place[:, :, None], np.arange(places)
        ).tolist()  # [X, D, P]: the copy from where device d makes the tensor to each place, in ns

        taken_at = crossings.user_place[np.arange(len(crossings.user)), assignment.device[crossings.user]]
        users = np.bincount(crossings.user_crossing * places + taken_at, minlength=len(numbers) * places)
        self._users: list[list[int]] = users.reshape(-1, places).tolist()

        touched = np.unique(
            np.concatenate([crossings.unit * len(numbers) + numbers, crossings.user * len(numbers) + crossings.user_crossing])
        )
        unit, crossing = np.divmod(touched, max(1, len(numbers)))
        starts = np.searchsorted(unit, np.arange(problem.num_units + 1)).tolist()
        self._touches = [crossing[a:b].tolist() for a, b in pairwise(starts)]
        order = np.argsort(crossings.user, kind="stable")
        starts = np.searchsorted(crossings.user[order], np.arange(problem.num_units + 1)).tolist()
        uses = list(zip(crossings.user_crossing[order].tolist(), crossings.user_place[order].tolist(), strict=True))
        self._uses = [uses[a:b] for a, b in pairwise(starts)]

    def _copies_ns(self, unit: int) -> int:
        total = 0
        for x in self._touches[unit]:
            maker = self.device[self._maker[x]]
            cost, users = self._copy[x][maker], self._users[x]
            total += sum(cost[q] for q in self._places if users[q])
        return total

    def move(self, unit: int, device: int) -> int:
        """Moves a unit; returns the change of the total cost, in ns."""
        old = self.device[unit]
        before = self._work[unit][old] + self._copies_ns(unit)
        for x, at in self._uses[unit]:
            users = self._users[x]
            users[at[old]] -= 1
            users[at[device]] += 1
        self.device[unit] = device
        return self._work[unit][device] + self._copies_ns(unit) - before

    def change_ns(self, unit: int, device: int) -> int:
        """The change of the total cost if a unit moved, in ns."""
        old = self.device[unit]
        added = self.move(unit, device)
        self.move(unit, old)
        return added

    @property
    def assignment(self) -> Assignment:
        """The current assignment."""
        return Assignment(np.array(self.device, np.int64))
