"""Prices and checks the answer of a run on a problem that the solver had no access to."""

from __future__ import annotations

import numpy as np

from placer.errors import OptionError
from placer.problem.problem import PlacementProblem
from placer.research.arena.records import Record
from placer.research.instances.instance import Instance
from placer.solvers.base import Objective
from placer.verbs.evaluate import evaluate


def judged(problem: PlacementProblem | Instance, objective: Objective, claims: Record) -> Record:
    """The figures of a run: its claims, with the values that its assignment really has.

    A claim that does not hold makes the run a failure.

    Args:
        problem: as the process of this function has it. The solver had a copy, in a process of its own.
        objective: the objective of the run.
        claims: the outcome and the claims of the run, as `placer.research.arena.worker.claims_of` returns them.
    """
    if "assignment" not in claims:
        return claims
    try:
        figures, violated = _priced(problem, objective, claims["assignment"])
    except OptionError as error:
        return {"outcome": "failed", "seconds": claims["seconds"], "note": f"wrote into the problem: {error}"}
    objective_ns, unit = figures["objective_ns"], "" if isinstance(problem, Instance) and problem.objective == "cost" else " ns"
    claim = ""
    if claims["objective_ns"] != objective_ns:
        claim = f"claims {claims['objective_ns']}{unit} where its placement takes {objective_ns}{unit}"
    elif not violated and claims["lower_bound_ns"] > objective_ns:
        claim = f"claims a lower bound of {claims['lower_bound_ns']}{unit} above its placement of {objective_ns}{unit}"
    elif violated and claims["status"] in {"OPTIMAL", "FEASIBLE"}:
        claim = f"claims {claims['status']}, but {violated}"
    return claims | figures | ({"outcome": "failed", "note": claim} if claim else {})


def _priced(problem: PlacementProblem | Instance, objective: Objective, assignment: str) -> tuple[Record, str]:
    """The values of an assignment; and the limit that it exceeds as text, empty if it fits. Raises OptionError if it is none."""
    if isinstance(problem, Instance):
        return problem.priced(problem.checked(np.array(assignment.split(), np.int64)))
    answer = evaluate(problem, assignment)
    figures = {
        "feasible": answer.feasible,
        "objective_ns": answer.step_time_ns if objective == "step_time" else answer.total_cost_ns,
        "step_time_ns": answer.step_time_ns,
        "total_cost_ns": answer.total_cost_ns,
        **{f"peak_bytes.{device}": held for device, held in answer.peak_bytes.items()},
    }
    return figures, next(iter(answer.violations), "")
