"""All units on one kind of device, where they may be on it."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.sources import own_work


def all_on(problem: PlacementProblem, kind: str) -> Assignment:
    """Puts each unit on the first device of `kind` that it may use, otherwise on the first CPU, otherwise on any first one.

    Ignores memory limits.
    """
    order = sorted(
        range(problem.num_devices), key=lambda d: (problem.devices.kinds[d] != kind, problem.devices.kinds[d] != "CPU", d)
    )
    return Assignment(np.array(order)[problem.units.allowed[:, order].argmax(axis=1)])


def one_kind_solver(kind: str) -> Heuristic:
    """`all_on` as a solver."""
    return Heuristic(
        name=f"all_{kind.lower()}",
        assign=partial(all_on, kind=kind),
        source=own_work("the first device of one kind wherever a kernel allows"),
        note=partial(_note, kind=kind),
    )


def _note(problem: PlacementProblem, assignment: Assignment, kind: str) -> str:
    elsewhere = int((np.array(problem.devices.kinds)[assignment.device] != kind).sum())
    return f"a fixed rule; {elsewhere} of {problem.num_units} units cannot be on a {kind}" if elsewhere else "a fixed rule"
