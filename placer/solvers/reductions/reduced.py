"""A problem with fewer units or devices, and the way back to the original."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.parts import Units
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import everything_bytes


@dataclass(frozen=True, eq=False)
class Reduced:
    """A problem with the same ops in fewer units: an assignment has the same cost and memory in both."""

    problem: PlacementProblem
    unit: Ints
    """[U] of the original: the unit of `problem` that each unit belongs to."""

    @classmethod
    def identity(cls, problem: PlacementProblem) -> Reduced:
        """The problem itself, not reduced."""
        return cls(problem, np.arange(problem.num_units))

    def invert(self, assignment: Assignment) -> Assignment:
        """The assignment of the original that corresponds to an assignment of `problem`."""
        return Assignment(assignment.device[self.unit])

    def forward(self, assignment: Assignment) -> Assignment:
        """An assignment of the original as one of `problem`; a unit has the device of the last original unit in it."""
        device = np.empty(self.problem.num_units, np.int64)
        device[self.unit] = assignment.device
        return Assignment(device)

    def joined(self, group: Ints, allowed: Bools) -> Reduced:
        """Joins the units of `problem` that have the same group number.

        Args:
            group: shape [U].
            allowed: shape [U, D], the devices that remain allowed.
        """
        problem, number = contract(self.problem, group, allowed)
        return Reduced(problem, number[self.unit])


def contract(problem: PlacementProblem, group: Ints, allowed: Bools) -> tuple[PlacementProblem, Ints]:
    """Makes each group one unit, on the devices that are allowed to all of it; returns the problem and each unit's new number.

    New units are numbered in the order of their first ops.

    Raises:
        ValueError: no device is allowed to all units of a group.
    """
    present, first, number = np.unique(group[problem.ops.unit], return_index=True, return_inverse=True)
    rank = np.empty(len(present), np.int64)
    rank[np.argsort(first)] = np.arange(len(present))
    unit = rank[np.searchsorted(present, group)]
    together = np.ones((len(present), problem.num_devices), np.bool_)
    np.logical_and.at(together, unit, allowed)
    persistent_bytes = np.zeros(len(present), np.int64)
    np.add.at(persistent_bytes, unit, problem.units.persistent_bytes)
    return problem.with_units(rank[number], Units(allowed=together, persistent_bytes=persistent_bytes)), unit


def choices(problem: PlacementProblem) -> int:
    """The number of units that may be on more than one device."""
    return int((problem.units.allowed.sum(axis=1) > 1).sum())


def holds_anything(problem: PlacementProblem) -> Bools:
    """[D]: whether no move to the device can exceed a limit: its own, or the host's for values that it keeps in host memory."""
    limits = problem.devices.memory_limit_bytes
    enough = (limits < 0) | (limits >= everything_bytes(problem))
    result: Bools = enough & enough[problem.devices.hosts]
    return result


def lends_memory(problem: PlacementProblem) -> Bools:
    """[U]: whether a unit makes a tensor in memory that is counted for another tensor, and that other units use.

    Such a tensor uses no memory where it is made, but its whole size where it is copied to. So if the unit leaves a device, the
    device may hold more than before.
    """
    entry_maker = problem.ops.unit[problem.tensors.op][problem.consumers.tensor]
    lent = problem.tensors.shared[problem.consumers.tensor] & (problem.tensors.held_bytes[problem.consumers.tensor] > 0)
    result = np.zeros(problem.num_units, np.bool_)
    result[entry_maker[lent & (problem.ops.unit[problem.consumers.op] != entry_maker)]] = True
    return result
