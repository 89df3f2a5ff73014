"""Minimum start time (MST): ops in their order, each on the device where it starts first."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, schedule_in_order

SAGA = (
    "J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling algorithms, 2024, "
    "arXiv:2403.07120, with the package SAGA, https://github.com/ANRGUSC/saga"
)


def earliest_start(ready: ReadyList, op: int) -> int:
    """The device where a ready op starts first; of equals, the one where it takes less time, then the lowest."""
    starts = ready.starts(np.array([op]))[0]
    return int(np.lexsort((ready.problem.ops.time_ns[op], starts))[0])


mst_schedule = partial(schedule_in_order, choose=earliest_start)
"""Schedules ops in their order, each on the device where it starts first. Time: (N + E) D."""


def solver() -> Heuristic:
    """Minimum start time (MST), by list scheduling."""
    return ready_list_scheduler("mst", mst_schedule, SAGA)
