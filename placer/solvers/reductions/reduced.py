"""A smaller problem, and the way back: units that are decided together, and devices that are ruled out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.parts import Units
from placer.problem.problem import Assignment, PlacementProblem


@dataclass(frozen=True, eq=False)
class Reduced:
    """A problem of fewer units on the same ops, so that an assignment costs and holds the same in both."""

    problem: PlacementProblem
    unit: Ints
    """[U] of the original: the unit of `problem` that decides it."""
    steps: tuple[tuple[str, float], ...] = ()
    """What helped, in turn, and by what factor it made the units fewer that have a choice."""

    @classmethod
    def nothing(cls, problem: PlacementProblem) -> Reduced:
        """The problem as it is."""
        return cls(problem, np.arange(problem.num_units))

    def invert(self, assignment: Assignment) -> Assignment:
        """The assignment of the original that an assignment of `problem` stands for."""
        return Assignment(assignment.device[self.unit])

    def forward(self, assignment: Assignment) -> Assignment:
        """An assignment of the original as one of `problem`; each unit goes with the last of those it stands for."""
        device = np.empty(self.problem.num_units, np.int64)
        device[self.unit] = assignment.device
        return Assignment(device)

    def then(self, name: str, group: Ints, allowed: Bools) -> Reduced:
        """Decides units of `problem` that have one group number together; shapes [U] and [U, D]."""
        problem, number = contract(self.problem, group, allowed)
        factor = max(1, choices(self.problem)) / max(1, choices(problem))
        return Reduced(problem, number[self.unit], (*self.steps, (name, factor)) if factor > 1 else self.steps)


def contract(problem: PlacementProblem, group: Ints, allowed: Bools) -> tuple[PlacementProblem, Ints]:
    """One unit for each group, on the devices allowed to all of it, and the new number of each unit, in order of first ops.

    Raises:
        ValueError: a group is left without a device.
    """
    present, first, number = np.unique(group[problem.ops.unit], return_index=True, return_inverse=True)
    rank = np.empty(len(present), np.int64)
    rank[np.argsort(first)] = np.arange(len(present))
    unit = rank[np.searchsorted(present, group)]
    together = np.ones((len(present), problem.num_devices), np.bool_)
    np.logical_and.at(together, unit, allowed)
    kept = np.zeros(len(present), np.int64)
    np.add.at(kept, unit, problem.units.persistent_bytes)
    return problem.with_units(rank[number], Units(allowed=together, persistent_bytes=kept)), unit


def choices(problem: PlacementProblem) -> int:
    """How many units may be on more than one device."""
    return int((problem.units.allowed.sum(axis=1) > 1).sum())


def roomy(problem: PlacementProblem) -> Bools:
    """[D]: nothing that is moved to this device can break a limit, its own or, for what it keeps in host memory, the host's."""
    most = int(problem.units.persistent_bytes.sum() + 2 * problem.num_devices * problem.tensors.held_bytes.sum())
    most += int(np.max(problem.ops.workspace_bytes, initial=0))
    enough = (problem.devices.memory_limit_bytes < 0) | (problem.devices.memory_limit_bytes >= most)
    result: Bools = enough & enough[problem.devices.host]
    return result


def lends(problem: PlacementProblem) -> Bools:
    """[U]: the unit makes something in memory that is counted elsewhere and that other units take.

    Beside the unit that takes nothing, and its whole size where a copy of it has to be. So where such a unit leaves, more may be
    held than before.
    """
    entry_maker = problem.ops.unit[problem.tensors.op][problem.consumers.tensor]
    lent = problem.tensors.shared[problem.consumers.tensor] & (problem.tensors.held_bytes[problem.consumers.tensor] > 0)
    result = np.zeros(problem.num_units, np.bool_)
    result[entry_maker[lent & (problem.ops.unit[problem.consumers.op] != entry_maker)]] = True
    return result
