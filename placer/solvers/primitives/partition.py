"""Work spread over several accelerators with few copies between them: multilevel spectral partitions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.grouping import components
from placer.problem.memory import usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.coarsening import coarsened, edges
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.repair import held_by_unit
from placer.solvers.primitives.two_sided_relaxation import two_sided_relaxation
from placer.solvers.reductions.reduced import Reduced

BARNARD = (
    "S. T. Barnard, H. D. Simon, Fast multilevel implementation of recursive spectral bisection for partitioning unstructured "
    "problems, Concurrency: Practice and Experience 6(2), 1994, doi:10.1002/cpe.4330060203"
)

GRAINS = (16, 4, 1)
"""Clusters for each accelerator."""
MOST = 500
"""Clusters of which an order is made; there are more where units have little to do with each other."""
UNEVEN = 1.05
"""By how much of an equal share the largest cluster may exceed it."""


def partitions(problem: PlacementProblem) -> Iterator[tuple[Reduced, Assignment]]:
    """Yields coarser problems, the finest first, with assignments. Their units are clusters of the units of `problem`.

    First a minimum cut, with all accelerators as one device, decides which units are on an accelerator. Units are coarsened to
    clusters. Those on accelerators are split in two again and again: they are ordered by the Laplacian's second eigenvector
    (Fiedler 1973) and cut where half of the work, or of the memory, is reached (Barnard, Simon 1994). Forward and backward
    ops of a layer stay together, towers side by side.

    Each split is yielded as it is, levelled (see `_level`), and levelled with the memory limits in mind. The first two do not
    depend on the limits, so they remain if limits are loosened. Assignments may exceed the limits. Yields nothing if there are
    fewer than two accelerators.
    """
    group = accelerators(problem)
    two = two_sided_relaxation(problem) if len(group) > 1 else None
    if two is None:
        return
    side = minimum_cut(two).assignment.device
    there = np.isin(np.arange(problem.num_devices), group)
    open_to = problem.units.allowed & (there == (side == 1)[:, None])
    open_to = np.where(np.any(open_to, axis=1)[:, None], open_to, problem.units.allowed)
    spread = np.all(open_to[:, group], axis=1)
    everything = Assignment(np.where(spread, group[0], open_to.argmax(axis=1)))
    held = held_by_unit(problem, everything, int(group[0]), int(np.argmax(usage(problem, everything)[group[0]])))
    load = np.where(spread[:, None], np.column_stack([problem.unit_time_ns[:, group].mean(axis=1), held]), 0.0)
    pairs, weight = edges(problem, group)
    inside = spread[pairs].all(axis=1)
    _, kind = np.unique(open_to, axis=0, return_inverse=True)
    share = load.sum(axis=0) / len(group)
    levels = [(grain * len(group), UNEVEN * share / grain**0.5) for grain in GRAINS]
    for number in coarsened(kind.reshape(-1), load, pairs[inside], weight[inside], levels):
        reduced = Reduced.nothing(problem.with_allowed(open_to)).then("clusters", number, open_to)
        coarse = reduced.problem
        loads = np.zeros((coarse.num_units, 2))
        np.add.at(loads, reduced.unit, load)
        nodes = np.flatnonzero(coarse.units.allowed[:, group].all(axis=1))
        if len(nodes) > MOST:
            continue
        distance = _distances(problem, group)
        joined = _joined(coarse, group)[np.ix_(nodes, nodes)]
        for measure in loads[nodes].T:
            halves = np.zeros(len(nodes), np.int64)
            _split(halves, np.arange(len(nodes)), 0, len(group), measure, joined)
            limits = problem.devices.memory_limit_bytes[group]
            ways = [halves.copy() for _ in range(3)]
            _level(ways[1], loads[nodes], np.full(len(group), -1), joined, distance)
            _level(ways[2], loads[nodes], limits, joined, distance)
            for part in np.unique(ways, axis=0):
                device = coarse.units.allowed.argmax(axis=1)
                device[nodes] = group[part]
                yield reduced, Assignment(device)


def accelerators(problem: PlacementProblem) -> Ints:
    """Devices of another kind than the host's, or where there are none, all but the host; those that any unit may be on."""
    kinds = np.array(problem.devices.kinds)
    others = kinds != kinds[problem.devices.host]
    others = others if others.any() else np.arange(problem.num_devices) != problem.devices.host
    return np.flatnonzero(others & problem.units.allowed.any(axis=0))


