"""Opportunistic load balancing (OLB): ops in their order, each on the device that is idle first."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.min_min import BRAUN
from placer.solvers.primitives.ready_list import ReadyList, ready_list_scheduler, schedule_in_order


def first_idle(ready: ReadyList, op: int) -> int:
    """The device, of those that an op may use, that ends its last op first; the lowest of equals."""
    return int(ready.where_open(np.array([op]), ready.free[None]).argmin())


olb_schedule = partial(schedule_in_order, choose=first_idle)
"""Schedules ops in their order, each on the device that is idle first, whatever it takes there. Time: (N + E) D."""


def solver() -> Heuristic:
    """Opportunistic load balancing (OLB), by list scheduling."""
    return ready_list_scheduler("olb", olb_schedule, BRAUN)
