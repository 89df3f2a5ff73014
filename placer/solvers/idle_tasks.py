"""Units without work that are alone on a task of a cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placer.problem.memory import excess
from placer.problem.model_tables import tables_of
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.base import Solution


def without_idle_tasks(problem: PlacementProblem, solution: Solution) -> Solution:
    """Moves units from tasks on which no op has work to the host of the process that calls, if they are allowed there.

    In the model such units cost nothing, so searches leave them anywhere. In a real call each further task takes a message.

    Args:
        problem: of the cluster, or of any other machine.
        solution: of the problem, with an assignment. It stays as it is where a move would cost something, or where the host has
            no memory for it.
    """
    assert solution.assignment is not None
    tasks, device = np.array(problem.devices.tasks), solution.assignment.device
    working = tasks[device[problem.ops.unit[tables_of(problem).present]]]
    idle = (tasks != "") & ~np.isin(tasks, working)
    moved = idle[device] & problem.units.allowed[:, problem.devices.host]
    at_home = Assignment(np.where(moved, problem.devices.host, device))
    if not moved.any() or (excess(problem, at_home) > 0).any():
        return solution
    value_ns = total_cost_ns(problem, at_home) if solution.objective == "total_cost" else Simulator(problem).step_ns(at_home)
    return replace(solution, assignment=at_home, objective_ns=value_ns) if value_ns <= solution.objective_ns else solution
