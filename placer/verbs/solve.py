"""From an op graph to a plan, without TensorFlow: constrain, formulate, solve, expand, validate."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

from cost_models.base import CostModel
from cost_models.machines import Machine, MachineError, load_machine, shipped_machines
from cost_models.registry import UnknownCostModelError, cost_model
from placer.common.garbage_collection import paused_collection
from placer.errors import InfeasibleError, OptionError, PlacementWarning, PlacerError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.from_solution import expand
from placer.plan.infeasible import explain_infeasible
from placer.plan.placement import Placement
from placer.problem.arrays import Bools
from placer.problem.constraints import Constraints, constrain, guesses
from placer.problem.formulate import formulate
from placer.problem.problem import PlacementProblem
from placer.problem.validate import validate
from placer.solvers.answer import checked
from placer.solvers.base import Solution, Solver, Status
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
    if not isinstance(graph, OpGraph):
        raise OptionError(f"solve takes an OpGraph, not {graph!r}: placer.build_graph(function, *args) makes one.")
    if not (options is None or isinstance(options, Options)):
        raise OptionError(f"options={options!r} is no placer.Options: make one of it, or give its fields as keywords.")
    if options is not None and given:
        raise OptionError(f"give options as one object or as keywords ({', '.join(given)}), not both.")
    options = options or Options.of(given)
    if machine is not None:
        if options.devices not in (None, machine):
            raise OptionError(f"two machines to plan for, {machine!r} and devices={options.devices!r}: give one.")
        options = replace(options, devices=machine)
    named, model, chosen = look_up(options)
    target = named or _local_machine(graph)
    for guess in (True, False):
        try:
            placement, said = _solved(graph, target, options, model, chosen, constrain(graph, target, options, guess=guess))
            break
        except InfeasibleError:
            # Where captured tensors are on a machine that is not here is a guess, and not one to fail for.
            if not guess or not guesses(graph, target):
                raise
    for note in said:
        warnings.warn(note, PlacementWarning, stacklevel=3)
    return placement


def _solved(
    graph: OpGraph, target: Machine, options: Options, model: CostModel, chosen: Solver, constraints: Constraints
) -> tuple[Placement, tuple[str, ...]]:
    """The plan, and what to warn of."""
    formulation = formulate(graph, constraints, model, target, options.memory_limits)
    problem = formulation.problem
    try:
        solution = _searched(problem, chosen, options)
    except PlacerError:
        raise
    except Exception as error:  # whatever a solver of the user's own raises
        raise OptionError(f"solver {chosen.name!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(solution, Solution):
        raise OptionError(f"solver {chosen.name!r} returned {solution!r}, which is no Solution.")
    if solution.assignment is None or solution.status is Status.UNKNOWN:
        raise InfeasibleError(explain_infeasible(graph, problem, solution, _without(graph, target, options)))
    assignment = checked(solution.assignment, problem, chosen.name)

    placement = expand(graph, target, options, constraints, formulation, replace(solution, assignment=assignment))
    report = validate(problem, assignment, placement.total_cost_ns)
    if not report.ok:
        raise PlacerError(f"solver {solution.solver!r} gave a plan that does not hold: {'; '.join(report.violations[:5])}.")
    return placement, constraints.notes


def _searched(problem: PlacementProblem, chosen: Solver, options: Options) -> object:
    """What the solver answers; OptionError or InfeasibleError where it cannot take the problem."""
    if why := chosen.unsupported(problem, options.objective):
        unlimited = problem.without_memory_limits()
        if chosen.unsupported(unlimited, options.objective):
            raise OptionError(f"solver {chosen.name!r} cannot take this problem: {why}. Way out: solver='auto'.")
        way = "more in memory_limits, or solver='auto'"
        raise InfeasibleError(f"the placement of solver {chosen.name!r} does not fit: {why}. Way out: {way}.")
    limit = {} if options.time_limit_s is None else {"time_limit_s": options.time_limit_s}
    return chosen.solve(problem, options.objective, seed=options.seed, **limit)


def _without(graph: OpGraph, target: Machine, options: Options) -> dict[str, Bools]:
    """Where units may be without one of the demands that options make, by how to drop it."""
    fewer = {
        f"no pin {name!r}": replace(options, pins={n: d for n, d in options.pins.items() if n != name}) for name in options.pins
    }
    if options.variables == "fixed":
        fewer['variables="move"'] = replace(options, variables="move")
    return {words: constrain(graph, target, less).allowed for words, less in fewer.items()}


def look_up(options: Options) -> tuple[Machine | None, CostModel, Solver]:
    """The machine (None for what TensorFlow sees), the cost model and the solver that options name, before anything is traced.

    Raises:
        OptionError: there is no such thing.
    """
    try:
        model = cost_model(options.cost_model)
    except UnknownCostModelError as error:
        raise OptionError(f"{error}.") from error
    return _machine(options.devices), model, solver(options.solver)


def _machine(asked: Machine | str | None) -> Machine | None:
    if asked is None or isinstance(asked, Machine):
        return asked
    if isinstance(asked, (str, os.PathLike)):
        try:
            return load_machine(asked)
        except MachineError as error:
            raise OptionError(f"{error}.") from error
    raise OptionError(
        f"devices={asked!r} is no machine: give a Machine, the name of a shipped one ({', '.join(shipped_machines())}), "
        "a TOML file, or nothing for what TensorFlow sees. What should stay on some of its devices is pinned."
    )


def _local_machine(graph: OpGraph) -> Machine:
    try:
        from placer.tf.devices import local_machine
    except ImportError as error:
        raise OptionError("TensorFlow is not installed here, so name the machine to plan for, such as 'h100'.") from error
    planned: Counter[str] = Counter()
    for state in graph.resources.values():
        if not state.waits:
            planned[state.device] += state.nbytes
    for op in graph:
        if op.role in ("argument", "capture") and not op.resource:
            planned[op.location] += sum(spec.nbytes for spec in op.signature.outputs)
    return local_machine(planned)
