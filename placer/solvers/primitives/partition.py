"""Multilevel spectral partitions: work divided among several accelerators, with few copies between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.grouping import components
from placer.problem.memory import held_by_unit, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.coarsening import coarsened, edges
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.two_sided_relaxation import two_sided_relaxation
from placer.solvers.reductions.reduced import Reduced

BARNARD = (
    "S. T. Barnard, H. D. Simon, Fast multilevel implementation of recursive spectral bisection for partitioning unstructured "
    "problems, Concurrency: Practice and Experience 6(2), 1994, doi:10.1002/cpe.4330060203"
)

CLUSTERS_PER_ACCELERATOR = (16, 4, 1)
"""Number of clusters for each accelerator, by level."""
MAX_CLUSTERS = 500
"""Limit of the number of clusters that are ordered. Coarsening leaves more if units have few edges."""
MAX_IMBALANCE = 1.05
"""Limit of the loads of a cluster at the last level, as a multiple of an equal share."""


def partitions(problem: PlacementProblem) -> Iterator[tuple[Reduced, Assignment]]:
    """Yields partitions: reduced problems, whose units are clusters, from finer to coarser, and an assignment of each.

    1. A minimum cut between the host and all accelerators together decides which units are on an accelerator.
    2. Those units are coarsened to clusters.
    3. The clusters are divided in two, repeatedly (Barnard, Simon 1994). They are ordered by the second eigenvector of the
       Laplacian (Fiedler 1973), which keeps the forward and backward ops of a layer together and separates towers. Each half has
       half of the work, or half of the memory.
    4. Clusters are moved to balance the loads, with and without regard to memory limits, so that partitions for higher limits
       include those without limits.

    Yields nothing with fewer than two accelerators. A partition may exceed memory limits.
    """
    group = accelerators(problem)
    relaxed = two_sided_relaxation(problem) if len(group) > 1 else None
    if relaxed is None:
        return
    side = minimum_cut(relaxed).assignment.device
    is_accelerator = np.isin(np.arange(problem.num_devices), group)
    open_to = problem.units.allowed & (is_accelerator == (side == 1)[:, None])
    open_to = np.where(np.any(open_to, axis=1)[:, None], open_to, problem.units.allowed)
    spread = np.all(open_to[:, group], axis=1)
    on_one = Assignment(np.where(spread, group[0], open_to.argmax(axis=1)))
    held = held_by_unit(problem, on_one, int(group[0]), int(np.argmax(usage(problem, on_one)[group[0]])))
    load = np.where(spread[:, None], np.column_stack([problem.unit_time_ns[:, group].mean(axis=1), held]), 0.0)
    pairs, weight = edges(problem, group)
    inside = spread[pairs].all(axis=1)
    _, kind = np.unique(open_to, axis=0, return_inverse=True)
    share = load.sum(axis=0) / len(group)
    levels = [(count * len(group), MAX_IMBALANCE * share / count**0.5) for count in CLUSTERS_PER_ACCELERATOR]
    for number in coarsened(kind.reshape(-1), load, pairs[inside], weight[inside], levels):
        reduced = Reduced.identity(problem.with_allowed(open_to)).joined(number, open_to)
        coarse = reduced.problem
        loads = np.zeros((coarse.num_units, 2))
        np.add.at(loads, reduced.unit, load)
        nodes = np.flatnonzero(coarse.units.allowed[:, group].all(axis=1))
        if len(nodes) > MAX_CLUSTERS:
            continue
        distance = _distances(problem, group)
        joined = _joined(coarse, group)[np.ix_(nodes, nodes)]
        for measure in loads[nodes].T:
            halves = np.zeros(len(nodes), np.int64)
            _split(halves, np.arange(len(nodes)), 0, len(group), measure, joined)
            limits = problem.devices.memory_limit_bytes[group]
            parts = [halves.copy() for _ in range(3)]
            _balance(parts[1], loads[nodes], np.full(len(group), -1), joined, distance)
            _balance(parts[2], loads[nodes], limits, joined, distance)
            for part in np.unique(parts, axis=0):
                device = coarse.units.allowed.argmax(axis=1)
                device[nodes] = group[part]
                yield reduced, Assignment(device)


def accelerators(problem: PlacementProblem) -> Ints:
    """The devices of another kind than the host's that a unit may use; with one kind only, all devices but the host."""
    kinds = np.array(problem.devices.kinds)
    others = kinds != kinds[problem.devices.host]
    others = others if others.any() else np.arange(problem.num_devices) != problem.devices.host
    return np.flatnonzero(others & problem.units.allowed.any(axis=0))


