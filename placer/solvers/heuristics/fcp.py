"""FCP: few ready ops in order of their longest path, each on one of two devices."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import numpy as np

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.olb import first_idle
from placer.solvers.primitives.list_scheduling import Schedule, longest_paths, mean_copy_ns, mean_time_ns
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler

SOURCE = (
    "A. Rădulescu, A. J. C. van Gemund, On the complexity of list scheduling algorithms for distributed-memory systems, "
    "International Conference on Supercomputing (ICS), 1999, doi:10.1145/305138.305162"
)


def fcp_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ready ops by their longest path to the end of the step, each where it starts first of two devices.

    The two are the device that is idle first, and the sender of the op's last message. Only D ready ops are kept in order of
    their paths; the others wait in the order in which they became ready. The paper's processors are equal: paths here take the
    times of ops and copies at the mean speed of devices and links. Time: N log D + E, plus E D of the frame.
    """
    ready = ReadyList(problem)
    copy = mean_copy_ns(problem, of_speeds=True)
    longest, wait = longest_paths(ready.schedule, mean_time_ns(problem, of_speeds=True), copy), copy.tolist()
    first: list[tuple[float, int]] = []
    later: deque[int] = deque()

    def add(ops: list[int]) -> None:
        for op in ops:
            if len(first) < problem.num_devices:
                heappush(first, (-longest[op], op))
            else:
                later.append(op)

    add(list(ready.ready))
    while first:
        _, op = heappop(first)
        if later:
            add([later.popleft()])
        while (made_ready := ready.place(op, _one_of_two(ready, op, wait))) is None:
            pass
        add(made_ready)
    return ready.schedule


def _one_of_two(ready: ReadyList, op: int, wait: list[float]) -> int:
    """The device that is idle first, or the sender of the last message if the op starts earlier there."""
    idle, (_, sender) = first_idle(ready, op), last_message(ready.schedule, op, wait)
    starts = ready.starts(np.array([op]))[0]
    return idle if sender < 0 or starts[idle] <= starts[sender] else sender


def last_message(schedule: Schedule, op: int, wait: list[float]) -> tuple[float, int]:
    """When the last message to a ready op arrives if it is copied, and the device that it comes from; (0, -1) if there is none.

    Args:
        schedule: has all producers of the op.
        op: the op.
        wait: [E]: the time of each copy.
    """
    last, sender = 0.0, -1
    for e in schedule.into[op]:
        source = schedule.producer[e]
        if sender < 0 or schedule.end[source] + wait[e] > last:
            last, sender = schedule.end[source] + wait[e], schedule.choices(source)[0]
    return last, sender


def solver() -> Heuristic:
    """Fast critical path (FCP), by list scheduling."""
    return ready_list_scheduler("fcp", fcp_schedule, SOURCE)
