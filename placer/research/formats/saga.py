"""The problem instances of SAGA: a task graph and a network, as the JSON of its `ProblemInstance`.

The time of a task is its cost divided by the speed of the node; a message takes its size divided by the speed of the link. A unit
of time is read as 1 s, a unit of data as 1 MB. A link with no finite speed takes no time, and
messages never wait for a link.

J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling algorithms, 2024,
arXiv:2403.07120.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import networkx as nx

from cost_models.documents import parse_json
from placer.errors import PlanError
from placer.research.formats.workflow import NS_PER_S, one_time_ns

NAME = "SAGA"
SUFFIX = ".saga.json"
HOLDS_MACHINE = True
BYTES = 10**6
"""Bytes in a unit of data."""


def recognises(document: Any) -> bool:
    """Whether a JSON document is in this format."""
    return isinstance(document, dict) and {"task_graph", "network"} <= document.keys()


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, nx.DiGraph]:
    """The graph of tasks and the network. Raises PlanError if it is not in this format."""
    document = parse_json(content, source)
    try:
        speeds = {str(node["name"]): float(node["speed"]) for node in document["network"]["nodes"]}
        network, dag = nx.DiGraph(contention=False), nx.MultiDiGraph()
        network.add_nodes_from(speeds)
        for link in document["network"]["edges"]:
            if (a := str(link["source"])) != (b := str(link["target"])):
                per_byte = 0.0 if link["speed"] is None or math.isinf(link["speed"]) else NS_PER_S / BYTES / link["speed"]
                network.add_edges_from([(a, b), (b, a)], ns_per_byte=per_byte)
        for task in document["task_graph"]["tasks"]:
            times = {name: round(NS_PER_S * task["cost"] / speed) for name, speed in speeds.items()}
            dag.add_node(str(task["name"]), time_ns=times)
        for edge in document["task_graph"]["dependencies"]:
            dag.add_edge(str(edge["source"]), str(edge["target"]), bytes=round(BYTES * edge["size"]))
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise PlanError(
            f"{source} is no instance of SAGA that can be read: {type(error).__name__}: {error}. It has a task_graph of tasks "
            "(name, cost) and dependencies (source, target, size), and a network of nodes (name, speed) and edges (source, "
            "target, speed)."
        ) from error
    if unknown := [name for name, data in dag.nodes(data=True) if not data]:
        raise PlanError(f"{source}: a dependency names {unknown[0]!r}, which is no task.")
    return dag, network


def write(dag: nx.MultiDiGraph, network: nx.DiGraph) -> bytes:
    """The text of a file. The first device has speed 1."""
    devices = list(network)
    first = {name: one_time_ns(dag, name) for name in dag}
    total = sum(first.values())
    speeds = {}
    for device in devices:
        times = [data["time_ns"] for _, data in dag.nodes(data=True)]
        own = sum(time.get(device, 0) if isinstance(time, dict) else time for time in times)
        speeds[device] = total / own if own and total else 1.0
    links = []
    for a, b in itertools.combinations(devices, 2):
        per_byte = network.edges[a, b].get("ns_per_byte", 0)
        links.append({"source": a, "target": b, "speed": NS_PER_S / BYTES / per_byte if per_byte else None})
    sizes: dict[tuple[str, str], int] = {}
    for a, b, data in dag.edges(data=True):
        carried = 0 if data.get("control") else data.get("bytes", dag.nodes[a].get("output_bytes", 0))
        sizes[a, b] = sizes.get((a, b), 0) + carried
    return json.dumps(
        {
            "name": "placer",
            "task_graph": {
                "tasks": [{"name": name, "cost": time / NS_PER_S} for name, time in first.items()],
                "dependencies": [{"source": a, "target": b, "size": size / BYTES} for (a, b), size in sizes.items()],
            },
            "network": {"nodes": [{"name": name, "speed": speed} for name, speed in speeds.items()], "edges": links},
        },
        indent=1,
    ).encode()
