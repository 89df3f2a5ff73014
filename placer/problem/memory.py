"""How much memory an assignment holds on each device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem, once_per_problem


@dataclass(frozen=True, eq=False)
class LiveRanges:
    """From when until when each tensor is held at each place, and for which unit: H = T + C rows.

    Row t of the first T is tensor t where it is made, held for its producer. Each further row is a consumer entry, for which the
    tensor is held where the consumer takes it. Moments are those of `Ops.moment`, both ends included. At each place a tensor is
    held until the latest end of its rows there.
    """

    tensor: Ints
    """[H]"""
    unit: Ints
    """[H]: the unit of the producer or of the consumer."""
    place: Ints
    """[H, D]: the place, by the device of that unit."""
    first: Ints
    """[H]: the first moment at which the tensor is held, wherever it is."""
    last: Ints
    """[H]: the last moment at which it is held for this row."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> LiveRanges:
        """A free tensor is held throughout; the caller's tensors to the end of the step, where they are made."""
        tensors, consumers, end = problem.tensors, problem.consumers, problem.num_ops - 1
        first = np.where(tensors.free, 0, problem.ops.moment[tensors.op])
        last_use = np.where(tensors.free[consumers.tensor], end, consumers.until)
        last = first.copy()
        np.maximum.at(last, consumers.tensor, last_use)
        last[tensors.is_result | tensors.free] = end
        tensor = np.append(np.arange(problem.num_tensors), consumers.tensor)
        return cls(
            tensor=tensor,
            unit=problem.ops.unit[np.append(tensors.op, consumers.op)],
            place=np.concatenate([problem.tensor_place, problem.consumer_place]),
            first=first[tensor],
            last=np.append(last, last_use),
        )

    def places(self, assignment: Assignment) -> Ints:
        """[H]: the place of each row in an assignment."""
        return self.place[np.arange(len(self.unit)), assignment.device[self.unit]]


live_ranges_of = once_per_problem(LiveRanges.of)


