"""HEFT: ops by how far they are from the end, each where it finishes first."""

from __future__ import annotations

from functools import partial

from placer.problem.problem import PlacementProblem
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, upward_rank_ns
from placer.solvers.sources import TOPCUOGLU


def heft_schedule(problem: PlacementProblem) -> Schedule:
    """Takes ops by descending upward rank and gives each the device on which it ends first, in an idle stretch if one fits.

    Linear in edges times devices for the ranks and the choices, plus the idle stretches looked through. As in the paper,
    save for what a problem here has more: means are over the devices that are allowed, an op of a unit that has its device
    follows it, and a copy's cost depends on both ends. Knows no memory limits.
    """
    schedule = Schedule(problem)
    rank = upward_rank_ns(schedule)
    for op in sorted(range(problem.num_ops), key=lambda op: (-rank[op], op)):
        schedule.place(op, *earliest(schedule, op))
    return schedule


def earliest(schedule: Schedule, op: int) -> tuple[int, int]:
    """The device on which an op ends first, the first of equals, and when it would start there."""
    starts = [(schedule.gap(op, d), d) for d in schedule.choices(op)]
    _, device, start = min((start + schedule.time_ns[op][d], d, start) for start, d in starts)
    return device, start


heft = partial(
    list_scheduler,
    "heft",
    heft_schedule,
    TOPCUOGLU,
)
