"""BIL: ready ops by the length of the rest of the step in the best case, each where that rest could end first."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.list_scheduling import LEVEL_OP_RUNS, Schedule
from placer.solvers.primitives.ready_list import NEVER, ReadyList, ready_list_scheduler, schedule_pairs

SOURCE = (
    "H. Oh, S. Ha, A static scheduling heuristic for heterogeneous processors, European Conference on Parallel Processing "
    "(Euro-Par), 1996, doi:10.1007/BFb0024750"
)


def bil_schedule(problem: PlacementProblem) -> Schedule:
    """Schedules the ready op whose best imaginary makespan is the longest, on the device where it is the shortest.

    The best imaginary level of an op on a device is the time from its start to the end of the step, if later ops choose devices
    freely and never wait. The makespan adds when the device is idle. With k ready ops, the k-th shortest makespan of each op is
    compared, the longest if k exceeds D; the next shorter ones decide between equals. With more ready ops than devices, the
    op's time counts k / D times in the choice of its device. Time: N W D log D for at most W ready ops.
    """
    return schedule_pairs(problem, partial(_longest_makespan, best_imaginary_level_ns(problem)))


def best_imaginary_level_ns(problem: PlacementProblem) -> Ints:
    """[N, D]: the time from an op's start on a device to the end of the step, if later ops choose devices and never wait."""
    schedule = Schedule(problem)
    level = np.where(problem.units.allowed[problem.ops.unit], problem.ops.time_ns, NEVER)
    for op in reversed(range(problem.num_ops)):
        spend(LEVEL_OP_RUNS)
        if out := schedule.out_of[op]:
            rest = np.array(schedule.copy_ns[out.start : out.stop]) + level[schedule.consumer[out.start : out.stop], None, :]
            level[op] = np.minimum(NEVER, level[op] + rest.min(axis=2).max(axis=0))
    return level


def _longest_makespan(level: Ints, ready: ReadyList, ops: Ints) -> tuple[int, int]:
    makespans = ready.where_open(ops, ready.free + level[ops])
    kth = min(len(ops), ready.problem.num_devices)
    ordered = np.sort(makespans, axis=1)[:, :kth]
    finite = np.minimum(ordered, np.where(ordered < NEVER, ordered, 0).max(axis=1, keepdims=True))
    row = int(np.lexsort((ops, *-finite.T))[0])
    op, share = int(ops[row]), max(0.0, len(ops) / ready.problem.num_devices - 1)
    return op, int((makespans[row] + share * ready.problem.ops.time_ns[op]).argmin())


def solver() -> Heuristic:
    """Best imaginary level (BIL), by list scheduling."""
    return ready_list_scheduler("bil", bil_schedule, SOURCE)
