"""The workloads of Tarnawski et al. 2020 (github.com/msr-fiddle/dnn-partitioning): layer and operator graphs with times.

Times in the files are taken as milliseconds. "FPGA" there stands for any accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from cost_models.documents import read_json
from placer.errors import PlanError
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import PlacementProblem
from placer.research.splits.problem import SplitProblem

NS = 1e6
"""Nanoseconds in a file's unit of time, the millisecond."""


def load_split(path: str | Path) -> SplitProblem:
    """Reads a workload as a split problem, with the accelerators and CPUs that the file states.

    Raises:
        PlanError: the file is not such a workload.
    """
    return _read(Path(path))[0]


def load_placement(path: str | Path, *, share: float | None = 0.5) -> PlacementProblem:
    """Reads a workload as a placement problem on one CPU and one accelerator.

    The bytes of a node are persistent. Tensors take time to copy and no memory, as the files have it.

    Args:
        path: the file.
        share: memory limit of the accelerator, as a share of the bytes of all nodes; None for no limit.

    Raises:
        PlanError: the file is not such a workload.
    """
    graph, total = _read(Path(path))
    tensors, consumers = len(graph.tensor_op), len(graph.consumer_op)
    between = np.zeros((4, 4), np.float64)
    between[0, 1] = between[1, 0] = 1.0
    return PlacementProblem(
        devices=Devices(
            names=("CPU:0", "GPU:0"),
            kinds=("CPU", "GPU"),
            memory_limit_bytes=np.array([-1, -1 if share is None else math.floor(share * total)]),
            asynchronous=np.array([False, True]),
        ),
        ops=Ops(names=graph.op_names, unit=graph.op_unit, time_ns=graph.op_time_ns),
        units=Units(
            allowed=np.stack([np.ones_like(graph.unit_supported), graph.unit_supported], axis=1),
            persistent_bytes=graph.unit_bytes,
        ),
        tensors=Tensors(
            op=graph.tensor_op,
            nbytes=np.zeros(tensors, np.int64),
            copy_bytes=graph.tensor_ns,  # at 1 ns per byte
            on_host=np.zeros((tensors, 2), np.bool_),
        ),
        consumers=Consumers(
            start=graph.consumer_start,
            op=graph.consumer_op,
            on_host=np.zeros((consumers, 2), np.bool_),
        ),
        links=Links(
            latency_ns=np.zeros((4, 4), np.int64),
            ns_per_byte=between,
        ),
    )


def _read(path: Path) -> tuple[SplitProblem, float]:
    """The problem of a file, and the bytes of all its nodes, which may be fractions."""
    try:
        workload = read_json(path)
        graph = nx.DiGraph()
        graph.add_nodes_from(node["id"] for node in workload["nodes"])
        graph.add_edges_from((edge["sourceId"], edge["destId"]) for edge in workload["edges"])
        total = sum(node.get("size", 0.0) for node in workload["nodes"])
        return _numbered(f"{path.parent.name}/{path.stem}", workload, graph), total
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, nx.NetworkXException) as error:
        raise PlanError(
            f"{path} is not a workload in the format of dnn-partitioning: {type(error).__name__}: {error}. "
            "A workload has maxSizePerFPGA, maxFPGAs, maxCPUs, nodes with id, cpuLatency, fpgaLatency and size, and edges with "
            "sourceId, destId and cost, without a circle."
        ) from error


def _numbered(name: str, workload: Mapping[str, Any], graph: nx.DiGraph) -> SplitProblem:
    """The problem with ops in topological order, close to the order of the file. Nodes of one colour class are a unit."""
    place = {node["id"]: i for i, node in enumerate(workload["nodes"])}
    order = list(nx.lexicographical_topological_sort(graph, key=place.__getitem__))
    nodes = [workload["nodes"][place[i]] for i in order]
    number = {i: op for op, i in enumerate(order)}
    for node in nodes:
        _check(f"node {node['id']}", node, "cpuLatency", "fpgaLatency", "size")
    for edge in workload["edges"]:
        _check(f"edge {edge['sourceId']} -> {edge['destId']}", edge, "cost")
    units: dict[tuple[str, int], int] = {}
    op_unit = [
        units.setdefault(("id", node["id"]) if node.get("colorClass") is None else ("colour", node["colorClass"]), len(units))
        for node in nodes
    ]
    held, supported = np.zeros(len(units)), np.ones(len(units), np.bool_)
    for unit, node in zip(op_unit, nodes, strict=True):
        held[unit] += node.get("size", 0.0)
        supported[unit] &= bool(node["supportedOnFpga"])
    cost = {edge["sourceId"]: edge["cost"] for edge in workload["edges"]}
    makers = [op for op, i in enumerate(order) if i in cost]
    users = [sorted(number[j] for j in graph.successors(order[op])) for op in makers]
    return SplitProblem(
        name=name,
        accelerators=int(workload["maxFPGAs"]),
        cpus=int(workload["maxCPUs"]),
        memory_limit_bytes=math.floor(workload["maxSizePerFPGA"]),
        op_names=tuple(f"{node.get('name', 'node')}:{node['id']}" for node in nodes),
        op_unit=np.array(op_unit, np.int64),
        op_time_ns=np.array([[round(NS * node["cpuLatency"]), round(NS * node["fpgaLatency"])] for node in nodes], np.int64),
        unit_bytes=np.ceil(held).astype(np.int64),
        unit_supported=supported,
        tensor_op=np.array(makers, np.int64),
        tensor_ns=np.array([round(NS * cost[order[op]]) for op in makers], np.int64),
        consumer_start=np.append(0, np.cumsum([len(u) for u in users], dtype=np.int64)),
        consumer_op=np.array([op for consumers in users for op in consumers], np.int64),
    )


def _check(part: str, values: Mapping[str, Any], *names: str) -> None:
    """Raises ValueError if a node or an edge has a number that is no time and no size."""
    for name in names:
        if not 0 <= values.get(name, 0.0) < math.inf:
            raise ValueError(f"{part} has the {name} {values[name]}")
