"""GraphML: the graph of `PlacementProblem.to_networkx`.

A mapping from devices is an attribute for each device, such as "time_ns.GPU:0". The attribute "machine" of the graph is the graph
of devices in the JSON of `networkx.node_link_data`.
"""

from __future__ import annotations

import json
from typing import Any

import networkx as nx

from cost_models.documents import parse_json
from placer.errors import PlanError
from placer.research.formats.xml_text import parse_xml, xml_name

NAME = "GraphML"
SUFFIX = ".graphml"
HOLDS_MACHINE = True


def read(content: bytes, source: str) -> tuple[nx.MultiDiGraph, nx.DiGraph | None]:
    """The graph of ops; and the graph of devices, if the file has one. Raises PlanError if it is no GraphML."""
    parse_xml(content, source)
    try:
        dag = nx.parse_graphml(content.decode(), force_multigraph=True)
        for _, data in dag.nodes(data=True):
            for flat in [name for name in data if "." in name]:
                name, _, device = flat.partition(".")
                data.setdefault(name, {})[device] = data.pop(flat)
        machine = dag.graph.pop("machine", None)
        network = (
            None if machine is None else nx.node_link_graph(parse_json(machine.encode(), f"machine in {source}"), edges="links")
        )
    except (nx.NetworkXException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PlanError(f"{source} is no GraphML of ops: {type(error).__name__}: {error}.") from error
    return dag, network


def write(dag: nx.MultiDiGraph, network: nx.DiGraph) -> bytes:
    """The text of a file."""
    flat = nx.MultiDiGraph(machine=json.dumps(nx.node_link_data(network, edges="links")))
    for name, data in dag.nodes(data=True):
        flat.add_node(xml_name(name), **_flat(data))
    flat.add_edges_from((xml_name(a), xml_name(b), _flat(data)) for a, b, data in dag.edges(data=True))
    return "\n".join(nx.generate_graphml(flat)).encode()


def _flat(data: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{device}": number for device, number in value.items()}
        else:
            flat[name] = xml_name(value) if isinstance(value, str) else value
    return flat
