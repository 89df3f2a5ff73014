"""Prices a plan where what the graph leaves open is at its low and at its high end."""

from __future__ import annotations

from typing import get_args

import numpy as np

from cost_models.base import CostModel
from cost_models.machines import Machine
from placer.errors import PlacerError
from placer.graph.ends import at_end
from placer.graph.op_graph import OpGraph
from placer.graph.sizes import End
from placer.options import Options
from placer.plan.parts import AtEnd
from placer.problem.constraints import Constraints
from placer.problem.formulate import formulate
from placer.problem.memory import excess
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.solvers.base import MIN_GAIN
from placer.solvers.registry import solver

SIMPLE_SOLVERS = ("tf_default", "all_cpu", "all_gpu", "min_cut")
"""The solvers whose placements a plan is compared with. None of them searches."""
MAX_OPS = 20_000
"""A plan of more ops is not priced: it would take about as long as the search for the plan."""


def price_at_ends(
    graph: OpGraph, machine: Machine, options: Options, constraints: Constraints, model: CostModel, assignment: Assignment
) -> tuple[AtEnd, ...]:
    """The plan's step at both ends, beside the shortest step of the simple placements there; () if the graph leaves nothing open.

    Args:
        graph: the graph that was planned.
        machine, options, constraints, model: of the planning.
        assignment: the plan's.
    """
    if len(machine.devices) < 2 or len(graph) > MAX_OPS:
        return ()
    priced = []
    for end in get_args(End):
        changed = at_end(graph, end)
        if changed is None:
            continue
        try:
            problem = formulate(changed, constraints, model, machine, options.memory_limits).problem
        except PlacerError:  # at the high end, a tensor may be larger than any device
            continue
        priced.append(_at_end(problem, end, assignment, options))
    return tuple(priced)


def _at_end(problem: PlacementProblem, end: End, assignment: Assignment, options: Options) -> AtEnd:
    plan_ns = Simulator(problem).step_ns(assignment)
    steps_ns = {name: step_ns for name in SIMPLE_SOLVERS if (step_ns := simple_step_ns(problem, name, options)) is not None}
    best = min(steps_ns, key=lambda name: steps_ns[name], default="")
    if best and steps_ns[best] < (1 - MIN_GAIN) * plan_ns:
        return AtEnd(end, plan_ns, steps_ns[best], best)
    return AtEnd(end, plan_ns, plan_ns, "")


def simple_step_ns(problem: PlacementProblem, name: str, options: Options) -> int | None:
    """The step of a simple solver's placement; None if it has none, or none that is allowed and fits."""
    if name == "all_gpu" and "GPU" not in problem.devices.kinds:
        return None
    chosen = solver(name)
    if name == "min_cut" and chosen.unsupported(problem, "total_cost"):
        return None
    found = chosen.solve(problem, "step_time", seed=options.seed)
    if found.assignment is None or not problem.units.allowed[np.arange(problem.num_units), found.assignment.device].all():
        return None
    return None if excess(problem, found.assignment).any() else found.objective_ns
