"""Makes the plan of an op graph, without TensorFlow."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from cost_models.base import CostModel
from cost_models.machine_files import load_machine, shipped_machines
from cost_models.machines import Machine, MachineError
from cost_models.registry import UnknownCostModelError, cost_model
from placer.common.clock import counted
from placer.common.escaping import brief
from placer.common.garbage_collection import paused_collection
from placer.common.suggestions import did_you_mean
from placer.common.warning import warn
from placer.errors import InfeasibleError, OptionError, PlacerError, PlanError
from placer.graph.assumptions import check_given
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.at_ends import price_at_ends
from placer.plan.from_solution import expand
from placer.plan.infeasible import explain_infeasible
from placer.plan.notes import sizes_without_bound
from placer.plan.placement import Placement
from placer.problem.arrays import Bools
from placer.problem.constraints import Constraints, constrain, guesses
from placer.problem.formulate import Formulation, formulate
from placer.problem.problem import PlacementProblem
from placer.problem.validate import validate
from placer.solvers.answer import checked
from placer.solvers.base import Solution, Solver, Status
from placer.solvers.idle_tasks import without_idle_tasks
from placer.solvers.registry import solver
from placer.solvers.run import run, why_unsupported
from placer.verbs.share import shared_costs, shared_machine

_DEVICE_NAME = re.compile(r"/?(device:)?(?P<kind>[CG]PU)(:\d+|:\*)?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Solved:
    """A plan, and the problem that it solves, of which other placements can be made."""

    placement: Placement
    machine: Machine
    options: Options
    constraints: Constraints
    formulation: Formulation
    solution: Solution

    @property
    def problem(self) -> PlacementProblem:
        """The problem that the plan solves."""
        return self.formulation.problem

    def placement_of(self, solution: Solution) -> Placement:
        """Another solution of the problem as a Placement."""
        return expand(self.placement.graph, self.machine, self.options, self.constraints, self.formulation, solution)


def solve(graph: OpGraph, machine: Machine | str | None = None, options: Options | None = None, **given: Any) -> Placement:
    """Decides the device of every op.

    Args:
        graph: the ops to place.
        machine: the machine to place them on: a `Machine`, the name of a shipped one, or a TOML file. None stands for
            ``options.devices``; if that is None, too, for the devices of this process, which needs TensorFlow.
        options: as one object, or
        **given: its fields as keywords.

    Returns:
        A plan that an independent check found valid.

    Raises:
        OptionError: an option that cannot be used.
        DeviceError: the options or the graph ask for a device that the machine does not have.
        ConstraintError: the demands on some op leave no device.
        InfeasibleError: no plan meets the memory limits, or none was found in time.
    """
    return solved(graph, machine, options, **given).placement


@paused_collection()
def solved(graph: OpGraph, machine: Machine | str | None = None, options: Options | None = None, **given: Any) -> Solved:
    """Like `solve`, with the problem that the plan solves."""
    if not isinstance(graph, OpGraph):
        raise OptionError(f"solve takes an OpGraph, not {brief(graph)}: placer.build_graph(function, *args) makes one.")
    if not (options is None or isinstance(options, Options)):
        raise OptionError(f"options={options!r} is no placer.Options: make one of it, or give its fields as keywords.")
    if options is not None and given:
        raise OptionError(f"give options as one object or as keywords ({', '.join(given)}), not both.")
    options = options or Options.of(given)
    check_given(graph, options.sizes, options.rounds)
    if machine is not None:
        if options.devices not in (None, machine):
            raise OptionError(f"two machines to plan for, {machine!r} and devices={options.devices!r}: give one.")
        options = replace(options, devices=machine)
    target, model, chosen = planned_for(graph, options)
    for guess in (True, False):
        try:
            planned, notes = _solved(graph, target, options, model, chosen, constrain(graph, target, options, guess=guess))
            break
        except InfeasibleError:
            # On another machine the places of captured tensors are guessed. A wrong guess is no reason to fail.
            if not guess or not guesses(graph, target):
                raise
    for note in notes:
        warn(note)
    return planned


def _solved(
    graph: OpGraph, target: Machine, options: Options, model: CostModel, chosen: Solver, constraints: Constraints
) -> tuple[Solved, tuple[str, ...]]:
    """The plan, and the demands that it does not meet, in words."""
    formulation = formulate(graph, constraints, model, target, options.memory_limits)
    problem = formulation.problem
    try:
        solution = _searched(problem, chosen, options)
    except PlacerError:
        raise
    except Exception as error:  # a user's own solver may raise anything
        raise OptionError(f"solver {chosen.name!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(solution, Solution):
        raise OptionError(f"solver {chosen.name!r} returned {solution!r}, which is no Solution.")
    if solution.assignment is None or solution.status is Status.UNKNOWN:
        with counted():  # the explanation, too, is the same on every machine
            raise InfeasibleError(explain_infeasible(graph, problem, solution, _without(graph, target, options)))
    assignment = checked(solution.assignment, problem, chosen.name)
    solution = without_idle_tasks(problem, replace(solution, assignment=assignment))
    assert solution.assignment is not None
    assignment = solution.assignment

    at_ends = price_at_ends(graph, target, options, constraints, model, assignment)
    placement = expand(graph, target, options, constraints, formulation, solution, at_ends)
    report = validate(problem, assignment, placement.total_cost_ns)
    value_ns = placement.step_time_ns if options.objective == "step_time" else placement.total_cost_ns
    false_claim = f"it claims {solution.objective_ns} ns for a plan of {value_ns} ns" if solution.objective_ns != value_ns else ""
    if wrong := [*report.violations[:5], *filter(None, [false_claim])]:
        raise PlacerError(f"solver {solution.solver!r} gave a plan that does not hold: {'; '.join(wrong)}.")
    planned = Solved(placement, target, options, constraints, formulation, solution)
    return planned, (*constraints.notes, *sizes_without_bound(graph, options))


def _searched(problem: PlacementProblem, chosen: Solver, options: Options) -> object:
    """The solver's answer. Raises OptionError or InfeasibleError if the solver does not support the problem."""
    time_limit_s, effort = options.time_limit_s, options.effort
    if reason := why_unsupported(chosen, problem, options.objective, time_limit_s=time_limit_s, effort=effort):
        unlimited = problem.without_memory_limits()
        if chosen.unsupported(unlimited, options.objective):
            raise OptionError(f"solver {chosen.name!r} cannot take this problem: {reason}. Way out: solver='auto'.")
        way = "more in memory_limits, or solver='auto'"
        raise InfeasibleError(f"the placement of solver {chosen.name!r} does not fit: {reason}. Way out: {way}.")
    return run(chosen, problem, options.objective, seed=options.seed, time_limit_s=time_limit_s, effort=effort)


