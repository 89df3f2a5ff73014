"""What a step would take by a placement of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.machines import Machine
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph
from placer.plan.placement import Placement
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristics.tf_default import default_assignment
from placer.verbs.solve import solve


def simulate(graph: OpGraph, devices: Mapping[str, str], machine: Machine | str | None = None, **options: Any) -> Placement:
    """Predicts a step by the execution model, with ops where `devices` has them instead of where a solver would put them.

    The answer is a plan like `solve`'s: its step time, what each device is busy with, what crosses, peak memory and a timeline
    (``view("timeline")``), also what TensorFlow's default takes. Why an op is where it is: you have it there, or named no
    device for it; and what moving it alone would change.

    Args:
        graph: the ops.
        devices: by op, found as `OpGraph.find` does: "CPU:0" or "GPU:0", for any of them. Ops that must share a device go with
            one that is named; the others are where TensorFlow would put them.
        machine: as for `solve`.
        **options: fields of `Options` as keywords, without a solver.

    Raises:
        OptionError: an op is not there, may not be where it should, or ops that must share a device should be on two.
        InfeasibleError: it does not fit the memory limits; ``memory_limits`` with more predict it all the same.
    """
    if not isinstance(devices, Mapping):
        raise OptionError(f"devices={devices!r:.80} is no mapping: give each op's device by its name.")
    if "solver" in options:
        raise OptionError("simulate takes no solver: devices say where ops are. placer.solve takes one.")

    named: dict[str, str] = {}

    def given(problem: PlacementProblem) -> Assignment:
        device = default_assignment(problem).device
        told: dict[int, str] = {}
        number = {name: i for i, name in enumerate(problem.ops.names)}
        for name, there in devices.items():
            op = graph.find(name).name
            if there not in problem.devices.names:
                raise OptionError(f"{name!r} is to be on {there!r}; there is {', '.join(problem.devices.names)}.")
            unit, position = int(problem.ops.unit[number[op]]), problem.devices.names.index(there)
            if not problem.units.allowed[unit, position]:
                allowed = ", ".join(np.array(problem.devices.names)[problem.units.allowed[unit]])
                raise OptionError(f"{name!r} cannot be on {there}, only on {allowed}: explain({name!r}) of a plan tells why.")
            if unit in told and device[unit] != position:
                raise OptionError(f"{name!r} on {there} and {told[unit]!r} on {devices[told[unit]]}: these share a device.")
            device[unit], told[unit], named[op] = position, name, there
        return Assignment(device)

    return replace(solve(graph, machine, solver=given, **options), assigned=named)
