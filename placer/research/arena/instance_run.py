"""One run on an instance: a split or pairwise problem."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from placer.research.arena.records import Record
from placer.research.instances.instance import Instance
from placer.research.instances.solvers import InstanceSolution, InstanceSolver, instance_solver
from placer.solvers.base import Solver, Status
from placer.solvers.primitives import or_tools
from placer.solvers.user_function import needed_arguments


def run_on_instance(given: Any, instance: Instance, time_limit_s: float, seed: int) -> Record:
    """The outcome of a run, what the solver claims, and its answer; as of `placer.research.arena.worker.claims_of`.

    Args:
        given: the name of a solver, an `InstanceSolver`, or a function from a `SplitProblem` or `PairwiseProblem`, or from one
            and a `numpy.random.Generator`, to an array: a device for each unit, or a choice for each node.
        instance: the problem.
        time_limit_s: for the solver.
        seed: for the solver.

    Raises:
        OptionError: the answer is none.
    """
    chosen = instance_solver(given) or given
    if isinstance(chosen, InstanceSolver):
        if why := chosen.unsupported(instance):
            return {"outcome": "declined", "note": why}
    elif isinstance(chosen, str | Solver):
        return {"outcome": "declined", "note": "it solves placement problems only"}
    or_tools.load()  # loading is not solving
    started = time.perf_counter()
    if isinstance(chosen, InstanceSolver):
        found = chosen.solve(instance, time_limit_s=time_limit_s, seed=seed)
    else:
        found = _of_function(chosen, instance, seed)
    claims: Record = {
        "outcome": "answered",
        "status": found.status.value,
        "lower_bound_ns": int(found.lower_bound_ns),
        "feasible": False,
        "seconds": time.perf_counter() - started,
        "note": found.stop_text,
    }
    if found.answer is not None:
        answer = instance.checked(found.answer)
        claims |= {"objective_ns": int(found.objective_ns), "assignment": " ".join(map(str, answer.tolist()))}
    return claims


def _of_function(function: Any, instance: Instance, seed: int) -> InstanceSolution:
    """The answer of a function, priced."""
    rng = (np.random.default_rng(seed),) if needed_arguments(function) == 2 else ()
    answer = instance.checked(function(instance.problem, *rng))
    figures, violated = instance.priced(answer)
    status = Status.UNKNOWN if violated else Status.FEASIBLE
    return InstanceSolution(answer, status, figures["objective_ns"], 0, violated or "the function ran to its end")
