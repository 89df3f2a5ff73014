"""Facts about a placement and about one of its ops, as plain JSON types: the command prints them, the text views word them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from placer.plan.model_plans import ModelPlans
from placer.plan.placement import Placement


def plan_facts(placement: Placement) -> dict[str, Any]:
    """A plan's figures, and the device of every op."""
    search = ("solver", "solver_seconds", "stop_reason", "chosen_because")
    figures = ("machine", "objective", "objective_ns", "lower_bound_ns", "gap", "total_cost_ns", "step_time_ns", "interval_ns")
    return {
        "graph": placement.graph.name,
        "fingerprint": placement.fingerprint,
        "status": placement.status.value,
        **{name: getattr(placement, name) for name in (*figures, *search, "notes")},
        "totals": {name: asdict(total) for name, total in placement.totals.items()},
        "baselines": {name: asdict(baseline) for name, baseline in placement.baselines.items()},
        "at_ends": [asdict(each) for each in placement.at_ends],
        "transfers": [asdict(transfer) for transfer in placement.transfers],
        "devices": {name: plan.device for name, plan in placement.ops.items()},
    }


def model_facts(placed: ModelPlans) -> dict[str, Any]:
    """The plans of a SavedModel's signatures, and why the others have none."""
    return {"plans": {name: plan_facts(plan) for name, plan in placed.plans.items()}, "unplaced": dict(placed.unplaced)}


def op_facts(placement: Placement, op: str) -> dict[str, Any]:
    """One op: its device, why, its cost on each device, its inputs and outputs. `op` as `OpGraph.find` takes it."""
    graph = placement.graph
    node = graph.find(op)
    plan = placement.ops[node.name]
    members = [name for name, other in placement.ops.items() if other.unit == plan.unit and name != node.name]
    taken = graph.inputs_of(node.name)
    inputs = dict.fromkeys((source, tensor.src_index) for source, tensor in taken if tensor.dst_index >= 0)
    predicates = dict.fromkeys((source, tensor.src_index) for source, tensor in taken if tensor.dst_index < 0)
    return {
        "name": node.name,
        "op_type": node.op_type,
        "role": node.role,
        "body": node.body,
        "count": node.count,
        "device": plan.device,
        "default_device": plan.default,
        "reason": asdict(placement.why(node.name)),
        "unit_reasons": [asdict(reason) for reason in placement.units[plan.unit].reasons],
        "time_ns": dict(plan.time_ns),
        "cost_source": plan.cost_source,
        "cost_sources": dict(plan.cost_sources),
        "cold_ns": dict(plan.cold_ns),
        "refusals": {kind: why for kind, why in node.refusals.items() if kind not in node.kernels},
        "together_with": members,
        "together_because": graph.group_reasons.get(node.group, "they share a device") if members else "",
        "inputs": [_tensor(placement, source, index, {plan.device}) for source, index in inputs],
        "predicates": [_tensor(placement, source, index, {plan.device}) for source, index in predicates],
        "decides": any(t.dst_index < 0 for *_, data in graph.graph.out_edges(node.name, data=True) for t in data["tensors"]),
        "outputs": [_tensor(placement, node.name, k, placement.devices) for k in range(len(node.signature.outputs))],
    }


def _tensor(placement: Placement, producer: str, index: int, devices: Collection[str]) -> dict[str, Any]:
    """A tensor and its copies to `devices`."""
    op = placement.graph.op(producer)
    name, spec = f"{producer}:{index}", op.signature.outputs[index]
    size = placement.graph.size_of(producer, index)
    copies = [t for t in placement.transfers_of.get(producer, ()) if t.tensor == name and t.dst in devices]
    return {
        "name": name,
        "type": str(spec),
        "size": {"source": size.source, "bound": size.bound} if size else {"source": "exact"},
        "nbytes": spec.nbytes,
        "device": placement.ops[producer].device,
        "constant": op.role == "constant",
        "copies": [{"dst": t.dst, "dst_memory": t.dst_memory, "count": t.count, "time_ns": t.time_ns} for t in copies],
    }
