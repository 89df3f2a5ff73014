"""One run on an instance: a split or pairwise problem."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from placer.research.arena.records import Limit, Record, answered
from placer.research.instances.instance import Instance
from placer.research.instances.solvers import KINDS, InstanceSolution, InstanceSolver, instance_solver
from placer.solvers.base import Solver, Status
from placer.solvers.primitives import or_tools
from placer.solvers.user_function import needed_arguments

DEFAULT_LIMIT_S = 60.0
"""The time limit without another one."""


def run_on_instance(given: Any, instance: Instance, limit: Limit, seed: int) -> Record:
    """The outcome of a run, what the solver claims, and its answer; as of `placer.research.arena.worker.claims_of`.

    Args:
        given: the name of a solver, an `InstanceSolver`, or a function from a `SplitProblem` or `PairwiseProblem`, or from one
            and a `numpy.random.Generator`, to an array: a device for each unit, or a choice for each node.
        instance: the problem.
        limit: for the solver, in seconds.
        seed: for the solver.

    Raises:
        OptionError: the answer is none.
    """
    if "effort" in limit:
        note = f"{KINDS[instance.objective]} are searched for seconds, not for an effort: give a time limit"
        return {"outcome": "declined", "note": note}
    chosen = instance_solver(given) or given
    if isinstance(chosen, InstanceSolver):
        if why := chosen.unsupported(instance):
            return {"outcome": "declined", "note": why}
    elif isinstance(chosen, str | Solver):
        return {"outcome": "declined", "note": "it solves placement problems only"}
    or_tools.load()  # loading is not solving
    started = time.perf_counter()
    if isinstance(chosen, InstanceSolver):
        found = chosen.solve(instance, time_limit_s=limit.get("time_limit_s", DEFAULT_LIMIT_S), seed=seed)
    else:
        found = _of_function(chosen, instance, seed)
    answer = None if found.answer is None else instance.checked(found.answer)
    return answered(found, answer, time.perf_counter() - started)


def _of_function(function: Any, instance: Instance, seed: int) -> InstanceSolution:
    """The answer of a function, priced."""
    rng = (np.random.default_rng(seed),) if needed_arguments(function) == 2 else ()
    answer = instance.checked(function(instance.problem, *rng))
    figures, violated = instance.priced(answer)
    status = Status.UNKNOWN if violated else Status.FEASIBLE
    return InstanceSolution(answer, status, figures["objective_ns"], 0, violated or "the function ran to its end")
