"""m-ETF: always the op and device that can start first, within the memory limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.incremental_memory import IncrementalMemory
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler
from placer.solvers.sources import references

BAECHI = (
    "B. Jeon, L. Cai, C. Shetty, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta, Baechi: fast device placement of "
    "machine learning graphs, 2023, arXiv:2301.08695"
)
ETF = (
    "J.-J. Hwang, Y.-C. Chow, F. D. Anger, C.-Y. Lee, Scheduling precedence graphs in systems with interprocessor communication "
    "times, SIAM Journal on Computing 18(2), 1989, doi:10.1137/0218016"
)


class Queue:
    """The ready ops of one device, ordered by when they can start on it."""

    def __init__(self, closed: Callable[[int], bool]) -> None:
        """Makes an empty queue.

        Args:
            closed: whether an op can no longer be scheduled on this device; once true, it must stay true.
        """
        self.free = 0  # when the device ends its last op
        self._closed = closed
        self._future: list[tuple[int, int]] = []  # (ready, op), a heap
        self._startable: list[int] = []  # ops that are ready by `free`, a heap

    def add(self, op: int, ready: int) -> None:
        heappush(self._future, (ready, op))

    def first(self) -> tuple[int, int] | None:
        """The earliest start, in ns, and its op, the lowest of equals; None if no op is ready."""
        while self._future and (self._future[0][0] <= self.free or self._closed(self._future[0][1])):
            heappush(self._startable, heappop(self._future)[1])
        while self._startable and self._closed(self._startable[0]):
            heappop(self._startable)
        if self._startable:
            return self.free, self._startable[0]
        return self._future[0] if self._future else None


class EarliestStart:
    """The m-ETF algorithm; see `m_etf_schedule`."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.schedule = Schedule(problem)
        self.devices = range(problem.num_devices)
        self.unit_of: list[int] = problem.ops.unit.tolist()
        self.open_to = [{d for d in self.devices if row[d]} for row in problem.units.allowed.tolist()]
        self.queues = [Queue(partial(self.closed, d)) for d in self.devices]
        self.placed = [False] * problem.num_ops
        self._memory = IncrementalMemory(problem)

    def closed(self, device: int, op: int) -> bool:
        """Whether an op can no longer be scheduled on a device."""
        return self.placed[op] or device not in self.open_to[self.unit_of[op]]

    def add(self, op: int) -> None:
        """Queues an op whose producers are scheduled."""
        for d in self.open_to[self.unit_of[op]]:
            self.queues[d].add(op, self.schedule.ready(op, d))

    def offer(self, device: int) -> tuple[int, int] | None:
        """When a device could start its next op, in ns, and which."""
        return self.queues[device].first()

    def place(self, op: int, device: int, start: int) -> None:
        """Schedules an op and queues the ops that this makes ready."""
        self.placed[op] = True
        ready = self.schedule.place(op, device, start)
        self.queues[device].free = self.schedule.end[op]
        for other in ready:
            self.add(other)

    def run(self) -> Schedule:
        """Schedules all ops."""
        for op, waits in enumerate(self.schedule.waits):
            if not waits:
                self.add(op)
        remaining = len(self.placed)
        while remaining:
            start, op, device = min((*offer, d) for d in self.devices if (offer := self.offer(d)))
            unit = self.unit_of[op]
            if len(self.open_to[unit]) > 1 and not self._memory.move_if_fits(unit, device):
                self.open_to[unit].remove(device)
                continue
            self._memory.move(unit, device)
            self.open_to[unit] = {device}
            self.place(op, device, start)
            remaining -= 1
        return self.schedule


def m_etf_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules, of all pairs of a ready op and a device, the one that can start first; of equals the lowest op, then device.

    Earliest task first (Hwang, Chow, Anger, Lee 1989) with memory limits (Baechi, 2023). A device is no longer offered to a
    unit that would exceed its memory limit; a unit that fits nowhere goes to the last device that remains. Differs from Baechi:
    memory is checked over lifetimes, copies do not queue, and devices need not be equal. Time: (N log N + E) D, plus that of
    `IncrementalMemory`.
    """
    return EarliestStart(problem).run()


def solver() -> Heuristic:
    """Memory-constrained earliest task first (m-ETF) of Baechi."""
    return list_scheduler("m_etf", m_etf_schedule, references(BAECHI, ETF))
