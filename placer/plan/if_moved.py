"""What a plan that leaves variables where TensorFlow makes them would gain if it moved them."""

from __future__ import annotations

from dataclasses import replace

from cost_models.machines import Machine
from placer.common.units import format_ns
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.at_ends import MAX_OPS, simple_step_ns
from placer.problem.constraints import constrain
from placer.problem.problem import PlacementProblem

MIN_GAIN = 0.15
"""The least share of a step that is worth a note: what a trial of moved variables has to gain on the machine itself."""
IN_WORDS = {"all_cpu": "a step with all ops on the CPU", "min_cut": "a step of least total cost"}
"""The placements that are priced. Neither takes a search."""


def gain_of_moving(graph: OpGraph, machine: Machine, options: Options, problem: PlacementProblem, step_ns: int) -> list[str]:
    """A note on a simple placement with moved variables, if its step is predicted to be much shorter than the plan's.

    There is none for the machine of this process, on which calls try it.

    Args:
        graph: of the plan.
        machine: that it is for.
        options: of the plan.
        problem: of the plan, with variables where TensorFlow makes them.
        step_ns: the step time of the plan.
    """
    here = set(problem.devices.names) <= set(graph.process_devices)
    movable = any(state.kind == "variable" and not state.stays for state in graph.resources.values())
    if options.variables != "auto" or here or not movable or len(graph) > MAX_OPS:
        return []
    moved = problem.with_allowed(constrain(graph, machine, replace(options, variables="move")).allowed)
    steps_ns = {name: found for name in IN_WORDS if (found := simple_step_ns(moved, name, options)) is not None}
    best = min(steps_ns, key=lambda name: steps_ns[name], default="")
    if not best or steps_ns[best] > (1 - MIN_GAIN) * step_ns:
        return []
    text = f"{IN_WORDS[best]} is predicted to take {format_ns(steps_ns[best])} instead of {format_ns(step_ns)}"
    return [f'variables="move" makes a faster plan: with the variables moved, {text}. On the machine itself, calls try it.']