def _joined(problem: PlacementProblem, group: Ints) -> Floats:
    """[U, U]: what two units hand each other, in whole ns."""
    pairs, weight = edges(problem, group)
    result = np.zeros((problem.num_units, problem.num_units))
    result[pairs[:, 0], pairs[:, 1]] = result[pairs[:, 1], pairs[:, 0]] = np.rint(weight)
    return result


def _distances(problem: PlacementProblem, group: Ints) -> Floats:
    """[K, K]: the time of a copy between two devices of the group, as a multiple of the average over all pairs."""
    nbytes = float(problem.tensors.copy_bytes.mean()) if len(problem.tensors.copy_bytes) else 0.0
    cost = (problem.links.latency_ns + nbytes * problem.links.ns_per_byte)[np.ix_(group, group)]
    return cost / max(1.0, float(cost.sum()) / (len(group) * (len(group) - 1)))


def _split(part: Ints, nodes: Ints, first: int, count: int, load: Floats, joined: Floats) -> None:
    """Splits nodes in two again and again. Writes each node's part into `part`: up to `count` numbers, from `first` on."""
    if count == 1 or len(nodes) < 2:
        part[nodes] = first
        return
    order = nodes[_order(joined[np.ix_(nodes, nodes)])]
    half = count // 2
    early = np.cumsum(load[order]) - load[order] / 2 < load[order].sum() * half / count
    _split(part, order[early], first, half, load, joined)
    _split(part, order[~early], first + half, count - half, load, joined)


def _order(joined: Floats) -> Ints:
    """Nodes of each connected piece by their entries in the eigenvector of its Laplacian's second-smallest eigenvalue."""
    pieces = [np.array(piece) for piece in components(len(joined), *np.nonzero(joined))]
    ordered = []
    for piece in pieces:
        laplacian = -joined[np.ix_(piece, piece)]
        laplacian[np.diag_indices(len(piece))] = -laplacian.sum(axis=1)
        ordered.append(piece[np.argsort(np.linalg.eigh(laplacian)[1][:, min(1, len(piece) - 1)], kind="stable")])
    return np.concatenate(ordered)


def _level(part: Ints, load: Floats, limit: Ints, joined: Floats, distance: Floats) -> None:
    """Moves nodes between parts, the best move first, while that lowers copies and loads together.

    Loads count by their squares over their sum: that is an equal share where they are equal, and grows with every difference.
    Bytes over a limit weigh as much as all of the work.
    """
    parts = len(limit)
    work, held = load.T
    total = max(1.0, float(work.sum()))
    per_byte = np.where(limit < 0, 0.0, total / np.maximum(1, limit))

    for _ in range(len(part) * parts):
        here = np.arange(parts) == part[:, None]
        copies = joined @ here @ distance  # [C, K]: of a node with all others, were it there
        busy, full = work @ here, held @ here
        there = busy + np.where(here, 0, work[:, None])
        left = busy[part] - work
        squares = there**2 + (left**2)[:, None] - busy**2 - (busy[part] ** 2)[:, None]
        over = (np.maximum(0, full + held[:, None] - limit) - np.maximum(0, full - limit)) * per_byte
        relief = (np.maximum(0, full - limit) * per_byte)[part] - np.maximum(0, full[part] - held - limit[part]) * per_byte[part]
        added = copies - copies[here][:, None] + squares / total + over - relief[:, None]
        added[here] = 0
        node, to = np.unravel_index(int(np.argmin(added)), added.shape)
        if added[node, to] > -1:
            break
        part[node] = to
