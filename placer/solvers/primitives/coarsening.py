"""Joins units to fewer and fewer clusters, so that few bytes pass between clusters: the first half of a multilevel partition."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.edges import edges_of
from placer.problem.problem import PlacementProblem

KARYPIS = (
    "G. Karypis, V. Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, SIAM Journal on "
    "Scientific Computing 20(1), 1998, doi:10.1137/S1064827595287997"
)

MAX_REDUCTION_RATIO = 0.95
"""Coarsening ends after a round in which more than this share of the clusters remains."""
FREE_COPY_COUNT = 1e-6
"""Number of copies that a tensor counts for if its copies are free."""


def edges(problem: PlacementProblem, among: Ints) -> tuple[Ints, Floats]:
    """Pairs of units joined by tensors or control edges, [E, 2], and the cost of their copies, [E] in ns.

    The costs are means over pairs of different devices in `among`. The copy of a tensor with n users costs an nth for each user,
    and so does one of n control edges out of an op or into an op.
    """
    apart = ~np.eye(len(among), dtype=np.bool_)
    latency, per_byte = (
        float(cost[np.ix_(among, among)][apart].mean()) for cost in (problem.links.latency_ns, problem.links.ns_per_byte)
    )
    table = edges_of(problem)
    copy = np.where(table.free, FREE_COPY_COUNT, table.count) * (latency + per_byte * table.nbytes)
    sharing = np.bincount(table.message, minlength=len(table.op))[table.message]
    control = table.consumer[table.is_control]
    sharing[table.is_control] = np.maximum(sharing[table.is_control], np.bincount(control, minlength=problem.num_ops)[control])
    ends = problem.ops.unit[np.column_stack([table.producer, table.consumer])]
    return _joined(ends, copy[table.message] / sharing, problem.num_units)


def coarsened(kind: Ints, load: Floats, pairs: Ints, weight: Floats, levels: list[tuple[int, Floats]]) -> Iterator[Ints]:
    """Yields, for each level, the number of each unit's cluster, [U]. Each level joins clusters of the level before.

    Heavy-edge matching in rounds (Karypis, Kumar 1998). An edge's weight is divided by the work of both ends, so that clusters
    grow at equal rates. A unit without work is joined with a neighbour first.

    Args:
        kind: [U]; units of different kinds are not joined.
        load: [U, L], the loads of each unit; the first is its work.
        pairs: [E, 2], the edges between units.
        weight: [E], their weights.
        levels: for each level the number of clusters, and [L] the largest loads of a cluster of several units.
    """
    number, root = np.arange(len(load)), _idle_joined(kind, load, pairs, weight)
    for count, max_load in levels:
        while True:
            roots, group = np.unique(root, return_inverse=True)
            summed = np.zeros((len(roots), load.shape[1]))
            np.add.at(summed, group, load)
            number, load, kind = group[number], summed, kind[roots]
            pairs, weight = _joined(group[pairs], weight, len(roots))
            root = _matched(kind.tolist(), load, max_load.tolist(), pairs, weight, len(roots) - count)
            if len(roots) - (root != np.arange(len(root))).sum() > MAX_REDUCTION_RATIO * len(roots):
                break
        root = np.arange(len(roots))
        yield number


def _idle_joined(kind: Ints, load: Floats, pairs: Ints, weight: Floats) -> Ints:
    """[U]: the unit that each is joined with: for a unit without work a neighbour that has work, or another one without work."""
    root, idle = np.arange(len(load)), load[:, 0] == 0
    order = np.argsort(weight, kind="stable")
    for a, b in (pairs[order].T, pairs[order].T[::-1]):
        along = idle[a] & ~idle[b] & (kind[a] == kind[b])
        root[a[along]] = b[along]
    alone = np.flatnonzero(idle & (root == np.arange(len(root))))
    _, first, of_kind = np.unique(kind[alone], return_index=True, return_inverse=True)
    root[alone] = alone[first][of_kind.reshape(-1)]
    return root


def _matched(kind: list[int], load: Floats, most: list[float], pairs: Ints, weight: Floats, surplus: int) -> Ints:
    """[C]: for each cluster the one that it is joined with, or itself; at most `surplus` are joined."""
    work = np.maximum(1.0, load[:, 0])
    order = np.argsort(-weight / (work[pairs[:, 0]] * work[pairs[:, 1]]), kind="stable")
    loads, root, free = load.tolist(), list(range(len(load))), [True] * len(load)
    for a, b in pairs[order].tolist():
        if surplus <= 0:
            break
        fits = free[a] and free[b] and kind[a] == kind[b]
        if fits and all(x + y <= z for x, y, z in zip(loads[a], loads[b], most, strict=True)):
            free[a] = free[b] = False
            root[b] = a
            surplus -= 1
    return np.array(root, np.int64)


def _joined(pairs: Ints, weight: Floats, units: int) -> tuple[Ints, Floats]:
    """Sums parallel edges, with the lower end first; omits loops."""
    low, high = pairs.min(axis=1, initial=units), pairs.max(axis=1, initial=-1)
    apart = low != high
    key, edge = np.unique(low[apart] * units + high[apart], return_inverse=True)
    summed: Floats = np.bincount(edge, weight[apart], len(key)).astype(np.float64)
    return np.column_stack(np.divmod(key, max(1, units))), summed