def usage(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """Bytes held on each device at each moment of the step, shape [D, N]; op i runs at moment ``ops.moment[i]``.

    - Where a tensor is made, it is held from its producer to its last consumer at any place. If the caller holds it, it is held
      to the end of the step. A copy is held at its place from the producer to the last consumer there.
    - If a consumer's result takes over the tensor's memory, the tensor is given back just before. If the result is a view of the
      tensor, the tensor is held as long as the view.
    - A view, and the value that a read gives of a variable, is in memory that is counted for another tensor or for the variable.
      Only its copies count.
    - A free tensor (a constant) is held all the time, at each place where it is made or taken.
    - Persistent bytes are held all the time on their unit's device, and workspace while its op runs.
    - A device's own place counts for the device; all views of host memory count for the first CPU.
    """
    spend(30 + 0.1 * problem.num_ops)
    device, ranges = assignment.device, live_ranges_of(problem)
    ops, tensors = problem.num_ops, problem.num_tensors
    at = ranges.places(assignment)
    until = np.full((tensors, 2 * problem.num_devices), -1, np.int64)
    np.maximum.at(until, (ranges.tensor[tensors:], at[tensors:]), ranges.last[tensors:])
    until[np.arange(tensors), at[:tensors]] = ranges.last[:tensors]  # where it is made, it is held longest
    tensor, place = np.nonzero(until >= 0)

    nbytes = np.where(problem.tensors.shared[tensor] & (place == at[tensor]), 0, problem.tensors.held_bytes[tensor])
    memory = problem.devices.place_device[place]
    change = np.zeros((problem.num_devices, ops + 1), np.int64)
    np.add.at(change, (memory, ranges.first[tensor]), nbytes)
    np.subtract.at(change, (memory, until[tensor, place] + 1), nbytes)
    np.add.at(change[:, 0], device, problem.units.persistent_bytes)
    held = np.cumsum(change[:, :-1], axis=1)
    op_device = device[problem.ops.unit]
    held[op_device, problem.ops.moment] += problem.ops.workspace_bytes[np.arange(ops), op_device]
    return held


def peaks(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """The most bytes each device holds at once, shape [D]; see `usage`."""
    peak: Ints = usage(problem, assignment).max(axis=1, initial=0)
    return peak


def excess(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """By how many bytes the peak of each device exceeds its limit, shape [D]; 0 where it does not."""
    limits = problem.devices.memory_limit_bytes
    return np.where(limits < 0, 0, np.maximum(peaks(problem, assignment) - limits, 0))


def held_by_unit(problem: PlacementProblem, assignment: Assignment, device: int, moment: int) -> Ints:
    """Bytes of `device`'s memory that each unit has a part in at a moment of the step, shape [U].

    A tensor counts for its producer where it is made. A copy counts for each unit that still waits for it at that place, so the
    sum over units can exceed `usage`.
    """
    ranges = live_ranges_of(problem)
    place = ranges.places(assignment)
    is_output = np.arange(len(place)) < problem.num_tensors
    takes_memory = np.where(is_output, ~problem.tensors.shared[ranges.tensor], place != place[ranges.tensor])
    live = (ranges.first <= moment) & (moment <= ranges.last)
    rows = np.flatnonzero(takes_memory & live & (problem.devices.place_device[place] == device))

    held = np.where(assignment.device == device, problem.units.persistent_bytes, 0)
    np.add.at(held, ranges.unit[rows], problem.tensors.held_bytes[ranges.tensor[rows]])
    op = problem.ops.at_moment[moment]
    if assignment.device[problem.ops.unit[op]] == device:
        held[problem.ops.unit[op]] += problem.ops.workspace_bytes[op, device]
    return held


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Everything that could take a device's memory at one moment: H holdings, each present if any of its holders is.

    A holder is a unit that is on a device. The holders of holding h are entries start[h]:start[h+1].
    """

    nbytes: Ints
    """[H]; negative for a shared tensor where it is made, which cancels the holding of the tensor there."""
    start: Ints
    """[H + 1]"""
    unit: Ints
    on_device: Ints


def holdings(problem: PlacementProblem, device: int, moment: int) -> Holdings:
    """The holdings that `usage` of a device at a moment is the sum of."""
    ranges, tensors = live_ranges_of(problem), problem.num_tensors
    live = np.flatnonzero((ranges.first <= moment) & (moment <= ranges.last))
    op = problem.ops.at_moment[moment]

    persistent_units = np.flatnonzero(problem.units.persistent_bytes)
    keys = [np.arange(-1, len(persistent_units))]
    units = [np.append(problem.ops.unit[op], persistent_units)]
    devices = [np.full(len(persistent_units) + 1, device)]
    nbytes = [np.append(problem.ops.workspace_bytes[op, device], problem.units.persistent_bytes[persistent_units])]
    for q in np.flatnonzero(problem.devices.place_device == device).tolist():
        e = q % problem.num_devices
        on_place = live[ranges.place[live, e] == q]
        back = on_place[(on_place < tensors) & problem.tensors.shared[ranges.tensor[on_place]]]
        row, sign = np.append(on_place, back), np.repeat([1, -1], [len(on_place), len(back)])
        tensor = ranges.tensor[row]
        keys.append((tensor + np.where(sign < 0, tensors, 0)) * 2 * problem.num_devices + q + len(persistent_units))
        units.append(ranges.unit[row])
        devices.append(np.full(len(row), e))
        nbytes.append(sign * problem.tensors.held_bytes[tensor])
    key, unit, on_device, size = (np.concatenate(parts) for parts in (keys, units, devices, nbytes))
    order = np.lexsort((on_device, unit, key))
    order = order[size[order] != 0]
    key, unit, on_device = key[order], unit[order], on_device[order]
    again = np.zeros(len(key), np.bool_)
    again[1:] = (key[1:] == key[:-1]) & (unit[1:] == unit[:-1]) & (on_device[1:] == on_device[:-1])
    order, key, unit, on_device = order[~again], key[~again], unit[~again], on_device[~again]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    return Holdings(size[order[first]], np.append(first, len(key)), unit, on_device)
