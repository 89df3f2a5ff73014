"""A smaller problem, and the way back: units that are decided together, and devices that are ruled out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placer.problem.problem import Assignment, Bools, Ints, PlacementProblem


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
        return cls(problem, np.arange(problem.units))

    def invert(self, assignment: Assignment) -> Assignment:
        """The assignment of the original that an assignment of `problem` stands for."""
        return Assignment(assignment.device[self.unit])

    def forward(self, assignment: Assignment) -> Assignment:
        """An assignment of the original as one of `problem`; each unit goes with the last of those it stands for."""
        device = np.empty(self.problem.units, np.int64)
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
    present, first, number = np.unique(group[problem.op_unit], return_index=True, return_inverse=True)
    rank = np.empty(len(present), np.int64)
    rank[np.argsort(first)] = np.arange(len(present))
    unit = rank[np.searchsorted(present, group)]
    together = np.ones((len(present), problem.devices), np.bool_)
    np.logical_and.at(together, unit, allowed)
    kept = np.zeros(len(present), np.int64)
    np.add.at(kept, unit, problem.unit_persistent_bytes)
    return replace(problem, op_unit=rank[number], unit_allowed=together, unit_persistent_bytes=kept), unit


def choices(problem: PlacementProblem) -> int:
    """How many units may be on more than one device."""
    return int((problem.unit_allowed.sum(axis=1) > 1).sum())


def roomy(problem: PlacementProblem) -> Bools:
    """[D]: nothing that is moved to this device can break a limit, its own or, for what it keeps in host memory, the host's."""
    most = int(problem.unit_persistent_bytes.sum() + 2 * problem.devices * problem.held_bytes.sum())
    most += int(np.max(problem.op_workspace_bytes, initial=0))
    enough = (problem.memory_limit_bytes < 0) | (problem.memory_limit_bytes >= most)
    result: Bools = enough & enough[problem.host]
    return result


def lends(problem: PlacementProblem) -> Bools:
    """[U]: the unit makes something in memory that is counted elsewhere and that other units take.

    Beside the unit that takes nothing, and its whole size where a copy of it has to be. So where such a unit leaves, more may be
    held than before.
    """
    entry_maker = problem.op_unit[problem.tensor_op][problem.consumer_tensor]
    lent = problem.shared[problem.consumer_tensor] & (problem.held_bytes[problem.consumer_tensor] > 0)
    result = np.zeros(problem.units, np.bool_)
    result[entry_maker[lent & (problem.op_unit[problem.consumer_op] != entry_maker)]] = True
    return result
