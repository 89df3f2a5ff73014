"""A solver's assignment, told per op: the Placement."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from cost_models.machines import Machine
from placer.common.units import format_bytes
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.parts import Baseline, DeviceTotals, OpPlan, Transfer, UnitPlan
from placer.plan.placement import Placement
from placer.problem.arrays import Ints
from placer.problem.constraints import Constraints, constrain
from placer.problem.formulate import Formulation
from placer.problem.memory import excess, usage
from placer.problem.price import move_costs_ns, total_cost_ns, transfers
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulation, Simulator, simulate
from placer.solvers.base import Solution
from placer.solvers.registry import solver

BASELINES = {"tf_default": "CPU", "all_cpu": "CPU", "all_gpu": "GPU"}
"""Solvers a plan is compared with, and the kind of device each needs."""
SENSITIVE = {
    "bounds": "what it does with an index out of range depends on the device",
    "division": "what an integer division by zero does depends on the device",
    "power": "what an integer to a negative power is depends on the device",
    "random": "its random numbers depend on the device",
}
"""Op flags that make a device matter for more than speed."""


def expand(
    graph: OpGraph, machine: Machine, options: Options, constraints: Constraints, formulation: Formulation, solution: Solution
) -> Placement:
    """The plan behind `solution`, which must hold an assignment.

    Its baselines are priced by the same problem, without the pins: they are what a user has without a plan. What pins forbid of
    them is noted.
    """
    problem, assignment = formulation.problem, solution.assignment
    assert assignment is not None
    op_device = assignment.device[problem.ops.unit]
    unpinned = problem
    if options.pins:
        unpinned = problem.with_allowed(constrain(graph, machine, replace(options, pins={})).allowed)
    kinds = {d.kind for d in machine.devices}
    others = {name: _baseline(unpinned, problem, name, options) for name, kind in BASELINES.items() if kind in kinds}
    default = others["tf_default"][1]
    schedule, held = simulate(problem, assignment), usage(problem, assignment)
    return Placement(
        graph=graph,
        machine=machine.name,
        devices=problem.devices.names,
        ops=_ops(formulation, op_device, schedule, _default(problem, default), [tuple(op.kernels) for op in graph]),
        units=_units(problem, constraints, move_costs_ns(problem, assignment)),
        transfers=_transfers(formulation, assignment, schedule),
        totals=_totals(problem, assignment, held),
        memory={name: tuple(row) for name, row in zip(problem.devices.names, held[:, problem.ops.moment].tolist(), strict=True)},
        baselines={name: baseline for name, (baseline, _) in others.items()},
        objective=solution.objective,
        status=solution.status,
        objective_ns=solution.objective_ns,
        lower_bound_ns=solution.lower_bound_ns,
        total_cost_ns=total_cost_ns(problem, assignment),
        step_time_ns=schedule.step_ns,
        solver=solution.solver,
        solver_seconds=solution.seconds,
        stop_reason=solution.stop_text,
        notes=(
            *graph.notes,
            *constraints.notes,
            *_more_than_there_is(machine, problem.devices.memory_limit_bytes),
            *_variables_moved(
                graph, options, dict(zip(problem.ops.names, op_device.tolist(), strict=True)), problem.devices.names
            ),
            *_moved(graph, problem, op_device, default),
        ),
        options=_plain(options),
    )


def _ops(
    formulation: Formulation, op_device: Ints, schedule: Simulation, default: list[str], kernels: list[tuple[str, ...]]
) -> dict[str, OpPlan]:
    problem = formulation.problem
    names, kinds = problem.devices.names, problem.devices.kinds
    runnable = {has: [(d, names[d]) for d, kind in enumerate(kinds) if kind in has] for has in dict.fromkeys(kernels)}
    signatures = formulation.op_signature.tolist()
    sources = {
        (signature, has): {other: formulation.sources[signature][d] for d, other in runnable[has]} if signature >= 0 else {}
        for signature, has in dict.fromkeys(zip(signatures, kernels, strict=True))
    }
    rows = zip(
        problem.ops.names,
        op_device.tolist(),
        problem.ops.unit.tolist(),
        problem.ops.time_ns.tolist(),
        formulation.cold_ns.tolist(),
        signatures,
        kernels,
        *(column.tolist() for column in (schedule.start_ns, schedule.end_ns, schedule.streamed)),
        default,
        strict=True,
    )
    return {
        name: OpPlan(
            names[device],
            unit,
            {other: times[d] for d, other in runnable[has]},
            sources[signature, has],
            start,
            end,
            streamed,
            usual,
            {other: cold[d] for d, other in runnable[has] if cold[d]},
        )
        for name, device, unit, times, cold, signature, has, start, end, streamed, usual in rows
    }


def _default(problem: PlacementProblem, assignment: Assignment | None) -> list[str]:
    if assignment is None:
        return [""] * problem.num_ops
    return [problem.devices.names[device] for device in assignment.device[problem.ops.unit].tolist()]


def _units(problem: PlacementProblem, constraints: Constraints, moves: Ints) -> tuple[UnitPlan, ...]:
    names = problem.devices.names
    sizes = np.bincount(problem.ops.unit, minlength=problem.num_units).tolist()
    rows = zip(sizes, problem.units.allowed.tolist(), problem.unit_time_ns.tolist(), moves.tolist(), strict=True)
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
    problem = formulation.problem
    names, count = problem.devices.names, problem.num_devices
    found = transfers(problem, assignment)
    order = np.flatnonzero(problem.tensors.count[found.tensor] > 0)  # nothing crosses where nothing runs
    rows = zip(*(a[order].tolist() for a in (found.tensor, found.src, found.dst, found.cost_ns)), strict=True)
    copies = list(zip(*(a.tolist() for a in (schedule.copy_tensor, schedule.copy_op, schedule.copy_dst)), strict=True))
    times = list(zip(schedule.copy_start_ns.tolist(), schedule.copy_end_ns.tolist(), strict=True))
    copied = {(tensor, dst): when for (tensor, _, dst), when in zip(copies, times, strict=True) if tensor >= 0}
    hopped = {(op, dst % count): when for (tensor, op, dst), when in zip(copies, times, strict=True) if tensor < 0}
    tensors = [
        Transfer(
            f"{problem.ops.names[problem.tensors.op[t]]}:{formulation.tensor_output[t]}",
            names[src % count],
            names[dst % count],
            "host" if dst >= count else "device",
            int(problem.tensors.nbytes[t]),
            float(problem.tensors.count[t]),
            cost,
            *copied[t, dst],
        )
        for t, src, dst, cost in rows
    ]
    hops = [
        Transfer(f"^{problem.ops.names[op]}", names[src], names[dst], "device", 0, runs, cost, *hopped[op, dst])
        for op, src, dst, runs, cost in _hops(problem, assignment)
    ]
    return tuple(sorted([*tensors, *hops], key=lambda transfer: -transfer.time_ns))


def _hops(problem: PlacementProblem, assignment: Assignment) -> list[tuple[int, int, int, float, int]]:
    """Op, device, further device, runs and cost of the hops of control edges: one for each op and further device."""
    op_device = assignment.device[problem.ops.unit]
    pairs = np.stack([problem.ops.control_src, op_device[problem.ops.control_dst]], axis=1)
    op, dst = np.unique(pairs[op_device[pairs[:, 0]] != pairs[:, 1]], axis=0).T
    src, runs = op_device[op], problem.ops.control_count[op]
    cost = problem.links.copy_ns(np.zeros_like(op), runs, src, dst)
    return [row for row in zip(*(a.tolist() for a in (op, src, dst, runs, cost)), strict=True) if row[3]]


def _totals(problem: PlacementProblem, assignment: Assignment, held: Ints) -> dict[str, DeviceTotals]:
    count = problem.num_devices
    op_device = assignment.device[problem.ops.unit]
    ops = np.bincount(op_device, minlength=count)
    times = np.zeros(count, np.int64)
    np.add.at(times, op_device, problem.ops.time_ns[np.arange(problem.num_ops), op_device])
    persistent = np.zeros(count, np.int64)
    np.add.at(persistent, assignment.device, problem.units.persistent_bytes)
    columns = (ops, times, held.max(axis=1, initial=0), persistent, problem.devices.memory_limit_bytes)
    return dict(zip(problem.devices.names, (DeviceTotals(*row) for row in np.stack(columns, axis=1).tolist()), strict=True))


def _baseline(
    problem: PlacementProblem, pinned: PlacementProblem, name: str, options: Options
) -> tuple[Baseline, Assignment | None]:
    chosen = solver(name)
    solution = chosen.solve(problem, options.objective, seed=options.seed)
    assignment = solution.assignment
    if assignment is None:
        return Baseline(False, 0, 0, solution.stop_text), None
    over = excess(problem, assignment)
    worst = int(np.argmax(over))
    notes = []
    if over[worst]:
        limit = format_bytes(int(problem.devices.memory_limit_bytes[worst]))
        notes.append(f"exceeds the limit of {problem.devices.names[worst]} ({limit}) by {format_bytes(int(over[worst]))}")
    elif name != "tf_default" and (stay := int((np.array(problem.devices.kinds)[assignment.device] != BASELINES[name]).sum())):
        notes.append(f"{stay} of {problem.num_units} units cannot be there")
    if broken := int((~pinned.units.allowed[np.arange(problem.num_units), assignment.device]).sum()):
        notes.append(f"{broken} of {problem.num_units} units are pinned elsewhere")
    cost, step = total_cost_ns(problem, assignment), Simulator(problem).step_ns(assignment)
    return Baseline(not over[worst], cost, step, ", ".join(notes)), assignment


def _more_than_there_is(machine: Machine, limit_bytes: Ints) -> list[str]:
    return [
        f"the limit of {device.name}, {format_bytes(limit)}, is above the {format_bytes(device.memory_bytes)} it has."
        for device, limit in zip(machine.devices, limit_bytes.tolist(), strict=True)
        if 0 < device.memory_bytes < limit
    ]


def _variables_moved(graph: OpGraph, options: Options, device: dict[str, int], names: tuple[str, ...]) -> list[str]:
    """A note on the variables that are not where the plan has them, the largest first."""
    if options.variables != "move" or not set(names) <= set(graph.process_devices):
        return []
    holders = [(graph.resources[op.resource], names[device[op.name]]) for op in graph if op.resource in graph.resources]
    found = [
        (state, there)
        for state, there in holders
        if state.kind == "variable" and state.device not in ("", there) and not state.waits
    ]
    found.sort(key=lambda pair: -pair[0].nbytes)
    told = [f"{state.name!r} from {state.device} to {there}" for state, there in found]
    size = format_bytes(sum(state.nbytes for state, _ in found))
    return [f"{len(told)} variables, {size}, move before the first call: {_few(told)}."] if told else []


def _few(told: list[str]) -> str:
    return f"{', '.join(told[:3])}{f' and {len(told) - 3} more' if len(told) > 3 else ''}"


def _moved(graph: OpGraph, problem: PlacementProblem, op_device: Ints, default: Assignment | None) -> list[str]:
    """Notes on ops whose results may change because the plan takes them from where TensorFlow would run them."""
    if default is None:
        return []
    moved = np.flatnonzero(op_device != default.device[problem.ops.unit])
    found: dict[tuple[str, str, str], list[str]] = {}
    names = problem.devices.names
    for i in moved.tolist():
        op = graph.op(problem.ops.names[i])
        for flag in SENSITIVE:
            if flag in op.flags:
                left, right = names[default.device[problem.ops.unit[i]]], names[op_device[i]]
                found.setdefault((flag, left, right), []).append(op.name)
    return [
        f"{_few(list(map(repr, ops)))}: on {right} where TensorFlow's default is {left}; {SENSITIVE[flag]}."
        for (flag, left, right), ops in found.items()
    ]


def _plain(options: Options) -> dict[str, Any]:
    """The options as JSON types; objects go by their name."""

    def plain(value: Any) -> Any:
        if value is None or isinstance(value, (str, int, float)):
            return value
        return dict(value) if hasattr(value, "items") else str(getattr(value, "name", getattr(value, "__name__", value)))

    return {f.name: plain(getattr(options, f.name)) for f in fields(options)}
