"""The placed graph as GraphML."""

from __future__ import annotations

import networkx as nx

from placer.plan.placement import Placement


def graphml(placement: Placement) -> str:
    """`Placement.to_networkx` as GraphML."""
    return "\n".join(nx.generate_graphml(placement.to_networkx())) + "\n"
