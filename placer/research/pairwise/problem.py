"""PairwiseProblem: a choice for each node, costs of choices and of pairs of choices, and a limit on memory over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Ints, Part, array, derived

FORBIDDEN = 10**18
"""A choice or a pair of choices with this cost or more is not allowed."""


@dataclass(frozen=True, eq=False)
class PairwiseProblem(Part):
    """One choice for each node, so that the sum of all costs is least and the memory in use never exceeds the limit.

    A compiler that shards a model over devices solves this problem. A node is an op, and a choice is one way to shard it. The
    cost of a pair of choices is the cost of resharding between two ops. Shapes below: N nodes, C choices of all nodes, E edges,
    S pairs of choices of all edges. Nobody can write into the arrays.

    M. D. Moffitt, P. Fegade, The ASPLOS/EuroSys contest on intra-operator parallelism for distributed deep learning, 2025.

    Raises ValueError where the shapes of the arrays are inconsistent or a value is negative.
    """

    name: str
    usage_limit: int

    choice_start: Ints = array("M")
    """[N + 1]: the choices of node n are entries choice_start[n]:choice_start[n + 1], at least one."""
    choice_cost: Ints = array("C")
    """At least 0."""
    choice_usage: Ints = array("C")
    """The memory of the node during its interval."""
    node_interval: Ints = array("N2")
    """Begin and end of the time in which the node uses memory; the end is not part of it."""

    edge_nodes: Ints = array("E2")
    """Two different nodes. Several edges may join the same two nodes."""
    edge_start: Ints = array("F")
    """[E + 1]: the costs of edge e are entries edge_start[e]:edge_start[e + 1]. They are a matrix in row-major order, with a row
    for each choice of the first node and a column for each choice of the second."""
    edge_cost: Ints = array("S")
    """At least 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n, c, s, sizes = self.nodes, len(self.choice_cost), len(self.edge_cost), self.sizes()
        if (sizes["M"], sizes["F"], sizes["2"]) != (n + 1, sizes["E"] + 1, 2):
            raise ValueError("choice_start must have the shape (N + 1,), edge_start (E + 1,), node_interval (N, 2).")
        for name, start, length in (("choice", self.choice_start, c), ("edge", self.edge_start, s)):
            if start[0] != 0 or start[-1] != length or (np.diff(start) < 1).any():
                raise ValueError(f"{name}_start must rise from 0 to {length} in steps of at least 1.")
        if ((self.edge_nodes < 0) | (self.edge_nodes >= n)).any() or (self.edge_nodes[:, 0] == self.edge_nodes[:, 1]).any():
            raise ValueError(f"an edge joins a node with itself, or has a node that is not one of the {n}.")
        if (np.diff(self.edge_start) != self.choices[self.edge_nodes].prod(axis=1)).any():
            raise ValueError("an edge must have as many costs as its nodes have pairs of choices.")
        if any((values < 0).any() for values in (self.choice_cost, self.choice_usage, self.edge_cost)):
            raise ValueError("a cost or a usage is below 0.")

    @derived
    def nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.node_interval)

    @derived
    def choices(self) -> Ints:
        """[N]: the number of choices of each node."""
        return np.diff(self.choice_start)

    def table(self, edge: int) -> Ints:
        """[choices of the first node, choices of the second]: the costs of an edge."""
        a, b = self.edge_nodes[edge]
        return self.edge_cost[self.edge_start[edge] : self.edge_start[edge + 1]].reshape(self.choices[a], self.choices[b])


def pairwise_cost(problem: PairwiseProblem, choice: Ints) -> int:
    """The cost of the choices [N] of all nodes; `FORBIDDEN` if one of them or a pair of them is not allowed."""
    first, second = problem.edge_nodes.T
    pair = problem.edge_start[:-1] + choice[first] * problem.choices[second] + choice[second]
    own = np.minimum(problem.choice_cost[problem.choice_start[:-1] + choice], FORBIDDEN)
    paired = np.minimum(problem.edge_cost[pair], FORBIDDEN)
    if max(own.max(initial=0), paired.max(initial=0)) >= FORBIDDEN:
        return FORBIDDEN
    return int(own.sum()) + int(paired.sum())


def peak_usage(problem: PairwiseProblem, choice: Ints) -> int:
    """The most memory in use at any time, for the choices [N] of all nodes."""
    begin, end = problem.node_interval.T
    held = np.where(begin < end, problem.choice_usage[problem.choice_start[:-1] + choice], 0)
    times = np.unique(problem.node_interval)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, np.searchsorted(times, begin), held)
    np.subtract.at(change, np.searchsorted(times, end), held)
    return int(change.cumsum().max(initial=0))
