"""The placed graph as GraphML."""

from __future__ import annotations

import networkx as nx

from placer.common.escaping import identifier, printable
from placer.plan.placement import Placement


def graphml(placement: Placement) -> str:
    """`Placement.to_networkx` as GraphML. XML cannot have all characters, so names and texts have escapes."""
    placed = nx.relabel_nodes(placement.to_networkx(), identifier)
    for attributes in (placed.graph, *dict(placed.nodes).values()):
        attributes.update({key: printable(value) for key, value in attributes.items() if isinstance(value, str)})
    return "\n".join(nx.generate_graphml(placed)) + "\n"
