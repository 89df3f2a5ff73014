"""List scheduling: ops are scheduled one by one, each on a device and at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.grouping import grouped
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristic import Heuristic

SCHEDULE_OP_RUNS, PLACE_OP_RUNS = 2, 10
"""The work for each op: to make an empty schedule, and to place an op; see `placer.common.clock.spend`."""
LEVEL_OP_RUNS = 4
"""The work to compute a level of an op on each device."""


class Schedule:
    """A partial schedule on the machine of the papers on list scheduling.

    A device is one processor that runs one op at a time for its ``ops.time_ns``, without threads or streams. Copies run beside
    everything else and never queue. The first op of a unit to be scheduled decides the unit's device.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        spend(SCHEDULE_OP_RUNS * problem.num_ops)
        edges = step_edges_of(problem)
        _, copy = edges.pairs(problem)
        self.problem = problem
        self.copy_ns: list[list[list[int]]] = copy.tolist()  # [E][D][D]
        self.time_ns: list[list[int]] = problem.ops.time_ns.tolist()
        self.producer: list[int] = edges.producer.tolist()
        self.consumer: list[int] = edges.consumer_list
        self.into = grouped(edges.consumer, problem.num_ops)
        self.out_of = [range(a, b) for a, b in pairwise(edges.start_list)]
        self.waits: list[int] = edges.waits_list.copy()  # [N]: number of edges into an op whose producer is not scheduled yet
        self.start, self.end = [0] * problem.num_ops, [0] * problem.num_ops
        self._unit: list[int] = problem.ops.unit.tolist()
        self._choices = [np.flatnonzero(row).tolist() for row in problem.units.allowed]
        self._idle = [_Idle() for _ in range(problem.num_devices)]

    def choices(self, op: int) -> list[int]:
        """The devices an op may use: only its unit's device, once that is decided."""
        return self._choices[self._unit[op]]

    def ready(self, op: int, device: int) -> int:
        """When all inputs of an op are on a device, in ns; all its producers must be scheduled."""
        at = 0
        for e in self.into[op]:
            source = self.producer[e]
            at = max(at, self.end[source] + self.copy_ns[e][self.choices(source)[0]][device])
        return at

    def earliest_start(self, op: int, device: int) -> int:
        """The earliest start of an op on a device, in ns: in an idle interval if it fits in one (HEFT's insertion)."""
        return self._idle[device].first(self.ready(op, device), self.time_ns[op][device])

    def place(self, op: int, device: int, start: int) -> list[int]:
        """Schedules an op on a device that is idle from `start` on; returns the ops that this makes ready, in ascending order."""
        spend(PLACE_OP_RUNS)
        unit, duration = self._unit[op], self.time_ns[op][device]
        self._choices[unit] = [device]
        self.start[op], self.end[op] = start, start + duration
        self._idle[device].fill(start, duration)
        ready = []
        for e in self.out_of[op]:
            self.waits[self.consumer[e]] -= 1
            if not self.waits[self.consumer[e]]:
                ready.append(self.consumer[e])
        return sorted(ready)

    @property
    def makespan_ns(self) -> int:
        """When the last op ends, in ns."""
        return max(self.end, default=0)

    @property
    def assignment(self) -> Assignment:
        """The assignment, once all ops are scheduled."""
        return Assignment(np.array([devices[0] for devices in self._choices], np.int64))


class _Idle:
    """The idle intervals of a device, in order; the last one is infinite."""

    def __init__(self) -> None:
        self._starts, self._ends = [0], [float("inf")]

    def first(self, ready: int, duration: int) -> int:
        """The earliest time, not before `ready`, from which the device is idle for `duration`."""
        k = max(0, bisect_right(self._starts, ready) - 1)
        while max(ready, self._starts[k]) + duration > self._ends[k]:
            k += 1
        return max(ready, self._starts[k])

    def fill(self, start: int, duration: int) -> None:
        if not duration:
            return
        k = bisect_right(self._starts, start) - 1
        left, right, end = self._starts[k], self._ends[k], start + duration
        rest = [(a, b) for a, b in ((left, start), (end, right)) if a < b]
        self._starts[k : k + 1] = [a for a, _ in rest]
        self._ends[k : k + 1] = [b for _, b in rest]


def list_scheduler(name: str, schedule: Callable[[PlacementProblem], Schedule], source: str) -> Heuristic:
    """A solver that gives the placement of a list schedule."""
    return Heuristic(name, partial(_assignment, schedule), source, note="list schedule done")


def _assignment(schedule: Callable[[PlacementProblem], Schedule], problem: PlacementProblem) -> Assignment:
    return schedule(problem).assignment


def mean_time_ns(problem: PlacementProblem, *, of_speeds: bool = False) -> Floats:
    """[N]: the mean of an op's times on the devices it may use, in ns.

    Args:
        problem: N ops.
        of_speeds: gives the time at the mean speed instead, which is the harmonic mean of the times.
    """
    return _mean(problem.ops.time_ns, problem.units.allowed[problem.ops.unit], of_speeds)


def mean_copy_ns(problem: PlacementProblem, *, of_speeds: bool = False) -> Floats:
    """[E]: the mean time of an edge's copy over the pairs of different devices that its ends may use, in ns.

    If both ends may use one device only, and the same, the copy within that device.

    Args:
        problem: E edges.
        of_speeds: gives the time at the mean speed instead.
    """
    edges = step_edges_of(problem)
    allowed = problem.units.allowed[problem.ops.unit]
    ends = allowed[edges.producer][:, :, None] & allowed[edges.consumer][:, None, :]
    apart = ends & ~np.eye(problem.num_devices, dtype=np.bool_)
    counted = np.where(apart.any(axis=(1, 2), keepdims=True), apart, ends)
    _, copy = edges.pairs(problem)
    pairs = (len(copy), problem.num_devices**2)
    return _mean(copy.reshape(pairs), counted.reshape(pairs), of_speeds)


def _mean(times: Ints, counted: Bools, of_speeds: bool) -> Floats:
    """The mean of each row over what is counted; with `of_speeds` the harmonic mean."""
    with np.errstate(divide="ignore"):
        total = np.where(counted, 1 / times if of_speeds else times, 0).sum(axis=1)
        count = counted.sum(axis=1)
        mean: Floats = count / total if of_speeds else total / np.maximum(1, count)
    return mean


def upward_rank_ns(schedule: Schedule) -> list[float]:
    """[N]: the longest path from an op's start to the end of the step, in mean times and copies, in ns (HEFT, equation 9)."""
    return longest_paths(schedule, mean_time_ns(schedule.problem), mean_copy_ns(schedule.problem))


def longest_paths(schedule: Schedule, time: Floats, copy: Floats) -> list[float]:
    """[N]: the longest path from an op's start to the end of the step, with one time for each op, [N], and for each copy, [E]."""
    longest: list[float] = time.tolist()
    wait: list[float] = copy.tolist()
    for op in reversed(range(len(longest))):
        longest[op] += max((wait[e] + longest[schedule.consumer[e]] for e in schedule.out_of[op]), default=0.0)
    return longest
