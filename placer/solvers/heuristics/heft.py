"""HEFT: ops in the order of their longest way to the end, each on the device where it ends first."""

from __future__ import annotations

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, upward_rank_ns

SOURCE = (
    "H. Topcuoglu, S. Hariri, M.-Y. Wu, Performance-effective and low-complexity task scheduling for heterogeneous computing, "
    "IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, doi:10.1109/71.993206"
)


def heft_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ops by descending upward rank, each on the device where it ends first, in an idle interval if it fits in one.

    The algorithm of Topcuoglu, Hariri, Wu (2002), extended to this problem. Means are over the allowed devices. Once an op of a
    unit has a device, the unit's other ops follow it. The time of a copy depends on both devices. Ignores memory limits.
    Time: (N + E) D, plus the search through idle intervals.
    """
    schedule = Schedule(problem)
    rank = upward_rank_ns(schedule)
    for op in sorted(range(problem.num_ops), key=lambda op: (-rank[op], op)):
        schedule.place(op, *earliest_end(schedule, op))
    return schedule


def earliest_end(schedule: Schedule, op: int) -> tuple[int, int]:
    """The device where an op ends first, the lowest of equals, and when it starts there, in ns."""
    starts = [(schedule.earliest_start(op, d), d) for d in schedule.choices(op)]
    _, device, start = min((start + schedule.time_ns[op][d], d, start) for start, d in starts)
    return device, start


def solver() -> Heuristic:
    """Heterogeneous earliest finish time (HEFT), by list scheduling."""
    return list_scheduler("heft", heft_schedule, SOURCE)
