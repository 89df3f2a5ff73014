"""WBA: a random choice of the ready ops and devices that lengthen the schedule least."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.answer import answer
from placer.solvers.base import Objective, Solution
from placer.solvers.primitives.list_scheduling import Schedule
from placer.solvers.primitives.ready_list import NEVER, ReadyList, schedule_pairs, within_limits

SOURCE = (
    "J. Blythe, S. Jain, E. Deelman, Y. Gil, K. Vahi, A. Mandal, K. Kennedy, Task scheduling strategies for workflow-based "
    "applications in grids, IEEE International Symposium on Cluster Computing and the Grid (CCGrid), 2005, "
    "doi:10.1109/CCGRID.2005.1558639"
)


def wba_schedule(problem: PlacementProblem, width: float, draw: Callable[[int], int]) -> Schedule:
    """Schedules a random pair of op and device among those that lengthen the schedule least, until no ready op is left.

    Ops that become ready wait until all ops that were ready before are scheduled. Time: N W D for at most W ready ops.

    Args:
        problem: N ops on D devices.
        width: pairs are drawn from that lengthen the schedule by at most this share, 0 to 1, of the way from least to most.
        draw: draws a number below the number that it gets.
    """
    return schedule_pairs(problem, partial(_draw_pair, width, draw), in_batches=True)


def _draw_pair(width: float, draw: Callable[[int], int], ready: ReadyList, ops: Ints) -> tuple[int, int]:
    ends = ready.ends(ops)
    longer = np.maximum(0, ends - ready.free.max())
    least, most = longer.min(), longer[ends < NEVER].max()
    rows, devices = np.nonzero((longer <= least + width * (most - least)) & (ends < NEVER))
    drawn = draw(len(rows))
    return int(ops[rows[drawn]]), int(devices[drawn])


@dataclass(frozen=True, slots=True)
class WorkflowBasedAllocation:
    """Workflow-based allocation (WBA), by list scheduling."""

    name: str = "wba"
    width: float = 0.5

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Empty: whether a memory limit is exceeded depends on the seed."""
        return ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Makes one schedule, by the seed."""
        started, rng = time.perf_counter(), np.random.default_rng(seed)
        schedule = wba_schedule(problem, self.width, lambda below: int(rng.integers(below)))
        return answer(
            problem,
            objective,
            within_limits(problem, schedule.assignment),
            solver=self.name,
            started=started,
            stop_detail="one random schedule",
        )

    def cite(self) -> str:
        """The paper."""
        return SOURCE


solver = WorkflowBasedAllocation
