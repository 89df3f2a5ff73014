"""Minimum execution time (MET): each unit on the device where its ops take least."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.min_min import BRAUN
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, schedule_in_order


def least_time(ready: ReadyList, op: int) -> int:
    """The device where the ops of an op's unit take least time together, the lowest of equals."""
    return int(ready.where_open(np.array([op]), ready.problem.unit_time_ns[ready.problem.ops.unit[[op]]]).argmin())


met_schedule = partial(schedule_in_order, choose=least_time)
"""Schedules ops in their order, each on the fastest device for its unit, however long it must wait there. Time: (N + E) D."""


def solver() -> Heuristic:
    """Minimum execution time (MET), by list scheduling."""
    return ready_list_scheduler("met", met_schedule, BRAUN)
