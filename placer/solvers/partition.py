"""Work spread over several accelerators with few copies between them: multilevel spectral partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from placer.problem.memory import usage
from placer.problem.problem import Assignment, Floats, Ints, PlacementProblem
from placer.solvers.coarsening import coarsened, edges
from placer.solvers.fit import held_by_unit
from placer.solvers.merging import merged
from placer.solvers.min_cut import minimum_cut
from placer.solvers.reductions.reduced import Reduced

GRAINS = (16, 4, 1)
"""Clusters for each accelerator."""
MOST = 500
"""Clusters of which an order is made; there are more where units have little to do with each other."""
UNEVEN = 1.05
"""By how much of an equal share the largest cluster may exceed it."""


def partitions(problem: PlacementProblem) -> Iterator[tuple[Reduced, Assignment]]:
    """Problems whose units are clusters of those of `problem`, from finer to coarser, and assignments of theirs.

    First a minimum cut of all accelerators as one decides what is on any. That is coarsened, and split in two again and again
    where the clusters' order in the Laplacian's second eigenvector (Fiedler 1973) has half of the work, or of the memory
    (Barnard, Simon 1994): forward and backward ops of a layer stay together, towers side by side. None where there are not
    several accelerators. Memory limits may be missed.
    """
    group = accelerators(problem)
    two = merged(problem) if len(group) > 1 else None
    if two is None:
        return
    side = minimum_cut(two).assignment.device
    there = np.isin(np.arange(problem.devices), group)
    open_to = problem.unit_allowed & (there == (side == 1)[:, None])
    open_to = np.where(np.any(open_to, axis=1)[:, None], open_to, problem.unit_allowed)
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
        reduced = Reduced.nothing(replace(problem, unit_allowed=open_to)).then("clusters", number, open_to)
        coarse = reduced.problem
        loads = np.zeros((coarse.units, 2))
        np.add.at(loads, reduced.unit, load)
        nodes = np.flatnonzero(coarse.unit_allowed[:, group].all(axis=1))
        if len(nodes) > MOST:
            continue
        laplacian = _laplacian(coarse, group)
        for measure in loads.T:
            device = coarse.unit_allowed.argmax(axis=1)
            _split(device, nodes, group, measure, laplacian)
            yield reduced, Assignment(device)


def accelerators(problem: PlacementProblem) -> Ints:
    """Devices of another kind than the host's, or where there are none, all but the host."""
    kinds = np.array(problem.device_kinds)
    others = kinds != kinds[problem.host]
    return np.flatnonzero(others if others.any() else np.arange(problem.devices) != problem.host)


def _laplacian(problem: PlacementProblem, group: Ints) -> Floats:
    """[U, U]: minus what two units hand each other, and on the diagonal what makes the sums nought."""
    pairs, weight = edges(problem, group)
    result = np.zeros((problem.units, problem.units))
    result[pairs[:, 0], pairs[:, 1]] = result[pairs[:, 1], pairs[:, 0]] = -weight
    return result


def _split(device: Ints, nodes: Ints, group: Ints, load: Floats, laplacian: Floats) -> None:
    """Gives each of the nodes a device of the group, in halves."""
    if len(group) == 1 or len(nodes) < 2:
        device[nodes] = group[0]
        return
    part = laplacian[np.ix_(nodes, nodes)]
    part[np.diag_indices(len(nodes))] = -part.sum(axis=1)
    order = nodes[np.argsort(np.linalg.eigh(part)[1][:, 1], kind="stable")]
    half = len(group) // 2
    first = np.cumsum(load[order]) - load[order] / 2 < load[order].sum() * half / len(group)
    _split(device, order[first], group[:half], load, laplacian)
    _split(device, order[~first], group[half:], load, laplacian)
