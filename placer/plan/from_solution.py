"""From a solver's assignment of units to a Placement: devices, times, copies and reasons of every op."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from cost_models.machines import Machine
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.baselines import price_baselines
from placer.plan.if_moved import gain_of_moving
from placer.plan.notes import (
    assumed,
    kernels_of_snapshot,
    limits_above_memory,
    rates_not_measured,
    results_that_may_differ,
    sizes_without_bound,
    used_by_others,
    variables_to_move,
)
from placer.plan.parts import AtEnd, DeviceTotals, OpPlan, Transfer, UnitPlan
from placer.plan.placement import Placement
from placer.problem.arrays import Ints
from placer.problem.constraints import Constraints, constrain
from placer.problem.formulate import Formulation
from placer.problem.memory import usage
from placer.problem.price import move_costs_ns, total_cost_ns, transfers
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulation, simulate
from placer.solvers.base import Solution


def expand(
    graph: OpGraph,
    machine: Machine,
    options: Options,
    constraints: Constraints,
    formulation: Formulation,
    solution: Solution,
    at_ends: tuple[AtEnd, ...] = (),
) -> Placement:
    """The Placement of a solution.

    The baselines are priced by the same problem without the pins, since they are what a user has without a plan. Their notes say
    how many ops the pins would not allow there.

    Args:
        graph: the graph that was planned.
        machine: the machine that it was planned for.
        options: the options of the planning.
        constraints: what narrowed the devices of units.
        formulation: the problem that was solved, and where its numbers come from.
        solution: the solver's answer, which must have an assignment.
        at_ends: see `Placement`.
    """
    problem, assignment = formulation.problem, solution.assignment
    assert assignment is not None
    op_device = assignment.device[problem.ops.unit]
    unpinned = problem
    if options.pins:
        unpinned = problem.with_allowed(constrain(graph, machine, replace(options, pins={})).allowed)
    baselines = price_baselines(unpinned, problem.units.allowed, options)
    default = baselines["tf_default"][1]
    default_device = default.device[problem.ops.unit] if default is not None else None
    schedule, held = simulate(problem, assignment), usage(problem, assignment)
    return Placement(
        graph=graph,
        machine=machine.name,
        devices=problem.devices.names,
        ops=_ops(formulation, op_device, schedule, default_device, [tuple(op.kernels) for op in graph]),
        units=_units(problem, constraints, move_costs_ns(problem, assignment)),
        transfers=_transfers(formulation, assignment, schedule),
        totals=_totals(graph, problem, assignment, held),
        memory={name: tuple(row) for name, row in zip(problem.devices.names, held[:, problem.ops.moment].tolist(), strict=True)},
        baselines={name: baseline for name, (baseline, _) in baselines.items()},
        objective=solution.objective,
        status=solution.status,
        objective_ns=solution.objective_ns,
        lower_bound_ns=solution.lower_bound_ns,
        total_cost_ns=total_cost_ns(problem, assignment),
        step_time_ns=schedule.step_ns,
        solver=solution.solver,
        solver_seconds=solution.seconds,
        stop_reason=solution.stop_text,
        chosen_because=solution.chosen_because,
        notes=(
            *rates_not_measured(machine),
            *assumed(machine),
            *used_by_others(machine),
            *kernels_of_snapshot(graph, machine),
            *graph.notes,
            *constraints.notes,
            *sizes_without_bound(graph, options),
            *limits_above_memory(machine, problem.devices.memory_limit_bytes),
            *gain_of_moving(graph, machine, options, problem, schedule.step_ns),
            *variables_to_move(graph, options, problem, op_device),
            *results_that_may_differ(graph, problem, op_device, default_device),
        ),
        options=_plain(options),
        at_ends=at_ends,
    )


def _ops(
    formulation: Formulation, op_device: Ints, schedule: Simulation, default_device: Ints | None, kernels: list[tuple[str, ...]]
) -> dict[str, OpPlan]:
    """The plan of each op, by name.

    Args:
        formulation: the problem, and the sources of its costs.
        op_device: device of each op, [N].
        schedule: the predicted step.
        default_device: device of each op in TensorFlow's own placement, [N]; None if that does not exist.
        kernels: the kinds of devices that have a kernel, for each op.
    """
    problem = formulation.problem
    names, kinds = problem.devices.names, problem.devices.kinds
    runnable = {has: [(d, names[d]) for d, kind in enumerate(kinds) if kind in has] for has in dict.fromkeys(kernels)}
    signatures = formulation.costs.signature.tolist()
    sources = {
        (signature, has): {name: formulation.costs.sources[signature][d] for d, name in runnable[has]} if signature >= 0 else {}
        for signature, has in dict.fromkeys(zip(signatures, kernels, strict=True))
    }
    defaults = [""] * problem.num_ops if default_device is None else [names[d] for d in default_device.tolist()]
    rows = zip(
        problem.ops.names,
        op_device.tolist(),
        problem.ops.unit.tolist(),
        problem.ops.time_ns.tolist(),
        formulation.costs.first_of_type_ns.tolist(),
        signatures,
        kernels,
        *(column.tolist() for column in (schedule.start_ns, schedule.end_ns, schedule.streamed)),
        defaults,
        strict=True,
    )
    return {
        op: OpPlan(
            device=names[device],
            unit=unit,
            time_ns={name: times[d] for d, name in runnable[has]},
            cost_sources=sources[signature, has],
            start_ns=start,
            end_ns=end,
            streamed=streamed,
            default=default,
            cold_ns={name: cold[d] for d, name in runnable[has] if cold[d]},
        )
        for op, device, unit, times, cold, signature, has, start, end, streamed, default in rows
    }


def _units(problem: PlacementProblem, constraints: Constraints, transfer_ns: Ints) -> tuple[UnitPlan, ...]:
    """The plan of each unit. `transfer_ns` [U, D] is the time of its transfers if only it moves to a device."""
    names = problem.devices.names
    sizes = np.bincount(problem.ops.unit, minlength=problem.num_units).tolist()
    rows = zip(sizes, problem.units.allowed.tolist(), problem.unit_time_ns.tolist(), transfer_ns.tolist(), strict=True)
    return tuple(
        UnitPlan(
            size,
            constraints.reasons.get(unit, ()),
            {name: ns for name, ns, ok in zip(names, times, allowed, strict=True) if ok},
            {name: ns for name, ns, ok in zip(names, copies, allowed, strict=True) if ok},
        )
        for unit, (size, allowed, times, copies) in enumerate(rows)
    )


def _transfers(formulation: Formulation, assignment: Assignment, schedule: Simulation) -> tuple[Transfer, ...]:
    """The transfers of tensors and of control edges, the longest first."""
    problem = formulation.problem
    names, count = problem.devices.names, problem.num_devices
    crossing = transfers(problem, assignment)
    running = np.flatnonzero(problem.tensors.count[crossing.tensor] > 0)  # a tensor that is never made is never copied
    columns = (crossing.tensor, crossing.src, crossing.dst, crossing.cost_ns)
    rows = zip(*(column[running].tolist() for column in columns), strict=True)
    copies = list(zip(*(a.tolist() for a in (schedule.copy_tensor, schedule.copy_op, schedule.copy_dst)), strict=True))
    times = list(zip(schedule.copy_start_ns.tolist(), schedule.copy_end_ns.tolist(), strict=True))
    tensor_times = {(tensor, dst): time for (tensor, _, dst), time in zip(copies, times, strict=True) if tensor >= 0}
    control_times = {(op, dst % count): time for (tensor, op, dst), time in zip(copies, times, strict=True) if tensor < 0}
    tensors = [
        Transfer(
            f"{problem.ops.names[problem.tensors.op[t]]}:{formulation.tensor_output[t]}",
            names[src % count],
            names[dst % count],
            "host" if dst >= count else "device",
            int(problem.tensors.nbytes[t]),
            float(problem.tensors.count[t]),
            cost,
            *tensor_times[t, dst],
        )
        for t, src, dst, cost in rows
    ]
    control = [
        Transfer(f"^{problem.ops.names[op]}", names[src], names[dst], "device", 0, runs, cost, *control_times[op, dst])
        for op, src, dst, runs, cost in _control_transfers(problem, assignment)
    ]
    return tuple(sorted([*tensors, *control], key=lambda transfer: -transfer.time_ns))


def _control_transfers(problem: PlacementProblem, assignment: Assignment) -> list[tuple[int, int, int, float, int]]:
    """The transfers of control edges: op, its device, other device, runs and cost. One for each op and other device."""
    op_device = assignment.device[problem.ops.unit]
    pairs = np.stack([problem.ops.control_src, op_device[problem.ops.control_dst]], axis=1)
    op, dst = np.unique(pairs[op_device[pairs[:, 0]] != pairs[:, 1]], axis=0).T
    src, runs = op_device[op], problem.ops.control_count[op]
    cost = problem.links.copy_ns(np.zeros_like(op), runs, src, dst)
    return [row for row in zip(*(a.tolist() for a in (op, src, dst, runs, cost)), strict=True) if row[3]]


def _totals(graph: OpGraph, problem: PlacementProblem, assignment: Assignment, held: Ints) -> dict[str, DeviceTotals]:
    """The totals of each device, by name. `held` [D, M] is the memory that devices hold at each moment."""
    count = problem.num_devices
    op_device = assignment.device[problem.ops.unit]
    counted = [op.role != "constant" for op in graph]
    ops = np.bincount(op_device[counted], minlength=count)
    times = np.zeros(count, np.int64)
    np.add.at(times, op_device, problem.ops.time_ns[np.arange(problem.num_ops), op_device])
    persistent = np.zeros(count, np.int64)
    np.add.at(persistent, assignment.device, problem.units.persistent_bytes)
    columns = (ops, times, held.max(axis=1, initial=0), persistent, problem.devices.memory_limit_bytes)
    return dict(zip(problem.devices.names, (DeviceTotals(*row) for row in np.stack(columns, axis=1).tolist()), strict=True))


def _plain(options: Options) -> dict[str, Any]:
    """The options as JSON types; an object is replaced by its name."""

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (str, int, float)):
            return value
        return dict(value) if hasattr(value, "items") else str(getattr(value, "name", getattr(value, "__name__", value)))

    return {f.name: plain(getattr(options, f.name)) for f in fields(options)}
