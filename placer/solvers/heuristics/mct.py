"""Minimum completion time (MCT): ops in their order, each on the device where it ends first."""

from __future__ import annotations

from functools import partial

from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.min_min import BRAUN
from placer.solvers.primitives.ready_list import earliest_end, ready_list_scheduler, schedule_in_order

mct_schedule = partial(schedule_in_order, choose=earliest_end)
"""Schedules ops in their order, each on the device where it ends first. Time: (N + E) D."""


def solver() -> Heuristic:
    """Minimum completion time (MCT), by list scheduling."""
    return ready_list_scheduler("mct", mct_schedule, BRAUN)
