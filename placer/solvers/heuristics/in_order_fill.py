"""Filling devices in the order of execution, as accelerate's device maps do."""

from __future__ import annotations

from functools import partial

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.filling import fill, in_order
from placer.solvers.sources import GUGGER


def in_order_assignment(problem: PlacementProblem) -> Assignment:
    """GPU after GPU, then the CPU, units in the order of their first op.

    In accelerate the pieces are modules and only weights count. Here they are units, and all that a device holds counts over
    its lifetime. No room is kept for bringing a layer back from the CPU, as here it runs there. For the cost see `fill`.
    """
    return fill(problem, in_order(problem))


in_order_fill = partial(
    Heuristic,
    "in_order_fill",
    in_order_assignment,
    GUGGER,
)
