"""The core of a pairwise problem: an equivalent problem with fewer variables."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem

MAX_COMPARISONS = 50_000_000
"""Choices of a node that would need more comparisons are not compared."""


@dataclass(frozen=True, eq=False)
class Core:
    """Variables with costs and memory. Values of all variables are choices of a pairwise problem with the same cost and memory.

    V variables, C values of all variables, M memory entries, T moments. A moment stands for all times at which every value uses
    the same memory; its room is the least of theirs. Times at which everything fits have no moment.
    """

    constant: int
    """The part of the cost that no choice changes."""
    cost: tuple[Floats, ...]
    """[V]: the cost of each value of a variable."""
    table: tuple[dict[int, Floats], ...]
    """[V], by neighbour: the cost of each value (rows) with each value of the neighbour (columns)."""
    room: Ints
    """[T]: the limit minus the memory that is in use whatever the values are."""
    value: Ints
    """[M]: the value that uses the memory, ascending; the values of variable v are numbered from start[v]."""
    since: Ints
    """[M]: the first moment at which it uses `amount`."""
    until: Ints
    """[M]: the first moment at which it no longer does."""
    amount: Ints
    """[M]: memory, above 0."""
    node_variable: Ints
    """[N]: the variable of each node of the problem; -1 if one choice remained."""
    node_choice: tuple[Ints, ...]
    """[N]: the choice of a node for each value of its variable, or the one that remained."""

    @cached_property
    def start(self) -> Ints:
        """[V + 1]: the values of variable v are numbered start[v]:start[v + 1]."""
        return np.append(0, np.cumsum([len(cost) for cost in self.cost], dtype=np.int64))

    @cached_property
    def value_cost(self) -> Floats:
        """[C]: the cost of each value."""
        return np.concatenate([np.zeros(0), *self.cost])

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints, Ints, Floats]:
        """For each edge its two variables and the start of its table; and all tables, flat."""
        edges = [(v, u) for v, tables in enumerate(self.table) for u in tables if v < u]
        tables = [self.table[v][u] for v, u in edges]
        v, u = np.array(edges, np.int64).reshape(-1, 2).T
        start = np.append(0, np.cumsum([table.size for table in tables], dtype=np.int64))[:-1]
        return v, u, start, np.concatenate([np.zeros(0), *(table.ravel() for table in tables)])

    def total(self, values: Ints) -> float:
        """The cost of the values [V] of all variables."""
        v, u, start, costs = self._pairs
        paired = costs[start + values[v] * np.diff(self.start)[u] + values[u]]
        return float(self.value_cost[self.start[:-1] + values].sum() + paired.sum()) + self.constant

    def choices(self, values: Ints) -> Ints:
        """[N]: the choice of each node, for the values [V] of all variables."""
        return np.array([
            choice[values[v] if v >= 0 else 0] for v, choice in zip(self.node_variable.tolist(), self.node_choice, strict=True)
        ])  # fmt: skip


def core(problem: PairwiseProblem) -> Core | None:
    """Reduces a problem by these rules until none applies; None if costs alone forbid all choices.

    - A choice is removed if it is forbidden, alone or with each choice of some neighbour.
    - A node joins a neighbour whose choice decides its own.
    - A node with one choice becomes a constant. An edge whose costs are a sum of a cost for each end is added to the nodes.
    - A choice is removed if another one costs no more and uses no more memory, whatever the neighbours choose.
    """
    work = _Contraction(problem)
    return work.core() if work.contract() else None


class _Contraction:
    """The reduction while it runs. Costs are floats: infinite if forbidden, and exact, as integers below 2^53 are."""

    def __init__(self, problem: PairwiseProblem) -> None:
        self.problem = problem
        own = np.where(problem.choice_cost >= FORBIDDEN, np.inf, problem.choice_cost)
        pairs = np.where(problem.edge_cost >= FORBIDDEN, np.inf, problem.edge_cost)
        self.cost: list[Floats] = _parts(own, problem.choice_start)
        self.table: list[dict[int, Floats]] = [{} for _ in self.cost]
        self.members = [[(n, np.arange(len(cost)))] for n, cost in enumerate(self.cost)]
        """By node: the nodes that joined it, with their choice for each of its choices."""
        self.constant = 0
        self.single: list[tuple[int, Ints]] = []
        self.alive = [True] * problem.nodes
        self.nodes: dict[int, None] = dict.fromkeys(range(problem.nodes))
        self.edges: deque[tuple[int, int]] = deque()
        for (a, b), costs in zip(problem.edge_nodes.tolist(), _parts(pairs, problem.edge_start), strict=True):
            self._join(a, b, costs.reshape(len(self.cost[a]), len(self.cost[b])))

    def contract(self) -> bool:
        """Applies all rules. Returns whether each node still has a choice."""
        changed = dict.fromkeys(range(self.problem.nodes))
        while changed:
            if not self._merge_all(changed):
                return False
            compared, changed = changed, {}
            for n in compared:
                if self.alive[n] and (dominated := self._dominated(n)).any():
                    self.cost[n] = np.where(dominated, np.inf, self.cost[n])
                    self.nodes[n] = None
                    changed |= {n: None} | dict.fromkeys(self.table[n])
        return True

    def _merge_all(self, changed: dict[int, None]) -> bool:
        """Applies all rules but dominance, and adds the nodes that change. Returns whether each node still has a choice."""
        while self.nodes or self.edges:
            while self.nodes:
                n = self.nodes.popitem()[0]
                if self.alive[n] and not self._reduce_node(n):
                    return False
            if self.edges:
                a, b = self.edges.popleft()
                if self.alive[a] and self.alive[b] and b in self.table[a]:
                    self._reduce_edge(a, b)
                    changed |= {a: None, b: None}
        return True

    def _dominated(self, n: int) -> Bools:
        """For each choice whether another one is no worse, and is better or comes before it."""
        held = [usage for member in self.members[n] if len(usage := self._usage(*member))]
        criteria = np.column_stack([self.cost[n], *self.table[n].values(), *held])
        count = len(criteria)
        if count * criteria.size > MAX_COMPARISONS:
            return np.zeros(count, np.bool_)
        no_worse = (criteria[:, None] <= criteria[None]).all(axis=2)
        first = np.tri(count, k=-1, dtype=np.bool_).T
        return np.asarray((no_worse & (~no_worse.T | first)).any(axis=0))

    def _join(self, a: int, b: int, costs: Floats) -> None:
        if b in self.table[a]:
            costs = costs + self.table[a][b]
        self._set(a, b, costs)

    def _set(self, a: int, b: int, costs: Floats) -> None:
        self.table[a][b], self.table[b][a] = costs, costs.T
        self.edges.append((a, b))

    def _part(self, a: int, b: int) -> Floats:
        del self.table[b][a]
        return self.table[a].pop(b)

    def _reduce_node(self, n: int) -> bool:
        """Removes forbidden choices, and the node if one choice remains. Returns whether any does."""
        possible = np.isfinite(self.cost[n])
        if not possible.any():
            return False
        if not possible.all():
            self.cost[n] = self.cost[n][possible]
            self.members[n] = [(m, choice[possible]) for m, choice in self.members[n]]
            for b, costs in list(self.table[n].items()):
                self._set(n, b, costs[possible])
        if len(self.cost[n]) == 1:
            for b in list(self.table[n]):
                self.cost[b] = self.cost[b] + self._part(n, b)[0]
                self.nodes[b] = None
            self.constant += int(self.cost[n][0])
            self.single += self.members[n]
            self.alive[n] = False
        return True

    def _reduce_edge(self, a: int, b: int) -> None:
        """Adds the costs of an edge to its nodes, removes choices that it forbids, or merges its nodes, where a rule applies."""
        costs = self.table[a][b]
        possible = np.isfinite(costs)
        if possible.all():
            rows = costs[:, :1] - costs[0, 0]
            if np.array_equal(costs, rows + costs[:1]):
                self._part(a, b)
                self.cost[a], self.cost[b] = self.cost[a] + rows[:, 0], self.cost[b] + costs[0]
            return
        possible_a, possible_b = possible.any(axis=1), possible.any(axis=0)
        if not (possible_a.all() and possible_b.all()):
            self.cost[a], self.cost[b] = np.where(possible_a, self.cost[a], np.inf), np.where(possible_b, self.cost[b], np.inf)
            self.nodes |= {a: None, b: None}
            return
        b_follows, a_follows = (possible.sum(axis=1) == 1).all(), (possible.sum(axis=0) == 1).all()
        if b_follows and not (a_follows and len(self.table[a]) < len(self.table[b])):
            self._merge(a, b, possible.argmax(axis=1))
        elif a_follows:
            self._merge(b, a, possible.argmax(axis=0))

    def _merge(self, a: int, b: int, follows: Ints) -> None:
        """Makes b part of a; ``follows`` is the choice of b for each choice of a."""
        self.cost[a] = self.cost[a] + self._part(a, b)[np.arange(len(follows)), follows] + self.cost[b][follows]
        for other in list(self.table[b]):
            self._join(a, other, self._part(b, other)[follows])
        self.members[a] += [(n, choice[follows]) for n, choice in self.members[b]]
        self.alive[b] = False
        self.nodes[a] = None

    def _usage(self, n: int, choice: Ints) -> Ints:
        """The memory of a node for some of its choices; empty if the node never uses any."""
        since, until = self.problem.node_interval[n]
        return self.problem.choice_usage[self.problem.choice_start[n] + choice] if since < until else choice[:0]

    def core(self) -> Core:
        """The problem that remains."""
        variables = [n for n, alive in enumerate(self.alive) if alive]
        number = {n: v for v, n in enumerate(variables)}
        node_variable = np.full(self.problem.nodes, -1)
        node_choice: dict[int, Ints] = dict(self.single)
        for v, n in enumerate(variables):
            for m, choice in self.members[n]:
                node_variable[m], node_choice[m] = v, choice
        cost, table = [self.cost[n] for n in variables], [self.table[n] for n in variables]
        penalty = 1.0 + sum(_spread(own) for own in cost) + sum(_spread(costs) for tables in table for costs in tables.values())
        return Core(
            self.constant,
            tuple(cost),
            # A forbidden pair costs more than all other costs can differ by.
            tuple(
                {number[b]: np.minimum(costs, costs[np.isfinite(costs)].max() + penalty) for b, costs in t.items()} for t in table
            ),
            *self._memory(variables),
            node_variable,
            tuple(node_choice[n] for n in range(self.problem.nodes)),
        )

    def _memory(self, variables: list[int]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """The fields of that name of `Core`: room, value, since, until, amount."""
        problem = self.problem
        times = _fullest(problem.node_interval)
        since, until = np.searchsorted(times, problem.node_interval.T)
        least_held, most_held = np.zeros((2, len(times) + 1), np.int64)
        entries = [np.zeros((4, 0), np.int64)]

        def hold(member: tuple[int, Ints], first: int | None) -> None:
            n, choice = member
            if len(held := self._usage(n, choice)):
                least = held.min()
                for total, added in ((least_held, least), (most_held, held.max())):
                    total[since[n]] += added
                    total[until[n]] -= added
                larger = np.flatnonzero(held > least)
                if first is not None and len(larger):
                    entries.append(
                        np.stack([first + larger, *np.full((2, len(larger)), [[since[n]], [until[n]]]), held[larger] - least])
                    )

        for member in self.single:
            hold(member, None)
        first = 0
        for n in variables:
            for member in self.members[n]:
                hold(member, first)
            first += len(self.cost[n])
        value, begin, end, amount = np.concatenate(entries, axis=1)
        order = np.argsort(value, kind="stable")
        value, begin, end, amount = value[order], begin[order], end[order], amount[order]
        room = problem.usage_limit - least_held.cumsum()[:-1]
        moments = distinct_moments(first, value, begin, end, amount, room)
        moments = moments[(most_held.cumsum()[:-1] > problem.usage_limit)[moments]]
        begin, end = np.searchsorted(moments, begin), np.searchsorted(moments, end)
        lasting = begin < end
        return room[moments], value[lasting], begin[lasting], end[lasting], amount[lasting]


def _parts(values: Floats, start: Ints) -> list[Floats]:
    """The list of values[start[0]:start[1]], values[start[1]:start[2]], …"""
    return [values[begin:end] for begin, end in pairwise(start.tolist())]


def _spread(costs: Floats) -> float:
    """The difference between the largest and the least finite cost."""
    finite = costs[np.isfinite(costs)]
    return float(finite.max() - finite.min())


def _fullest(intervals: Ints) -> Ints:
    """Times that suffice: whatever is in use at any time is in use at one of them. These are begins followed by an end."""
    lasting = intervals[intervals[:, 0] < intervals[:, 1]]
    begins, ends = np.unique(lasting[:, 0]), np.unique(lasting[:, 1])
    if not len(begins):
        return begins
    return begins[ends[np.searchsorted(ends, begins, side="right")] <= np.append(begins[1:], np.iinfo(np.int64).max)]


def distinct_moments(values: int, value: Ints, since: Ints, until: Ints, amount: Ints, room: Ints) -> Ints:
    """Of all moments at which the same values use the same memory, the one with the least room.

    Moments are compared by a hash: the sum of random weights of the entries, modulo 2^64.
    """
    weight = np.random.default_rng(0).integers(0, 2**63, size=values, dtype=np.uint64)[value] * amount.astype(np.uint64)
    change = np.zeros(len(room) + 1, np.uint64)
    np.add.at(change, since, weight)
    np.subtract.at(change, until, weight)
    held = np.cumsum(change, dtype=np.uint64)[:-1]
    order = np.lexsort((room, held))
    return np.sort(order[np.append(True, np.diff(held[order]) != 0)[: len(order)]])


def ranges(start: Ints, size: Ints) -> Ints:
    """The ranges start[i]:start[i] + size[i], one after the other."""
    return np.repeat(start - np.cumsum(size) + size, size) + np.arange(size.sum())