def _joined(problem: PlacementProblem, group: Ints) -> Floats:
    """[U, U]: the cost of the copies between two units, in whole ns."""
    pairs, weight = edges(problem, group)
    result = np.zeros((problem.num_units, problem.num_units))
    result[pairs[:, 0], pairs[:, 1]] = result[pairs[:, 1], pairs[:, 0]] = np.rint(weight)
    return result


def _distances(problem: PlacementProblem, group: Ints) -> Floats:
    """[K, K]: the time of a copy between two devices of the group, divided by the mean over all pairs."""
    nbytes = float(problem.tensors.copy_bytes.mean()) if len(problem.tensors.copy_bytes) else 0.0
    cost = (problem.links.latency_ns + nbytes * problem.links.ns_per_byte)[np.ix_(group, group)]
    return cost / max(1.0, float(cost.sum()) / (len(group) * (len(group) - 1)))


def _split(part: Ints, nodes: Ints, first: int, count: int, load: Floats, joined: Floats) -> None:
    """Divides nodes into `count` parts with equal loads, by halves, and writes the parts' numbers, from `first` on, to `part`."""
    if count == 1 or len(nodes) < 2:
        part[nodes] = first
        return
    order = nodes[_order(joined[np.ix_(nodes, nodes)])]
    half = count // 2
    early = np.cumsum(load[order]) - load[order] / 2 < load[order].sum() * half / count
    _split(part, order[early], first, half, load, joined)
    _split(part, order[~early], first + half, count - half, load, joined)


def _order(joined: Floats) -> Ints:
    """The nodes by connected piece, in each by the entries of the eigenvector of its Laplacian's second-smallest eigenvalue."""
    pieces = [np.array(piece) for piece in components(len(joined), *np.nonzero(joined))]
    ordered = []
    for piece in pieces:
        laplacian = -joined[np.ix_(piece, piece)]
        laplacian[np.diag_indices(len(piece))] = -laplacian.sum(axis=1)
        ordered.append(piece[np.argsort(np.linalg.eigh(laplacian)[1][:, min(1, len(piece) - 1)], kind="stable")])
    return np.concatenate(ordered)


def _balance(part: Ints, load: Floats, limit: Ints, joined: Floats, distance: Floats) -> None:
    """Moves nodes between parts, the best move first, while that lowers the sum of copies and imbalance.

    The imbalance is the sum of the squared loads divided by the total load, which is least if all loads are equal. Bytes over a
    memory limit have a penalty: an excess of the whole limit weighs as much as all of the work.
    """
    parts = len(limit)
    work, held = load.T
    total = max(1.0, float(work.sum()))
    per_byte = np.where(limit < 0, 0.0, total / np.maximum(1, limit))

    for _ in range(len(part) * parts):
        current = np.arange(parts) == part[:, None]  # [C, K]
        copies = joined @ current @ distance  # [C, K]: the copies between a node on each part and all others
        busy, full = work @ current, held @ current
        gaining = busy + np.where(current, 0, work[:, None])
        losing = busy[part] - work
        squares = gaining**2 + (losing**2)[:, None] - busy**2 - (busy[part] ** 2)[:, None]
        over = (np.maximum(0, full + held[:, None] - limit) - np.maximum(0, full - limit)) * per_byte
        relief = (np.maximum(0, full - limit) * per_byte)[part] - np.maximum(0, full[part] - held - limit[part]) * per_byte[part]
        added = copies - copies[current][:, None] + squares / total + over - relief[:, None]
        added[current] = 0
        node, to = np.unravel_index(int(np.argmin(added)), added.shape)
        if added[node, to] > -1:
            break
        part[node] = to
