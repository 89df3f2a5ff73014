"""All ops on the first GPU, except ops that may not be there."""

from __future__ import annotations

from functools import partial

import numpy as np

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.sources import own_work


def solver() -> Heuristic:
    """Every unit on the first GPU it may use. Ignores memory limits."""
    return one_kind_solver("GPU")


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
