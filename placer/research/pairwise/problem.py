"""PairwiseProblem: one choice for each node, costs of nodes and of pairs, memory over time under one limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placer.problem.arrays import Ints

FORBIDDEN = 10**18
"""A cost from which on a choice, or a pair of choices, must not be made."""


@dataclass(frozen=True, eq=False)
class PairwiseProblem:
    """Which of its choices each node takes, at the least sum of costs, with the memory in use within the limit at all times.

    It is what a compiler decides that shards the ops of a model over devices: a node is an op, a choice one way to shard it, the
    cost of a pair what resharding between two ops takes. Shapes below: N nodes, C choices in all, E edges, S pairs of choices in
    all. M. D. Moffitt, P. Fegade, The ASPLOS/EuroSys contest on intra-operator parallelism for distributed deep learning, 2025.

    Raises ValueError where the arrays do not fit together.
    """

    name: str
    usage_limit: int

    choice_start: Ints
    """[N + 1]: the choices of node n are entries choice_start[n]:choice_start[n + 1], one at least."""
    choice_cost: Ints
    """[C]: not below 0."""
    choice_usage: Ints
    """[C]: what the node holds while it holds anything."""
    node_interval: Ints
    """[N, 2]: from when, and until before when, the node holds it; nothing where these are the same."""

    edge_nodes: Ints
    """[E, 2]: two different nodes; several edges may join the same two."""
    edge_start: Ints
    """[E + 1]: the costs of edge e are entries edge_start[e]:edge_start[e + 1], a matrix row after row: a row for each choice of
    its first node, a column for each of the second."""
    edge_cost: Ints
    """[S]: not below 0."""

    def __post_init__(self) -> None:
        n, c, e, s = len(self.node_interval), len(self.choice_cost), len(self.edge_nodes), len(self.edge_cost)
        shapes = {
            "choice_start": (n + 1,), "choice_usage": (c,), "node_interval": (n, 2), "edge_nodes": (e, 2), "edge_start": (e + 1,),
        }  # fmt: skip
        for name, shape in shapes.items():
            if (found := np.shape(getattr(self, name))) != shape:
                raise ValueError(f"{name} has shape {found} where {shape} belongs.")
        for what, start, length in (("choice", self.choice_start, c), ("edge", self.edge_start, s)):
            if start[0] != 0 or start[-1] != length or (np.diff(start) < 1).any():
                raise ValueError(f"{what}_start does not run from 0 to {length} in steps of one at least.")
        if ((self.edge_nodes < 0) | (self.edge_nodes >= n)).any() or (self.edge_nodes[:, 0] == self.edge_nodes[:, 1]).any():
            raise ValueError(f"an edge joins a node with itself, or one that is not among the {n}.")
        if (np.diff(self.edge_start) != self.choices[self.edge_nodes].prod(axis=1)).any():
            raise ValueError("an edge has not as many costs as its nodes have pairs of choices.")
        if any((values < 0).any() for values in (self.choice_cost, self.choice_usage, self.edge_cost)):
            raise ValueError("a cost or a usage is below 0.")

    @cached_property
    def nodes(self) -> int:
        """N."""
        return len(self.node_interval)

    @cached_property
    def choices(self) -> Ints:
        """[N]: how many each node has."""
        return np.diff(self.choice_start)

    def table(self, edge: int) -> Ints:
        """The costs of one edge, a row for each choice of its first node."""
        a, b = self.edge_nodes[edge]
        return self.edge_cost[self.edge_start[edge] : self.edge_start[edge + 1]].reshape(self.choices[a], self.choices[b])


def pairwise_cost(problem: PairwiseProblem, choice: Ints) -> int:
    """What the choices [N] of all nodes cost; at least `FORBIDDEN` where one of them, or a pair, must not be."""
    first, second = problem.edge_nodes.T
    pair = problem.edge_start[:-1] + choice[first] * problem.choices[second] + choice[second]
    own = np.minimum(problem.choice_cost[problem.choice_start[:-1] + choice], FORBIDDEN)
    paired = np.minimum(problem.edge_cost[pair], FORBIDDEN)
    if max(own.max(initial=0), paired.max(initial=0)) >= FORBIDDEN:
        return FORBIDDEN
    return int(own.sum()) + int(paired.sum())


def peak_usage(problem: PairwiseProblem, choice: Ints) -> int:
    """The most memory in use at any time."""
    since, until = problem.node_interval.T
    held = np.where(since < until, problem.choice_usage[problem.choice_start[:-1] + choice], 0)
    times = np.unique(problem.node_interval)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, np.searchsorted(times, since), held)
    np.subtract.at(change, np.searchsorted(times, until), held)
    return int(change.cumsum().max(initial=0))
