"""Makes the problem of a graph on a machine, without a solver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cost_models.machines import Machine
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.placement import Placement
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.problem import PlacementProblem
from placer.verbs.read_target import of_plan, read_target
from placer.verbs.solve import planned_for


def problem(graph: OpGraph | Placement | str, machine: Machine | str | None = None, **limits: Any) -> PlacementProblem:
    """The problem that `placer.solve` solves: a device for each unit of ops, as arrays.

    It does not load TensorFlow if the graph is no function and the machine is named.

    Args:
        graph: the ops to place; a plan, whose graph and machine are taken; or a target of the command line, such as
            ``"shipped:detector"`` or a saved graph.
        machine: a `Machine`, the name of a shipped one, or a TOML file. None stands for the machine that comes with the graph; if
            there is none, for the devices of this process.
        **limits: what narrows the choice, as keywords of `placer.solve`: ``memory_limits={"GPU:0": "8GiB"}``, ``pins``,
            ``share``, ``cost_model``. Options of the search do not change the problem.

    Raises:
        OptionError: a limit cannot be used, or there is no such target or machine.
        DeviceError: a limit names a device that the machine does not have.
        ConstraintError: the demands on some op leave no device.
        InfeasibleError: a tensor is too large for any device.

    >>> import placer
    >>> problem = placer.problem("shipped:detector", memory_limits={"GPU:0": "64MiB"})
    >>> problem.num_ops, problem.num_units, problem.devices.names
    (163, 151, ('CPU:0', 'GPU:0'))
    """
    given = {**limits, **({} if machine is None else {"devices": machine})}
    Options.of(given)
    if isinstance(graph, str):
        graph, options = read_target(graph, None, given)
    else:
        graph, options = of_plan(graph) if isinstance(graph, Placement) else (graph, Options())
    if not isinstance(graph, OpGraph):
        raise OptionError(f"{graph!r} is no graph: give an OpGraph, a Placement, or a target such as 'shipped:detector'.")
    return problem_of(graph, replace(options, **given))


def problem_of(graph: OpGraph, options: Options) -> PlacementProblem:
    """The problem of a graph under these options. Errors as of `problem`."""
    target, model, _ = planned_for(graph, options)
    return formulate(graph, constrain(graph, target, options), model, target, options.memory_limits).problem
