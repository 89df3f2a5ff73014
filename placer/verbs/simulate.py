"""The predicted step of a placement that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.machines import Machine
from placer.errors import OptionError
from placer.graph.matching import matching
from placer.graph.op_graph import ENDS, OpGraph
from placer.plan.placement import Placement
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristics.tf_default import default_assignment
from placer.verbs.solve import solve


def simulate(graph: OpGraph, devices: Mapping[str, str], machine: Machine | str | None = None, **options: Any) -> Placement:
    """Predicts a step by the execution model with the devices that the user gives, without a solver.

    The result is a plan like that of `solve`: it has the step time, the load of each device, copies, peak memory and a timeline
    (``view("timeline")``). It also has the step time of TensorFlow's default. The reason of an op's device is that the user gave
    it, or gave none for the op; it also says what moving the op alone would change.

    Args:
        graph: the ops.
        devices: device by name glob, op type, variable name or layer, such as ``{"embed/*": "CPU:0"}``. Each names
            the ops that it names in ``pins``, except that the exact name of an op means that op alone. Ops that must share a
            device follow the one that is given. The others are where TensorFlow would put them.
        machine: as for `solve`.
        **options: fields of `Options` as keywords, except the solver.

    Raises:
        OptionError: a name matches no op, op type, variable or layer; two names give an op two devices; an op may not be on its
            device; or ops that must share a device have two.
        InfeasibleError: the placement exceeds the memory limits; higher ``memory_limits`` predict it.
    """
    if not isinstance(devices, Mapping):
        raise OptionError(f"devices={devices!r:.80} is no mapping: give each op's device by its name.")
    if "solver" in options:
        raise OptionError("simulate takes no solver: devices say where ops are. placer.solve takes one.")

    named: dict[str, str] = {}
    for pattern, wanted in devices.items():
        for name in (pattern,) if pattern in graph.graph else matching(graph, pattern, "name"):
            if named.setdefault(name, wanted) != wanted:
                raise OptionError(f"{name!r} is on {named[name]} and, by {pattern!r}, on {wanted}: give one device.")
    # A variable, an argument or a captured tensor is where a pin says; no choice of a solver moves it.
    ends = {name: wanted for name, wanted in named.items() if graph.op(name).resource or graph.op(name).role in ENDS}
    pins = {**options.pop("pins", {}), **ends}

    def given(problem: PlacementProblem) -> Assignment:
        device = default_assignment(problem).device
        name_of: dict[int, str] = {}
        number = {name: i for i, name in enumerate(problem.ops.names)}
        for name, wanted in named.items():
            if wanted not in problem.devices.names:
                raise OptionError(f"{name!r} is to be on {wanted!r}; there is {', '.join(problem.devices.names)}.")
            unit, position = int(problem.ops.unit[number[name]]), problem.devices.names.index(wanted)
            if not problem.units.allowed[unit, position]:
                allowed = ", ".join(np.array(problem.devices.names)[problem.units.allowed[unit]])
                raise OptionError(
                    f"{name!r} cannot be on {wanted}, only on {allowed}: explain({name!r}) of a plan by solve tells why. "
                    'If a variable is the reason, variables="move" takes it along.'
                )
            if (other := name_of.setdefault(unit, name)) != name and named[other] != wanted:
                raise OptionError(f"{name!r} on {wanted} and {other!r} on {named[other]}: these share a device.")
            device[unit] = position
        return Assignment(device)

    return replace(solve(graph, machine, solver=given, pins=pins, **options), assigned=named)
