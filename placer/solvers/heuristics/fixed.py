"""The two placements everyone tries first: everything on the CPU, everything on the GPU."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.sources import here


def all_on(problem: PlacementProblem, kind: str) -> Assignment:
    """Each unit on the first device of `kind` that it may use, otherwise on the first CPU, otherwise on the first of any kind.

    Knows no memory limits.
    """
    order = sorted(
        range(problem.num_devices), key=lambda d: (problem.devices.kinds[d] != kind, problem.devices.kinds[d] != "CPU", d)
    )
    return Assignment(np.array(order)[problem.units.allowed[:, order].argmax(axis=1)])


def _note(problem: PlacementProblem, assignment: Assignment, kind: str) -> str:
    elsewhere = int((np.array(problem.devices.kinds)[assignment.device] != kind).sum())
    return f"a fixed rule; {elsewhere} of {problem.num_units} units cannot be on a {kind}" if elsewhere else "a fixed rule"


def _solver(kind: str) -> Heuristic:
    return Heuristic(
        name=f"all_{kind.lower()}",
        assign=partial(all_on, kind=kind),
        source=here("the first device of one kind wherever a kernel allows"),
        note=partial(_note, kind=kind),
    )


all_cpu = partial(_solver, "CPU")
all_gpu = partial(_solver, "GPU")
