"""Filling devices one after the other: units in some order, each device until the next unit does not fit."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.incremental_memory import NOWHERE, Room


def fill(problem: PlacementProblem, units: list[int], share_bytes: int | None = None) -> Assignment:
    """GPUs in their order, then CPUs. A device that refuses a unit it could hold alone is full, and the next one has its turn.

    A unit that may not be on the device whose turn it is, or is too large for it, passes it by. One that no later device
    takes goes back to an earlier one with room, and where there is none, to the first it may use, over the limit. Linear in
    ops and edges, times devices, plus what `Room` takes where limits can bind.

    Args:
        units: all of them, in the order to take them.
        share_bytes: a device is full, too, once what its units hold by `unit_bytes` would exceed this.
    """
    order = sorted(range(problem.num_devices), key=lambda d: (problem.devices.kinds[d] == "CPU", d))
    size, can = unit_bytes(problem).tolist(), problem.units.allowed.tolist()
    room, empty, used, turn = Room(problem), Room(problem), [0] * problem.num_devices, 0
    device = np.zeros(problem.num_units, np.int64)
    for unit in units:
        for k in range(turn, len(order)):
            d = order[k]
            if not can[unit][d]:
                continue
            if (share_bytes is None or used[d] + size[unit] <= share_bytes) and room.take(unit, d):
                break
            if k == turn and empty.take(unit, d):
                empty.move(unit, NOWHERE)
                turn += 1
        else:
            allowed = [d for d in order if can[unit][d]]
            d = next((d for d in allowed if room.take(unit, d)), allowed[0])
            room.move(unit, d)
        device[unit] = d
        used[d] += size[unit]
    return Assignment(device)


def unit_bytes(problem: PlacementProblem) -> Ints:
    """[U]: what it keeps, all that it makes, as if nothing were freed, and the largest workspace of its ops."""
    kept = problem.units.persistent_bytes.copy()
    made = np.where(problem.tensors.shared, 0, problem.tensors.held_bytes)
    np.add.at(kept, problem.ops.unit[problem.tensors.op], made)
    workspace = np.zeros(problem.num_units, np.int64)
    np.maximum.at(workspace, problem.ops.unit, problem.ops.workspace_bytes.max(axis=1))
    return kept + workspace


def in_order(problem: PlacementProblem) -> list[int]:
    """Units by their first op."""
    _, first = np.unique(problem.ops.unit, return_index=True)
    order: list[int] = np.argsort(first, kind="stable").tolist()
    return order
