"""Fills devices in a depth-first order, which keeps the ops of a branch together."""

from __future__ import annotations

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import step_edges_of
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.filling import fill

SOURCE = (
    "J. Tarnawski, A. Phanishayee, N. R. Devanur, D. Mahajan, F. Nina Paravecino, Efficient algorithms for device placement of "
    "DNN graph operators, Advances in Neural Information Processing Systems (NeurIPS) 33, 2020, arXiv:2006.16423"
)


def dfs_assignment(problem: PlacementProblem) -> Assignment:
    """Fills the GPUs one after the other, then the CPU, in depth-first topological order.

    The greedy algorithm for latency of Tarnawski et al. (2020), with two differences. They contract cycles of units to blocks;
    here a unit is placed when its first op is visited. They count the sum of sizes; here memory is counted over lifetimes.
    Time: N + E, plus that of `fill`.
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
            consumer = edges.consumer_list[e]
            waits[consumer] -= 1
            if not waits[consumer]:
                stack.append(consumer)
    return fill(problem, list(units))


def solver() -> Heuristic:
    """Devices filled in depth-first order."""
    return Heuristic("dfs_fill", dfs_assignment, SOURCE)
