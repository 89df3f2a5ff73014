"""A placement as data: one flat record for each op, and the placed graph for networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx

if TYPE_CHECKING:
    from placer.plan.placement import Placement


def records(placement: Placement) -> list[dict[str, Any]]:
    """One record per op, in execution order, as plain types. docs/views.md lists the columns."""
    rows = []
    crossing = {op for edge in placement.graph.graph.edges if _crosses(placement, *edge) for op in edge}
    for op in placement.graph:
        plan = placement.ops[op.name]
        reason = placement.why(op.name)
        transfers = placement.transfers_of.get(op.name, ())
        rows.append(
            {
                "name": op.name,
                "op_type": op.op_type,
                "role": op.role,
                "body": op.body,
                "count": op.count,
                "device": plan.device,
                "default_device": plan.default,
                "unit": plan.unit,
                "time_ns": plan.time_ns.get(plan.device, 0),
                "cost_source": plan.cost_source,
                "start_ns": plan.start_ns,
                "end_ns": plan.end_ns,
                "output_bytes": sum(spec.nbytes for spec in op.signature.outputs),
                "outputs": ", ".join(map(str, op.signature.outputs)),
                "sent_bytes": round(sum(t.nbytes * t.count for t in transfers if t.src != t.dst)),
                "crosses": op.name in crossing,
                "flags": ", ".join(op.flags),
                "reason_kind": reason.kind,
                "reason": reason.text,
            }
        )
    return rows


def placed_graph(placement: Placement) -> nx.DiGraph:
    """The placed DAG. Node attributes are the columns of `records`; edges have "nbytes", "crosses" and "control".

    All values are strings, numbers or booleans, so that any networkx writer takes it.
    """
    graph = placement.graph
    placed: nx.DiGraph = nx.DiGraph(name=graph.name, machine=placement.machine, objective=placement.objective)
    for row in records(placement):
        placed.add_node(row["name"], **{key: value for key, value in row.items() if key != "name"})
    for src, dst, data in graph.graph.edges(data=True):
        sizes = {t.src_index: graph.op(src).signature.outputs[t.src_index].nbytes for t in data["tensors"]}
        control = bool(data["control"])
        placed.add_edge(src, dst, nbytes=sum(sizes.values()), crosses=_crosses(placement, src, dst), control=control)
    return placed


def _crosses(placement: Placement, src: str, dst: str) -> bool:
    """Whether an edge is between devices. An edge from a constant never is: each reader's device has a copy of its own."""
    return placement.ops[src].device != placement.ops[dst].device and placement.graph.op(src).role != "constant"
