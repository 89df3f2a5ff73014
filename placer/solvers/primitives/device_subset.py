"""A problem on some of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.partition import accelerators


@dataclass(frozen=True, eq=False)
class DeviceSubset:
    """A problem on a subset of the devices, and the way back to the original."""

    problem: PlacementProblem
    devices: Ints
    """[d]: the number that each device of `problem` has in the original."""

    def invert(self, assignment: Assignment) -> Assignment:
        """The same assignment of the original, with the same cost, step time and memory."""
        return Assignment(self.devices[assignment.device])


def on_first(problem: PlacementProblem, count: int) -> DeviceSubset | None:
    """The problem on all devices but the accelerators after the first `count`; None if an op must be on one of those."""
    devices = np.setdiff1d(np.arange(problem.num_devices), accelerators(problem)[count:])
    if not problem.units.allowed[:, devices].any(axis=1).all():
        return None
    return DeviceSubset(problem.on_devices(devices), devices)


def halved(problem: PlacementProblem) -> Iterator[DeviceSubset]:
    """The problem with half of the accelerators, then a quarter, and so on down to one; ends where a unit keeps no device."""
    count = len(accelerators(problem))
    while count > 1:
        count = (count + 1) // 2
        if (subset := on_first(problem, count)) is None:
            return
        yield subset
