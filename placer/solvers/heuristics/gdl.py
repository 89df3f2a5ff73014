"""GDL: ready ops and devices by dynamic level."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Floats, Ints
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import LEVEL_OP_RUNS, Schedule, longest_paths
from placer.solvers.primitives.ready_list import NEVER, ReadyList, ready_list_scheduler, schedule_pairs

SOURCE = (
    "G. C. Sih, E. A. Lee, A compile-time scheduling heuristic for interconnection-constrained heterogeneous processor "
    "architectures, IEEE Transactions on Parallel and Distributed Systems 4(2), 1993, doi:10.1109/71.207593"
)


def gdl_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the ready op with the highest global dynamic level, on the device where its dynamic level is the highest.

    The dynamic level of an op on a device is the sum of

    - the longest path from the op to the end of the step, in median times and without copies;
    - minus the time at which it would start there;
    - its median time minus its time there;
    - the time that one later op can save by being near: the op that takes most bytes from it (descendant consideration).

    The global dynamic level of an op is its highest dynamic level, plus the difference between that and the second highest; an op
    with one device has no difference. Time: N W D + E D² for at most W ready ops.
    """
    schedule = Schedule(problem)
    median = _median_ns(problem)
    path = np.array(longest_paths(schedule, median, np.zeros(len(schedule.consumer))))
    static = path[:, None] + median[:, None] - problem.ops.time_ns + _near_descendant_ns(schedule, median)
    return schedule_pairs(problem, partial(_highest_level, static))


def _highest_level(static: Floats, ready: ReadyList, ops: Ints) -> tuple[int, int]:
    starts = ready.starts(ops)
    level = np.where(starts == NEVER, -np.inf, static[ops] - starts)
    ordered = np.sort(level, axis=1)
    best, second = ordered[:, -1], ordered[:, max(0, ordered.shape[1] - 2)]
    row = int(np.where(np.isinf(second), best, 2 * best - second).argmax())
    return int(ops[row]), int(level[row].argmax())


def _median_ns(problem: PlacementProblem) -> Floats:
    """[N]: the median of an op's times on the devices it may use."""
    times = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, np.nan)
    median: Floats = np.nanmedian(times, axis=1) if problem.num_ops else np.zeros(0)
    return median


def _near_descendant_ns(schedule: Schedule, median: Floats) -> Floats:
    """[N, D]: what the op that takes most bytes from an op on a device saves there: its median time, less the shorter of two.

    These are its time on the same device, and the least copy and time on another. 0 if no op takes any bytes.
    """
    problem, saved = schedule.problem, np.zeros((schedule.problem.num_ops, schedule.problem.num_devices))
    edges = step_edges_of(problem)
    nbytes = edges.nbytes[edges.message]
    time = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, NEVER)
    for op, out in enumerate(schedule.out_of):
        spend(LEVEL_OP_RUNS)
        if out:
            e = out.start + int(nbytes[out.start : out.stop].argmax())
            there = np.array(schedule.copy_ns[e]) + time[schedule.consumer[e]]
            np.fill_diagonal(there, time[schedule.consumer[e]])
            saved[op] = median[schedule.consumer[e]] - there.min(axis=1)
    return saved


def solver() -> Heuristic:
    """Generalized dynamic level (GDL), by list scheduling."""
    return ready_list_scheduler("gdl", gdl_schedule, SOURCE)
