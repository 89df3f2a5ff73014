"""All units on one kind of device, where they may be on it."""

from __future__ import annotations

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem


def all_on(problem: PlacementProblem, kind: str) -> Assignment:
    """Puts each unit on the first device of `kind` that it may use, otherwise on the first CPU, otherwise on any first one.

    Ignores memory limits.
    """
    order = sorted(
        range(problem.num_devices), key=lambda d: (problem.devices.kinds[d] != kind, problem.devices.kinds[d] != "CPU", d)
    )
    return Assignment(np.array(order)[problem.units.allowed[:, order].argmax(axis=1)])
