"""A machine without some of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.partition import accelerators


@dataclass(frozen=True, eq=False)
class Fewer:
    """A problem as it is on the machine that has only some of the devices, and the way back."""

    problem: PlacementProblem
    devices: Ints
    """Of the original: what each device of `problem` is there."""

    def invert(self, assignment: Assignment) -> Assignment:
        """The same assignment in the original: it costs, takes and holds the same there."""
        return Assignment(self.devices[assignment.device])


def on_first(problem: PlacementProblem, count: int) -> Fewer | None:
    """On the first so many accelerators and all else; None where an op has to be on the others."""
    kept = np.setdiff1d(np.arange(problem.num_devices), accelerators(problem)[count:])
    if not problem.units.allowed[:, kept].any(axis=1).all():
        return None
    return Fewer(problem.on_devices(kept), kept)


def halved(problem: PlacementProblem) -> Iterator[Fewer]:
    """On the first half of the accelerators, on a half of these, and so on down to one, as far as ops can be there."""
    count = len(accelerators(problem))
    while count > 1:
        count = (count + 1) // 2
        if (fewer := on_first(problem, count)) is None:
            return
        yield fewer
