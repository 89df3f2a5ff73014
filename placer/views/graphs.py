"""A placement in file formats that other tools read: JSON and GraphML."""

from __future__ import annotations

import json

import networkx as nx

from placer.plan.placement import Placement


def plan_json(placement: Placement) -> str:
    """The plan and its graph, as `Placement.save` writes them."""
    return json.dumps(placement.to_json(), separators=(",", ":")) + "\n"


def graphml(placement: Placement) -> str:
    """`Placement.to_networkx` as GraphML."""
    return "\n".join(nx.generate_graphml(placement.to_networkx())) + "\n"
