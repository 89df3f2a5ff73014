"""Fills devices one after the other with units in a given order."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.incremental_memory import NOWHERE, IncrementalMemory

UNIT_OP_RUNS = 5
"""The work to place a unit, see `placer.common.clock.spend`."""


def fill(problem: PlacementProblem, units: list[int], share_bytes: int | None = None) -> Assignment:
    """Fills the GPUs in their order, then the CPUs. A device is full when a unit does not fit that it could hold alone.

    A unit skips a device that it may not use or that could not hold it alone. A unit that fits on no later device goes to the
    first device where it fits; if there is none, to the first it may use, over the limit. Time: (N + E) D, plus that of
    `IncrementalMemory`.

    Args:
        units: all units, in the order to place them.
        share_bytes: a device is also full once the sum of its units' `unit_bytes` would exceed this.
    """
    order = sorted(range(problem.num_devices), key=lambda d: (problem.devices.kinds[d] == "CPU", d))
    size, can = unit_bytes(problem).tolist(), problem.units.allowed.tolist()
    memory, empty, used, turn = IncrementalMemory(problem), IncrementalMemory(problem), [0] * problem.num_devices, 0
    device = np.zeros(problem.num_units, np.int64)
    for unit in units:
        spend(UNIT_OP_RUNS)
        for k in range(turn, len(order)):
            d = order[k]
            if not can[unit][d]:
                continue
            if (share_bytes is None or used[d] + size[unit] <= share_bytes) and memory.move_if_fits(unit, d):
                break
            if k == turn and empty.move_if_fits(unit, d):
                empty.move(unit, NOWHERE)
                turn += 1
        else:
            allowed = [d for d in order if can[unit][d]]
            d = next((d for d in allowed if memory.move_if_fits(unit, d)), allowed[0])
            memory.move(unit, d)
        device[unit] = d
        used[d] += size[unit]
    return Assignment(device)


def unit_bytes(problem: PlacementProblem) -> Ints:
    """[U]: the bytes of a unit: its variables, all tensors it makes, and the largest workspace of its ops."""
    nbytes = problem.units.persistent_bytes.copy()
    output_bytes = np.where(problem.tensors.shared, 0, problem.tensors.held_bytes)
    np.add.at(nbytes, problem.ops.unit[problem.tensors.op], output_bytes)
    workspace = np.zeros(problem.num_units, np.int64)
    np.maximum.at(workspace, problem.ops.unit, problem.ops.workspace_bytes.max(axis=1))
    return nbytes + workspace


def in_order(problem: PlacementProblem) -> list[int]:
    """The units in the order of their first op."""
    _, first = np.unique(problem.ops.unit, return_index=True)
    order: list[int] = np.argsort(first, kind="stable").tolist()
    return order
