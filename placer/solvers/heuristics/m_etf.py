"""m-ETF: always the op and device that can start first, where memory allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from placer.problem.problem import PlacementProblem
from placer.solvers.primitives.incremental_memory import Room
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler
from placer.solvers.sources import BAECHI, HWANG, lines


class Queue:
    """Ready ops as one device sees them, for the one that can start first there."""

    def __init__(self, closed: Callable[[int], bool]) -> None:
        """`closed` says that an op is no longer to be had; it must stay so."""
        self.free = 0  # when the device ends what it has
        self._closed = closed
        self._later: list[tuple[int, int]] = []  # (ready, op)
        self._now: list[int] = []  # ops that were ready by `free`

    def add(self, op: int, ready: int) -> None:
        heappush(self._later, (ready, op))

    def first(self) -> tuple[int, int] | None:
        """The earliest start and its op, the first of equals."""
        while self._later and (self._later[0][0] <= self.free or self._closed(self._later[0][1])):
            heappush(self._now, heappop(self._later)[1])
        while self._now and self._closed(self._now[0]):
            heappop(self._now)
        if self._now:
            return self.free, self._now[0]
        return self._later[0] if self._later else None


class EarliestStart:
    """The m-ETF algorithm; see `m_etf_schedule`."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.schedule = Schedule(problem)
        self.devices = range(problem.num_devices)
        self.unit_of: list[int] = problem.ops.unit.tolist()
        self.open_to = [{d for d in self.devices if row[d]} for row in problem.units.allowed.tolist()]
        self.queues = [Queue(partial(self.closed, d)) for d in self.devices]
        self.placed = [False] * problem.num_ops
        self._room = Room(problem)

    def closed(self, device: int, op: int) -> bool:
        """Whether an op is not to be had for a device, now and later."""
        return self.placed[op] or device not in self.open_to[self.unit_of[op]]

    def add(self, op: int) -> None:
        """Queues an op whose producers are placed."""
        for d in self.open_to[self.unit_of[op]]:
            self.queues[d].add(op, self.schedule.ready(op, d))

    def offer(self, device: int) -> tuple[int, int] | None:
        """What a device would start next, and when."""
        return self.queues[device].first()

    def place(self, op: int, device: int, start: int) -> None:
        """Runs an op and queues what that makes ready."""
        self.placed[op] = True
        ready = self.schedule.place(op, device, start)
        self.queues[device].free = self.schedule.end[op]
        for other in ready:
            self.add(other)

    def run(self) -> Schedule:
        """Places everything."""
        for op, waits in enumerate(self.schedule.waits):
            if not waits:
                self.add(op)
        left = len(self.placed)
        while left:
            start, op, device = min((*offer, d) for d in self.devices if (offer := self.offer(d)))
            unit = self.unit_of[op]
            if len(self.open_to[unit]) > 1 and not self._room.take(unit, device):
                self.open_to[unit].remove(device)
                continue
            self._room.move(unit, device)
            self.open_to[unit] = {device}
            self.place(op, device, start)
            left -= 1
        return self.schedule


def m_etf_schedule(problem: PlacementProblem) -> Schedule:
    """Of all ready ops and devices, always takes the pair that can start first; of equals the first op, then device.

    A device whose memory limit would not hold with a unit is not offered to it; what no device has room for goes to the last
    that refuses. N log N and linear in edges, times devices, plus what `Room` takes where limits can bind. As in Baechi, but
    a unit is checked over the lifetimes of what it holds and brings, copies do not queue, and devices need not be equal.
    """
    return EarliestStart(problem).run()


m_etf = partial(
    list_scheduler,
    "m_etf",
    m_etf_schedule,
    lines(BAECHI, HWANG),
)
