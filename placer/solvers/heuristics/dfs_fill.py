"""Filling devices in a depth-first order, which keeps branches together."""

from __future__ import annotations

from functools import partial

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.filling import fill
from placer.solvers.sources import TARNAWSKI


def dfs_assignment(problem: PlacementProblem) -> Assignment:
    """GPU after GPU, then the CPU, in a topological order that goes on with what has just become ready.

    The greedy for latency of its authors contracts cycles of units to blocks and counts the sum of sizes. Here a unit comes
    when its first op does, and all that a device holds counts over its lifetime. Linear, and then see `fill`.
    """
    edges = step_edges_of(problem)
    waits = edges.waits_list.copy()
    unit_of = problem.ops.unit.tolist()
    stack = [op for op in range(problem.num_ops) if not waits[op]]
    units: dict[int, None] = {}
    while stack:
        op = stack.pop()
        units.setdefault(unit_of[op])
        for e in range(edges.start_list[op], edges.start_list[op + 1]):
            to = edges.consumer_list[e]
            waits[to] -= 1
            if not waits[to]:
                stack.append(to)
    return fill(problem, list(units))


dfs_fill = partial(
    Heuristic,
    "dfs_fill",
    dfs_assignment,
    TARNAWSKI,
)
