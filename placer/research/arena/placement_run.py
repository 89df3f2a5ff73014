"""One run on a placement problem."""

from __future__ import annotations

import time
from typing import Any

from placer.problem.problem import PlacementProblem
from placer.research.arena.records import Limit, Record, answered
from placer.research.instances.solvers import instance_solver
from placer.solvers.answer import checked
from placer.solvers.base import Objective, Solution
from placer.solvers.registry import solver
from placer.solvers.run import run, why_unsupported


def run_on_placement(given: Any, problem: PlacementProblem, objective: Objective, limit: Limit, seed: int) -> tuple[Record, str]:
    """The outcome of a run, what the solver claims, and its answer; and the name of the solver that gave it.

    Args:
        given: the name of a solver, a solver, or a function from a problem to an assignment.
        problem: the problem.
        objective: for the solver.
        limit: for the solver; empty for none.
        seed: for the solver.

    Raises:
        OptionError: there is no such solver, or the answer is none.
    """
    if instance_solver(given) is not None:
        return {"outcome": "declined", "note": "it does not solve placement problems"}, ""
    chosen = solver(given)
    time_limit_s, effort = limit.get("time_limit_s"), int(limit["effort"]) if "effort" in limit else None
    if why := why_unsupported(chosen, problem, objective, time_limit_s=time_limit_s, effort=effort):
        return {"outcome": "declined", "note": why}, chosen.name
    started = time.perf_counter()
    solution = run(chosen, problem, objective, seed=seed, time_limit_s=time_limit_s, effort=effort)
    seconds = time.perf_counter() - started
    if not isinstance(solution, Solution):
        return {"outcome": "failed", "seconds": seconds, "note": f"returned {solution!r}, which is not a Solution"}, chosen.name
    device = None if solution.assignment is None else checked(solution.assignment, problem, chosen.name).device
    return answered(solution, device, seconds), solution.solver
