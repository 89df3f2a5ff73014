"""m-TOPO: devices filled to equal shares in topological order."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.m_etf import BAECHI
from placer.solvers.primitives.filling import fill, in_order, unit_bytes


def m_topo_assignment(problem: PlacementProblem) -> Assignment:
    """Fills devices in turn with units in the order of their first op, each to an equal share of the memory of all units.

    The share is increased by the size of the largest unit. Baechi (2023) has equal GPUs. Here CPUs have a share too and are
    filled last. A unit that may not be on a device goes to the next. Memory limits hold over lifetimes as well.
    Time: that of `fill`.
    """
    size = unit_bytes(problem)
    return fill(problem, in_order(problem), int(size.sum()) // problem.num_devices + int(np.max(size, initial=0)))


def solver() -> Heuristic:
    """Memory-constrained topological order (m-TOPO) of Baechi."""
    return Heuristic("m_topo", m_topo_assignment, BAECHI)
