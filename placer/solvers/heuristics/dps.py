"""DPS: ready ops by how much farther they are from the end of the step than from its beginning."""

from __future__ import annotations

from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import Schedule, mean_copy_ns, upward_rank_ns
from placer.solvers.primitives.ready_list import ReadyList, earliest_end, ready_list_scheduler, schedule_in_order

SOURCE = (
    "I. Ahmad, M. K. Dhodhi, R. Ul-Mustafa, DPS: dynamic priority scheduling heuristic for heterogeneous computing systems, IEE "
    "Proceedings: Computers and Digital Techniques 145(6), 1998, doi:10.1049/ip-cdt:19982345"
)


def dps_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules ready ops by descending bottom level less top level, each on the device where it ends first.

    The bottom level is the longest path from the op's start to the end of the step, in mean times. The top level is the longest
    path to the op's start, where ops and copies take their times on the devices that were chosen, and the last copy takes its
    mean time.
    Time: (N + E) D.
    """
    bottom, copy = upward_rank_ns(Schedule(problem)), mean_copy_ns(problem).tolist()
    done = [-1] * problem.num_ops  # the longest path to the end of a scheduled op; -1 if it is not known yet

    def longest_ns(schedule: Schedule, op: int) -> int:
        if done[op] < 0:
            (device,) = schedule.choices(op)
            ways = (
                done[source] + schedule.copy_ns[e][schedule.choices(source)[0]][device]
                for e in schedule.into[op]
                for source in [schedule.producer[e]]
            )
            done[op] = max(ways, default=0) + schedule.time_ns[op][device]
        return done[op]

    def rank(ready: ReadyList, op: int) -> float:
        edges, schedule = ready.schedule.into[op], ready.schedule
        return bottom[op] - max((longest_ns(schedule, schedule.producer[e]) + copy[e] for e in edges), default=0.0)

    return schedule_in_order(problem, earliest_end, rank)


def solver() -> Heuristic:
    """Dynamic priority scheduling (DPS), by list scheduling."""
    return ready_list_scheduler("dps", dps_schedule, SOURCE)
