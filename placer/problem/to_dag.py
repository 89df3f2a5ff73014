"""A problem as a networkx graph of ops and one of devices, with the attributes that `PlacementProblem.from_networkx` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from placer.problem.dag import NETWORK_FIELDS

if TYPE_CHECKING:
    from placer.problem.parts import Devices, Links
    from placer.problem.problem import PlacementProblem


def graphs_of(problem: PlacementProblem) -> tuple[nx.MultiDiGraph, nx.DiGraph]:
    """See `PlacementProblem.to_networkx`."""
    return _dag(problem), _network(problem.devices, problem.links)


def _dag(problem: PlacementProblem) -> nx.MultiDiGraph:
    ops, units, tensors = problem.ops, problem.units, problem.tensors
    names = problem.devices.names
    dag = nx.MultiDiGraph()
    members = np.bincount(ops.unit, minlength=len(units)).tolist()
    first = {u: i for i, u in reversed(list(enumerate(ops.unit.tolist())))}
    for i, (name, u) in enumerate(zip(ops.names, ops.unit.tolist(), strict=True)):
        allowed = units.allowed[u]
        attributes: dict[str, Any] = {"time_ns": _by_device(ops.time_ns[i], allowed, names)}
        if members[u] > 1:
            attributes["group"] = ops.names[first[u]]
        if first[u] == i and units.persistent_bytes[u]:
            attributes["persistent_bytes"] = int(units.persistent_bytes[u])
        if ops.workspace_bytes[i][allowed].any():
            attributes["workspace_bytes"] = _by_device(ops.workspace_bytes[i], allowed, names)
        computed = np.where(problem.devices.asynchronous, ops.time_ns[i], np.maximum(0, ops.time_ns[i] - ops.dispatch_ns[i]))
        if ops.dispatch_ns[i][allowed].any():
            attributes["dispatch_ns"] = _by_device(ops.dispatch_ns[i], allowed, names)
        if (ops.compute_ns[i] != computed)[allowed].any():
            attributes["compute_ns"] = _by_device(ops.compute_ns[i], allowed, names)
        if ops.count[i] != 1:
            attributes["count"] = float(ops.count[i])
        dag.add_node(name, **attributes)
    consumers = np.split(problem.consumers.op, problem.consumers.start[1:-1])
    made = np.bincount(tensors.op[np.diff(problem.consumers.start) > 0], minlength=len(ops))
    for t, (op, nbytes) in enumerate(zip(tensors.op.tolist(), tensors.nbytes.tolist(), strict=True)):
        carried = {} if made[op] == 1 else {"tensor": str(t), "bytes": nbytes}
        if made[op] == 1 and len(consumers[t]) and nbytes:
            dag.nodes[ops.names[op]]["output_bytes"] = nbytes
        dag.add_edges_from((ops.names[op], ops.names[i], carried) for i in dict.fromkeys(consumers[t].tolist()))
    for a, b in zip(ops.control_src.tolist(), ops.control_dst.tolist(), strict=True):
        dag.add_edge(ops.names[a], ops.names[b], control=True)
    return dag


def _by_device(row: Any, allowed: Any, names: Sequence[str]) -> int | dict[str, int]:
    """The numbers of the allowed devices: one number if all are allowed and have the same."""
    if allowed.all() and (row == row[0]).all():
        return int(row[0])
    return {name: int(value) for name, value, may in zip(names, row, allowed, strict=True) if may}


def _network(devices: Devices, links: Links) -> nx.DiGraph:
    network = nx.DiGraph(**{name: getattr(devices, name) for name in NETWORK_FIELDS if getattr(devices, name)})
    if not links.contention:
        network.graph["contention"] = False
    defaults = {"threads": 1, "shares_cores": False, "call_ns": 0, "wake_ns": 0}
    for d, name in enumerate(devices.names):
        network.add_node(name, kind=devices.kinds[d], asynchronous=bool(devices.asynchronous[d]))
        if devices.memory_limit_bytes[d] >= 0:
            network.nodes[name]["memory_bytes"] = int(devices.memory_limit_bytes[d])
        if devices.tasks[d]:
            network.nodes[name]["task"] = devices.tasks[d]
        for field, default in defaults.items():
            if (value := getattr(devices, field)[d].item()) != default:
                network.nodes[name][field] = value
    for a, src in enumerate(devices.names):
        for b, dst in enumerate(devices.names):
            if a != b:
                values = {"latency_ns": links.latency_ns, "ns_per_byte": links.ns_per_byte, "interval_ns": links.interval_ns}
                network.add_edge(src, dst, **{name: cost[a, b].item() for name, cost in values.items() if cost[a, b]})
    return network
