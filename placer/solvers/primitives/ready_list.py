"""List scheduling by appending: ready ops are added, one by one, to what devices run, within the memory limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import limits_can_bind
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.repair import repair

NEVER = np.iinfo(np.int64).max // 4
"""In place of a time on a device that an op may not use."""
PAIR_OP_RUNS = 0.02
"""The work of comparing one ready op on one device with others, see `placer.common.clock.spend`."""


class ReadyList:
    """A partial schedule, and when its ready ops could run: ops whose producers are scheduled and that are not.

    An op runs after all that its device runs already, never in an idle interval before that. A device is closed to a unit that
    would exceed its memory limit there. A unit that fits nowhere goes to the last device that is open to it. Times are in ns.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.schedule = Schedule(problem)
        self.free = np.zeros(problem.num_devices, np.int64)
        """[D]: when each device ends its last op."""
        self.arrival = np.zeros((problem.num_ops, problem.num_devices), np.int64)
        """[N, D]: when all inputs of an op are on each device, for ops that are or were ready."""
        self.open = problem.units.allowed.copy()
        """[U, D]: the devices that each unit may use; one, once it is decided."""
        self.ready = [op for op, waits in enumerate(self.schedule.waits) if not waits]
        self._memory = IncrementalMemory(problem)

    def starts(self, ops: Ints) -> Ints:
        """[len(ops), D]: when ready ops would start on each device; `NEVER` on those that they may not use."""
        return self.where_open(ops, np.maximum(self.arrival[ops], self.free))

    def ends(self, ops: Ints) -> Ints:
        """[len(ops), D]: when ready ops would end on each device; `NEVER` on those that they may not use."""
        return self.where_open(ops, np.maximum(self.arrival[ops], self.free) + self.problem.ops.time_ns[ops])

    def where_open(self, ops: Ints, times: Ints) -> Ints:
        """Times [len(ops), D], and `NEVER` on devices that an op may not use."""
        return np.where(self.open[self.problem.ops.unit[ops]], times, NEVER)

    def place(self, op: int, device: int) -> list[int] | None:
        """Schedules a ready op; returns the ops that this makes ready.

        If its unit does not fit there, closes the device to it instead, and returns None.
        """
        unit = int(self.problem.ops.unit[op])
        if self.open[unit].sum() > 1 and not self._memory.move_if_fits(unit, device):
            self.open[unit, device] = False
            return None
        self._memory.move(unit, device)
        self.open[unit] = np.arange(self.problem.num_devices) == device
        start = int(max(self.arrival[op, device], self.free[device]))
        made_ready = self.schedule.place(op, device, start)
        self.free[device] = self.schedule.end[op]
        self.ready.remove(op)
        for other in made_ready:
            self.arrival[other] = [self.schedule.ready(other, d) for d in range(self.problem.num_devices)]
        self.ready += made_ready
        return made_ready


PairRule: TypeAlias = Callable[[ReadyList, Ints], tuple[int, int]]
"""Chooses, of some ready ops in ascending order, the one to schedule next, and its device."""
DeviceRule: TypeAlias = Callable[[ReadyList, int], int]
"""Chooses the device of a ready op."""


def schedule_pairs(problem: PlacementProblem, choose: PairRule, *, in_batches: bool = False) -> Schedule:
    """Schedules the op and device that a rule chooses of all ready ops and devices, again and again.

    Args:
        problem: N ops on D devices.
        choose: the rule.
        in_batches: ops that become ready wait until all ops that were ready before are scheduled.
    """
    ready = ReadyList(problem)
    while ready.ready:
        batch = np.sort(np.array(ready.ready, np.int64))
        while len(batch):
            spend(PAIR_OP_RUNS * len(batch) * problem.num_devices)
            op, device = choose(ready, batch)
            if ready.place(op, device) is not None:
                batch = batch[batch != op] if in_batches else np.sort(np.array(ready.ready, np.int64))
    return ready.schedule


def schedule_in_order(
    problem: PlacementProblem, choose: DeviceRule, rank: Callable[[ReadyList, int], float] | None = None
) -> Schedule:
    """Schedules ready ops by descending rank, each on the device that a rule chooses.

    Args:
        problem: N ops on D devices.
        choose: the rule.
        rank: the rank of an op, once it is ready; of equals, the op with the lowest number comes first. By default, ops come in
            the order of their numbers.
    """
    ready = ReadyList(problem)

    def key(op: int) -> tuple[float, int]:
        return (-rank(ready, op) if rank else 0.0), op

    queue = [key(op) for op in ready.ready]
    heapify(queue)
    while queue:
        _, op = heappop(queue)
        while (made_ready := ready.place(op, choose(ready, op))) is None:
            pass
        for other in made_ready:
            heappush(queue, key(other))
    return ready.schedule


def earliest_end(ready: ReadyList, op: int) -> int:
    """The device where a ready op ends first, the lowest of equals."""
    return int(ready.ends(np.array([op])).argmin())


def row_and_device(times: Ints) -> tuple[int, int]:
    """The row and the column of the least of times [rows, D], the first of equals."""
    row, device = divmod(int(times.argmin()), times.shape[1])
    return row, device


def ready_list_scheduler(name: str, schedule: Callable[[PlacementProblem], Schedule], source: str) -> Heuristic:
    """A solver that gives the placement of a list schedule, repaired if it exceeds a memory limit."""
    return Heuristic(name, partial(_assignment, schedule), source, note="list schedule done")


def _assignment(schedule: Callable[[PlacementProblem], Schedule], problem: PlacementProblem) -> Assignment:
    return within_limits(problem, schedule(problem).assignment)


def within_limits(problem: PlacementProblem, assignment: Assignment) -> Assignment:
    """The assignment, repaired if it exceeds a memory limit and can be repaired."""
    repaired = repair(problem, assignment) if limits_can_bind(problem) else None
    return assignment if repaired is None else repaired
