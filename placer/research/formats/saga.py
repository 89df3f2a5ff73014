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
from placer.research.formats.places import reading
from placer.research.formats.workflow import NS_PER_S, one_time_ns

NAME = "SAGA"
SUFFIX = ".saga.json"
HOLDS_MACHINE = True
BYTES = 10**6
"""Bytes in a unit of data."""
EXPECTED = "An instance of SAGA has a task_graph of tasks and dependencies, and a network of nodes and edges."


def recognises(document: Any) -> bool:
    """Whether a JSON document is in this format."""
    return isinstance(document, dict) and {"task_graph", "network"} <= document.keys()


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, nx.DiGraph]:
    """The graph of tasks and the network. Raises PlanError if it is not in this format."""
    document = parse_json(content, source)
    with reading(source, EXPECTED):
        graph, net = document["task_graph"], document["network"]
        tasks, dependencies, nodes, links = (
            list(part) for part in (graph["tasks"], graph["dependencies"], net["nodes"], net["edges"])
        )
    speeds: dict[str, float] = {}
    for k, node in enumerate(nodes, 1):
        with reading(f"{source}, node {k}", "A node has a name of its own and a speed above 0."):
            name, speed = str(node["name"]), float(node["speed"])
            if name in speeds or not speed > 0:
                raise ValueError(f"name {name!r}, speed {speed!r}")
            speeds[name] = speed
    network, dag = nx.DiGraph(contention=False), nx.MultiDiGraph()
    network.add_nodes_from(speeds)
    for k, link in enumerate(links, 1):
        with reading(f"{source}, edge {k}", "An edge has a source, a target, and a speed above 0 or null."):
            if (a := str(link["source"])) != (b := str(link["target"])):
                per_byte = 0.0 if link["speed"] is None or math.isinf(link["speed"]) else NS_PER_S / BYTES / link["speed"]
                network.add_edges_from([(a, b), (b, a)], ns_per_byte=per_byte)
    for k, task in enumerate(tasks, 1):
        with reading(f"{source}, task {k}", "A task has a name of its own and a cost."):
            if (name := str(task["name"])) in dag:
                raise ValueError(f"another task is called {name!r}")
            dag.add_node(name, time_ns={node: round(NS_PER_S * task["cost"] / speed) for node, speed in speeds.items()})
    for k, edge in enumerate(dependencies, 1):
        with reading(
            f"{source}, dependency {k}", "A dependency has a source and a target, which are names of tasks, and a size."
        ):
            ends = str(edge["source"]), str(edge["target"])
            if unknown := [name for name in ends if name not in dag]:
                raise ValueError(f"there is no task {unknown[0]!r}")
            dag.add_edge(*ends, bytes=round(BYTES * edge["size"]))
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
