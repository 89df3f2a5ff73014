"""FLB: one ready op that waits for a message, or one that waits for a device, whichever starts first."""

from __future__ import annotations

from functools import partial

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.fcp import last_message
from placer.solvers.heuristics.olb import first_idle
from placer.solvers.primitives.list_scheduling import Schedule, mean_copy_ns
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, schedule_pairs

SOURCE = (
    "A. Rădulescu, A. J. C. van Gemund, FLB: fast load balancing for distributed-memory machines, International Conference on"
    " Parallel Processing (ICPP), 1999, doi:10.1109/ICPP.1999.797442"
)


def flb_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the one of two ready ops that starts first.

    The enabling device of an op is the sender of its last message. If the message arrives when the enabling device is idle
    already, the op waits for the message, and starts first on that device. The first candidate is the op that starts first of
    those, on its enabling device. The second candidate is the op whose last message arrives first of all others, on the device
    that is idle first. The paper's processors are equal: messages take the time at the mean speed of links. Time: N W for at most
    W ready ops.
    """
    wait = mean_copy_ns(problem, of_speeds=True).tolist()
    message: dict[int, tuple[float, int]] = {}
    return schedule_pairs(problem, partial(_earlier_start, wait, message))


def _earlier_start(wait: list[float], message: dict[int, tuple[float, int]], ready: ReadyList, ops: Ints) -> tuple[int, int]:
    """The candidate that starts first, and its device.

    Args:
        wait: [E]: the time of each copy.
        message: the last message of each op; those of new ops are added.
        ready: the schedule so far.
        ops: the ready ops.
    """
    starts = ready.starts(ops)
    enabled: list[tuple[int, int, int, int]] = []  # start, device, arrival, op
    others: list[tuple[float, int, int]] = []  # arrival of the last message, op, row
    for row, op in enumerate(ops.tolist()):
        if op not in message:
            message[op] = last_message(ready.schedule, op, wait)
        last, sender = message[op]
        if sender >= 0 and last >= ready.free[sender] and ready.open[ready.problem.ops.unit[op], sender]:
            enabled.append((int(starts[row, sender]), sender, int(ready.arrival[op, sender]), op))
        else:
            others.append((last, op, row))
    if others:
        _, op, row = min(others)
        idle = first_idle(ready, op)
        if not enabled or starts[row, idle] < min(enabled)[0]:
            return op, idle
    _, device, _, op = min(enabled)
    return op, device


def solver() -> Heuristic:
    """Fast load balancing (FLB), by list scheduling."""
    return ready_list_scheduler("flb", flb_schedule, SOURCE)