def _without(graph: OpGraph, target: Machine, options: Options) -> dict[str, Bools]:
    """The allowed devices of units [U, D] without one demand of the options, by how the user drops that demand."""
    without = {
        f"no pin {name!r}": replace(options, pins={n: d for n, d in options.pins.items() if n != name}) for name in options.pins
    }
    if options.variables != "move":
        without['variables="move"'] = replace(options, variables="move")
    return {way_out: constrain(graph, target, changed).allowed for way_out, changed in without.items()}


def planned_for(graph: OpGraph, options: Options) -> tuple[Machine, CostModel, Solver]:
    """What a graph is planned for, and by what: the share of the machine and of its costs that options name, and the solver.

    Raises:
        OptionError: one of the names does not exist, or no machine is named and TensorFlow is not installed.
    """
    machine, model, chosen = look_up(options)
    return shared_machine(machine or _local_machine(graph), options.share), shared_costs(model, options.share), chosen


def look_up(options: Options) -> tuple[Machine | None, CostModel, Solver]:
    """The machine, the cost model and the solver that options name. The machine is None for the devices of this process.

    Raises:
        OptionError: one of the names does not exist.
    """
    try:
        model = cost_model(options.cost_model)
    except UnknownCostModelError as error:
        raise OptionError(f"cost_model: {error}.") from error
    return machine_named(options.devices), model, solver(options.solver)


def machine_named(named: Machine | str | None) -> Machine | None:
    """The machine that the option ``devices`` names; None for the devices of this process.

    Raises:
        OptionError: there is no such machine.
        PlanError: the file is there, and is broken.
    """
    if named is None or isinstance(named, Machine):
        return named
    if isinstance(named, (str, os.PathLike)):
        try:
            return load_machine(named)
        except MachineError as error:
            if os.path.isfile(named):
                raise PlanError(f"{error}.") from error
            if match := _DEVICE_NAME.fullmatch(os.fspath(named)):
                kind = match["kind"].lower()
                raise OptionError(
                    f"devices={named!r} is a device, not a machine. Way out: leave devices out to plan for this process, or name "
                    f"a machine ({', '.join(shipped_machines())}). Pins keep ops on a device; solver='all_{kind}' places all ops "
                    f"on the {kind.upper()} that have a kernel there."
                ) from error
            hint = did_you_mean(os.fspath(named), shipped_machines())
            if hint != ".":
                raise OptionError(f"devices={brief(named)}: no shipped machine has this name{hint}") from error
            raise OptionError(f"devices={brief(named)}: {error}.") from error
    raise OptionError(
        f"devices={brief(named)} is no machine: give a Machine, the name of a shipped one ({', '.join(shipped_machines())}), "
        "a TOML file, or nothing for the devices of this process. To keep ops on some of its devices, pin them."
    )


def _local_machine(graph: OpGraph) -> Machine:
    """The machine of this process. Memory that the graph's own state and arguments take there is available to the plan."""
    try:
        from placer.tf.devices import local_machine
    except ImportError as error:
        raise OptionError("TensorFlow is not installed here, so name the machine to plan for, such as 'h100'.") from error
    planned_bytes: Counter[str] = Counter()
    for state in graph.resources.values():
        if not state.waits:
            planned_bytes[state.device] += state.nbytes
    for op in graph:
        if op.role in ("argument", "capture") and not op.resource:
            planned_bytes[op.location] += sum(spec.nbytes for spec in op.signature.outputs)
    return local_machine(planned_bytes)
