"""Networks of devices for files that have none."""

from __future__ import annotations

import itertools

import networkx as nx

DEFAULT_PROCESSORS = 4
DEFAULT_NS_PER_BYTE = 1.0
"""1 GB/s."""


def equal_processors(count: int = DEFAULT_PROCESSORS) -> nx.DiGraph:
    """So many equal CPUs that run one op at a time, with links of `DEFAULT_NS_PER_BYTE`."""
    network = nx.DiGraph()
    network.add_nodes_from(f"CPU:{i}" for i in range(count))
    return equal_links(network)


def equal_links(network: nx.DiGraph) -> nx.DiGraph:
    """The network with a link of `DEFAULT_NS_PER_BYTE` between any two devices."""
    network.add_edges_from(itertools.permutations(network, 2), ns_per_byte=DEFAULT_NS_PER_BYTE)
    return network
