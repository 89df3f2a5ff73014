"""From an op graph to a plan, without TensorFlow: constrain, formulate, solve, expand, validate."""

from __future__ import annotations

import warnings
from typing import Any

from cost_models.machines import Machine, MachineError, load_machine
from cost_models.registry import UnknownCostModelError, cost_model
from placer.errors import InfeasibleError, OptionError, PlacementWarning, PlacerError
from placer.expanding import expand
from placer.infeasible import explain_infeasible
from placer.opgraph import OpGraph
from placer.options import Options
from placer.pausing import paused_collection
from placer.placement import Placement
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.validate import validate
from placer.solvers.registry import solver


@paused_collection()
def solve(graph: OpGraph, machine: Machine | str | None = None, options: Options | None = None, **given: Any) -> Placement:
    """Decides the device of every op.

    Args:
        graph: what to place.
        machine: what to place it on: a `Machine`, the name of a shipped one, a TOML file. None takes ``options.devices``, and
            where that is None too, what TensorFlow sees in this process (which needs TensorFlow).
        options: as one object, or
        **given: its fields as keywords.

    Returns:
        A plan that an independent check found valid.

    Raises:
        OptionError: an option that cannot be used.
        DeviceError: a device that is asked for and not there.
        ConstraintError: demands on some ops leave no device.
        InfeasibleError: nothing fits the memory limits, or nothing was found in time.
    """
    if options is not None and given:
        raise OptionError(f"give options as one object or as keywords ({', '.join(given)}), not both.")
    options = options or Options.of(given)
    target = _machine(machine if machine is not None else options.devices)
    try:
        model = cost_model(options.cost_model)
    except UnknownCostModelError as error:
        raise OptionError(str(error)) from error
    chosen = solver(options.solver)

    constraints = constrain(graph, target, options)
    for note in constraints.notes:
        warnings.warn(note, PlacementWarning, stacklevel=3)
    formulation = formulate(graph, constraints, model, target, options.memory_limits)
    problem = formulation.problem
    if why := chosen.unsupported(problem, options.objective):
        raise OptionError(f"solver {chosen.name!r} cannot take this problem: {why}. Way out: solver='auto'.")
    limit = {} if options.time_limit_s is None else {"time_limit_s": options.time_limit_s}
    solution = chosen.solve(problem, options.objective, seed=options.seed, **limit)
    if solution.assignment is None:
        raise InfeasibleError(explain_infeasible(problem, solution))

    placement = expand(graph, target, options, constraints, formulation, solution)
    report = validate(problem, solution.assignment, placement.total_cost_ns)
    if not report.ok:
        raise PlacerError(f"solver {solution.solver!r} gave a plan that does not hold: {'; '.join(report.violations[:5])}.")
    return placement


def _machine(asked: Machine | str | None) -> Machine:
    if isinstance(asked, Machine):
        return asked
    if asked is not None:
        try:
            return load_machine(asked)
        except MachineError as error:
            raise OptionError(str(error)) from error
    try:
        from placer.tf.devices import local_machine
    except ImportError as error:
        raise OptionError("TensorFlow is not installed here, so name the machine to plan for, such as 'h100'.") from error
    return local_machine()
