"""The memory in use on each device while single units are placed and moved."""

from __future__ import annotations

import numpy as np

from placer.problem.grouping import grouped
from placer.problem.memory import live_ranges_of
from placer.problem.problem import PlacementProblem
from placer.solvers.answer import limits_can_bind

NOWHERE = -1
"""In place of a device or place: the unit is not placed yet."""


class IncrementalMemory:
    """The memory in use of a partial assignment that changes, and whether it meets the memory limits.

    The definitions are those of `placer.problem.memory.usage`, for the units that are placed; once all are, `fits` is exact. A
    tensor counts once its producer is placed, a copy once its producer and a user at another place are. The time of a move is
    linear in the ops and edges of its unit and in the lifetimes that it changes. It is 0 if no limit can bind.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.binding = limits_can_bind(problem)
        """Whether a limit can be exceeded."""
        if not self.binding:
            return
        ops, tensors = problem.num_ops, problem.num_tensors
        self._limit: list[int | None] = [limit if limit >= 0 else None for limit in problem.devices.memory_limit_bytes.tolist()]
        self._passing = np.zeros((problem.num_devices, ops), np.int64)
        self._peak: list[int | None] = [0] * problem.num_devices  # of temporary bytes; None if it must be computed again
        self._kept = [0] * problem.num_devices
        self._device = [NOWHERE] * problem.num_units

        self._memory: list[int] = problem.devices.place_device.tolist()
        self._persistent: list[int] = problem.units.persistent_bytes.tolist()
        self._nbytes: list[int] = problem.tensors.held_bytes.tolist()
        self._shared: list[bool] = problem.tensors.shared.tolist()
        self._moment: list[int] = problem.ops.moment.tolist()
        ranges = live_ranges_of(problem)
        self._begin: list[int] = ranges.first[:tensors].tolist()
        self._last: list[int] = ranges.last[:tensors].tolist()
        self._made_at: list[list[int]] = ranges.place[:tensors].tolist()
        self._source = [NOWHERE] * tensors
        self._taken: list[int] = ranges.last[tensors:].tolist()
        self._taken_at: list[list[int]] = ranges.place[tensors:].tolist()
        self._users: list[dict[int, list[int]]] = [{} for _ in range(tensors)]  # by place: last moments of uses by placed ops
        self._until: list[dict[int, int]] = [{} for _ in range(tensors)]  # by place: the latest of these
        self._workspace: list[list[int]] = problem.ops.workspace_bytes.tolist()
        self._ops = grouped(problem.ops.unit, problem.num_units)
        self._makes = grouped(ranges.unit[:tensors], problem.num_units)
        self._uses = grouped(ranges.unit[tensors:], problem.num_units)
        self._tensor_of: list[int] = problem.consumers.tensor.tolist()

    def move_if_fits(self, unit: int, device: int) -> bool:
        """Moves a unit to a device if all limits hold afterwards; returns whether it moved."""
        if not self.binding:
            return True
        before = self._device[unit]
        self.move(unit, device)
        if self.fits():
            return True
        self.move(unit, before)
        return False

    def move_all_if_fit(self, units: list[int], devices: list[int], before: list[int]) -> bool:
        """Moves units from the devices `before` to others if all limits hold afterwards; returns whether they moved."""
        for unit, device in zip(units, devices, strict=True):
            self.move(unit, device)
        if self.fits():
            return True
        for unit, device in zip(units, before, strict=True):
            self.move(unit, device)
        return False

    def fits(self) -> bool:
        """Whether all limits hold."""
        if not self.binding:
            return True
        for d, limit in enumerate(self._limit):
            if limit is not None:
                peak = self._peak[d]
                if peak is None:
                    peak = self._peak[d] = int(self._passing[d].max(initial=0))
                if self._kept[d] + peak > limit:
                    return False
        return True

    def move(self, unit: int, device: int) -> None:
        """Moves a unit to a device, or to `NOWHERE`, even if that exceeds a limit."""
        if not self.binding or (before := self._device[unit]) == device:
            return
        if before != NOWHERE:
            self._kept[before] -= self._persistent[unit]
            for op in self._ops[unit]:
                self._pass(before, self._moment[op], self._moment[op], -self._workspace[op][before])
            for entry in self._uses[unit]:
                self._leave(entry, self._taken_at[entry][before])
        self._device[unit] = device
        for tensor in self._makes[unit]:
            self._make(tensor, NOWHERE if device == NOWHERE else self._made_at[tensor][device])
        if device != NOWHERE:
            self._kept[device] += self._persistent[unit]
            for op in self._ops[unit]:
                self._pass(device, self._moment[op], self._moment[op], self._workspace[op][device])
            for entry in self._uses[unit]:
                self._join(entry, self._taken_at[entry][device])

    def _pass(self, device: int, first: int, last: int, nbytes: int) -> None:
        if nbytes and self._limit[device] is not None:
            held = self._passing[device, first : last + 1]
            held += nbytes
            peak = self._peak[device]
            self._peak[device] = None if nbytes < 0 or peak is None else max(peak, int(held.max(initial=0)))

    def _hold(self, tensor: int, place: int, first: int, last: int, sign: int) -> None:
        """Adds a tensor to the memory in use at a place from one moment to another (sign 1), or removes it (sign -1)."""
        self._pass(self._memory[place], first, last, sign * self._nbytes[tensor])

    def _make(self, tensor: int, place: int) -> None:
        """Sets the place where a tensor is made; uses of it at other places become copies."""
        before = self._source[tensor]
        if before != NOWHERE and not self._shared[tensor]:
            self._hold(tensor, before, self._begin[tensor], self._last[tensor], -1)
        self._source[tensor] = place
        for at, last in self._until[tensor].items():
            was_copy, is_copy = before not in {NOWHERE, at}, place not in {NOWHERE, at}
            if was_copy != is_copy:
                self._hold(tensor, at, self._begin[tensor], last, 1 if is_copy else -1)
        if place != NOWHERE and not self._shared[tensor]:
            self._hold(tensor, place, self._begin[tensor], self._last[tensor], 1)

    def _join(self, entry: int, at: int) -> None:
        """Adds a use of a tensor at a place."""
        tensor, end = self._tensor_of[entry], self._taken[entry]
        until = self._until[tensor]
        copied = self._source[tensor] not in {NOWHERE, at}
        self._users[tensor].setdefault(at, []).append(end)
        if at not in until:
            until[at] = end
            if copied:
                self._hold(tensor, at, self._begin[tensor], end, 1)
        elif end > until[at]:
            if copied:
                self._hold(tensor, at, until[at] + 1, end, 1)
            until[at] = end

    def _leave(self, entry: int, at: int) -> None:
        """Removes a use of a tensor at a place."""
        tensor, end = self._tensor_of[entry], self._taken[entry]
        users, until = self._users[tensor][at], self._until[tensor]
        copied = self._source[tensor] not in {NOWHERE, at}
        users.remove(end)
        if not users:
            if copied:
                self._hold(tensor, at, self._begin[tensor], until[at], -1)
            del self._users[tensor][at], until[at]
        elif end == until[at]:
            last = max(users)
            if copied:
                self._hold(tensor, at, last + 1, end, -1)
            until[at] = last
