"""m-TOPO: devices filled evenly in topological order."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.filling import fill, in_order, unit_bytes
from placer.solvers.sources import BAECHI


def m_topo_assignment(problem: PlacementProblem) -> Assignment:
    """Fills each device to an equal share of all memory plus the largest unit's, units in the order of their first op.

    As in Baechi, whose devices are equal GPUs: here CPUs have a share too and come last. A unit that may not be where its
    turn is goes on to the next device, and memory limits hold over lifetimes besides. For the cost see `fill`.
    """
    size = unit_bytes(problem)
    return fill(problem, in_order(problem), int(size.sum()) // problem.num_devices + int(np.max(size, initial=0)))


m_topo = partial(
    Heuristic,
    "m_topo",
    m_topo_assignment,
    BAECHI,
)
