"""OpGraph + constraints + costs + machine -> PlacementProblem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost_models.base import CostModel
from cost_models.machines import Machine
from cost_models.ops import copied_read, entry_of, is_awaited
from cost_models.transfers import copy_costs
from placer.errors import InfeasibleError
from placer.graph.op_graph import OpGraph, OpNode
from placer.problem.arrays import Ints
from placer.problem.constraints import Constraints
from placer.problem.data_flow import data_flow, handle_of
from placer.problem.machine_devices import devices_of
from placer.problem.op_costs import MAX_FIGURE, OpCosts, op_costs
from placer.problem.parts import Links, Ops, Units
from placer.problem.persistent import persistent_bytes
from placer.problem.problem import PlacementProblem


@dataclass(frozen=True, eq=False)
class Formulation:
    """A problem, and the sources of its numbers, which reports show and no solver needs."""

    problem: PlacementProblem
    costs: OpCosts
    tensor_output: Ints
    """[T]: which output of its producer a tensor is."""


def formulate(
    graph: OpGraph,
    constraints: Constraints,
    model: CostModel,
    machine: Machine,
    memory_limits: Mapping[str, str | int] | None = None,
) -> Formulation:
    """Makes a problem of a graph: every op on every device of its kernels, every tensor at every place.

    Outputs without consumers are held only while their op runs and count as its workspace. Variables, captures and constants
    count as persistent: a capture or variable with its unit, a constant wherever it is copied. The caller holds arguments
    throughout.

    Args:
        memory_limits: bytes (see `placer.common.units.parse_bytes`) by device spec, "GPU" for each GPU. Other devices may hold
            the machine's memory less its reserve.

    Raises:
        OptionError: a limit does not parse, or the model's answer is no cost.
        DeviceError: a limit names a device that is not there.
        InfeasibleError: a tensor is too large for any device.
    """
    ops = _with_copied_reads(graph)
    _check_sizes(ops)
    costs = op_costs(graph, ops, model, machine)
    flow = data_flow(graph, constraints, ops, machine)
    latency, per_byte, interval = copy_costs(machine)
    arguments, captures = (sum(op.role == role for op in graph) for role in ("argument", "capture"))
    problem = PlacementProblem(
        devices=devices_of(machine, memory_limits or {}, arguments=arguments, captures=captures),
        links=Links(latency_ns=latency, ns_per_byte=per_byte, interval_ns=interval),
        units=Units(allowed=constraints.allowed, persistent_bytes=persistent_bytes(graph, constraints)),
        ops=Ops(
            names=tuple(graph.graph),
            unit=constraints.op_unit,
            time_ns=costs.time_ns,
            dispatch_ns=costs.dispatch_ns,
            compute_ns=costs.compute_ns,
            count=np.array([op.count for op in ops], np.float64),
            workspace_bytes=costs.workspace_bytes + flow.unused_bytes[:, None],
            follows_input=np.array([_follows_input(graph, op) for op in ops], np.bool_),
            serial=np.array([entry_of(op.op_type).cpu_serial for op in ops], np.bool_),
            awaited=np.array([is_awaited(op.signature) for op in ops], np.bool_),
            moment=flow.moment,
            control_src=flow.controls[:, 0],
            control_dst=flow.controls[:, 1],
        ),
        tensors=flow.tensors,
        consumers=flow.consumers,
    )
    return Formulation(problem, costs, flow.output)


def _check_sizes(ops: list[OpNode]) -> None:
    for op in {id(op.signature): op for op in ops}.values():
        for spec in op.signature.outputs:
            if spec.nbytes >= MAX_FIGURE:
                raise InfeasibleError(
                    f"{op.name!r} ({op.op_type}) makes {spec}, which no device holds: the limit for a tensor is 1 PiB. "
                    "Way out: make it in parts, or smaller."
                )


def _with_copied_reads(graph: OpGraph) -> list[OpNode]:
    """The ops in order, where reads that copy their variable are marked as such.

    TensorFlow copies a variable on each read if other ops use rows of it, since it could not update rows in place otherwise
    (`EnsureSparseVariableAccess` in its resource_variable_ops.cc).
    """
    by_rows = {handle_of(graph, op) for op in graph if entry_of(op.op_type).uses_rows}
    if not by_rows:
        return list(graph)
    reads = (entry_of(op.op_type).reads == "value" and handle_of(graph, op) in by_rows for op in graph)
    return [
        replace(op, signature=copied_read(op.signature)) if reads_copy else op
        for op, reads_copy in zip(graph, reads, strict=True)
    ]


def _follows_input(graph: OpGraph, op: OpNode) -> bool:
    """Whether TensorFlow's placer leaves an op beside its first input.

    A loop's value starts on the device that its first value asks for or is on. A loop's predicate starts on the device of its
    producer. TensorFlow removes an Identity that asks for no device and only gives a result, so the result stays where it was
    made.
    """
    if op.role != "loop":
        gives_result = op.op_type == "Identity" and not op.requested_device and not graph.graph.succ[op.name]
        return gives_result or entry_of(op.op_type).follows_input
    makers = (graph.op(name) for name, edge in graph.inputs_of(op.name) if edge.dst_index == 0)
    return op.op_type == "NextIteration" or any(maker.requested_device or maker.location for maker in makers)
