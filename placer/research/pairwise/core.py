"""What is left of a pairwise problem once choices that follow from others are merged into them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem

COMPARED = 50_000_000
"""Comparisons of the choices of one node, beyond which they are not made."""


@dataclass(frozen=True, eq=False)
class Core:
    """Variables with costs and memory such that each choice of values is one of a pairwise problem, as costly and as large.

    V variables, C values in all, M entries of memory, T moments. A moment stands for those times at which every value holds the
    same, and comes with the room of the fullest of them; there is none for times at which everything fits.
    """

    constant: int
    """What all choices cost in any case."""
    cost: tuple[Floats, ...]
    """By variable: the cost of each value."""
    table: tuple[dict[int, Floats], ...]
    """By variable, by neighbour: the cost of each value (rows) with each of the neighbour's (columns)."""
    room: Ints
    """[T]: the limit, less what is held in any case."""
    value: Ints
    """[M]: ascending; those of variable v are numbered from start[v]."""
    since: Ints
    """[M]: the first moment at which it holds `amount`."""
    until: Ints
    """[M]: the moment before which that ends."""
    amount: Ints
    """[M]: above 0."""
    node_variable: Ints
    """[N]: by node of the problem; -1 where only one choice was left."""
    node_choice: tuple[Ints, ...]
    """By node: its choice for each value of the variable, or the one that was left."""

    @cached_property
    def start(self) -> Ints:
        """[V + 1]: values of variable v are numbers start[v]:start[v + 1]."""
        return np.append(0, np.cumsum([len(cost) for cost in self.cost], dtype=np.int64))

    @cached_property
    def value_cost(self) -> Floats:
        """[C]: `cost` in a row."""
        return np.concatenate([np.zeros(0), *self.cost])

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints, Ints, Floats]:
        """By edge: its variables, where its table begins; all tables in a row."""
        edges = [(v, u) for v, tables in enumerate(self.table) for u in tables if v < u]
        tables = [self.table[v][u] for v, u in edges]
        v, u = np.array(edges, np.int64).reshape(-1, 2).T
        start = np.append(0, np.cumsum([table.size for table in tables], dtype=np.int64))[:-1]
        return v, u, start, np.concatenate([np.zeros(0), *(table.ravel() for table in tables)])

    def total(self, values: Ints) -> float:
        """What a value [V] of each variable costs."""
        v, u, start, costs = self._pairs
        paired = costs[start + values[v] * np.diff(self.start)[u] + values[u]]
        return float(self.value_cost[self.start[:-1] + values].sum() + paired.sum()) + self.constant

    def choices(self, values: Ints) -> Ints:
        """[N]: the choice of each node, for a value [V] of each variable."""
        return np.array([
            choice[values[v] if v >= 0 else 0] for v, choice in zip(self.node_variable.tolist(), self.node_choice, strict=True)
        ])  # fmt: skip


def core(problem: PairwiseProblem) -> Core | None:
    """An equal problem with as few variables as these rules leave; None where costs alone forbid every choice.

    A choice that is forbidden, or with each choice of some neighbour, is left out. A node whose choice follows from a neighbour's
    becomes part of it. A node with one choice is a constant, and so is an edge whose costs are a sum of costs of either end. A
    choice is left out where another one costs and holds no more, whatever the neighbours choose.
    """
    work = _Contraction(problem)
    return work.core() if work.contract() else None


class _Contraction:
    """Costs are floats, infinite where forbidden: sums of integers below 2^53 are exact."""

    def __init__(self, problem: PairwiseProblem) -> None:
        self.problem = problem
        own = np.where(problem.choice_cost >= FORBIDDEN, np.inf, problem.choice_cost)
        pairs = np.where(problem.edge_cost >= FORBIDDEN, np.inf, problem.edge_cost)
        self.cost: list[Floats] = _parts(own, problem.choice_start)
        self.table: list[dict[int, Floats]] = [{} for _ in self.cost]
        self.members = [[(n, np.arange(len(cost)))] for n, cost in enumerate(self.cost)]
        """By node: the nodes that are part of it, and their choices for each of its values."""
        self.constant = 0
        self.single: list[tuple[int, Ints]] = []
        self.alive = [True] * problem.nodes
        self.nodes: dict[int, None] = dict.fromkeys(range(problem.nodes))
        self.edges: deque[tuple[int, int]] = deque()
        for (a, b), costs in zip(problem.edge_nodes.tolist(), _parts(pairs, problem.edge_start), strict=True):
            self._join(a, b, costs.reshape(len(self.cost[a]), len(self.cost[b])))

    def contract(self) -> bool:
        """Whether a choice is left to each node."""
        changed = dict.fromkeys(range(self.problem.nodes))
        while changed:
            if not self._merge_all(changed):
                return False
            compared, changed = changed, {}
            for n in compared:
                if self.alive[n] and (worse := self._dominated(n)).any():
                    self.cost[n] = np.where(worse, np.inf, self.cost[n])
                    self.nodes[n] = None
                    changed |= {n: None} | dict.fromkeys(self.table[n])
        return True

    def _merge_all(self, changed: dict[int, None]) -> bool:
        while self.nodes or self.edges:
            while self.nodes:
                n = self.nodes.popitem()[0]
                if self.alive[n] and not self._looked_at(n):
                    return False
            if self.edges:
                a, b = self.edges.popleft()
                if self.alive[a] and self.alive[b] and b in self.table[a]:
                    self._look_at_edge(a, b)
                    changed |= {a: None, b: None}
        return True

    def _dominated(self, n: int) -> Bools:
        """By choice: whether another one is no worse, and better or before it."""
        held = [usage for member in self.members[n] if len(usage := self._usage(*member))]
        by = np.column_stack([self.cost[n], *self.table[n].values(), *held])
        count = len(by)
        if count * by.size > COMPARED:
            return np.zeros(count, np.bool_)
        no_worse = (by[:, None] <= by[None]).all(axis=2)
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

    def _looked_at(self, n: int) -> bool:
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

    def _look_at_edge(self, a: int, b: int) -> None:
        costs = self.table[a][b]
        possible = np.isfinite(costs)
        if possible.all():
            rows = costs[:, :1] - costs[0, 0]
            if np.array_equal(costs, rows + costs[:1]):
                self._part(a, b)
                self.cost[a], self.cost[b] = self.cost[a] + rows[:, 0], self.cost[b] + costs[0]
            return
        left_a, left_b = possible.any(axis=1), possible.any(axis=0)
        if not (left_a.all() and left_b.all()):
            self.cost[a], self.cost[b] = np.where(left_a, self.cost[a], np.inf), np.where(left_b, self.cost[b], np.inf)
            self.nodes |= {a: None, b: None}
            return
        b_follows, a_follows = (possible.sum(axis=1) == 1).all(), (possible.sum(axis=0) == 1).all()
        if b_follows and not (a_follows and len(self.table[a]) < len(self.table[b])):
            self._merge(a, b, possible.argmax(axis=1))
        elif a_follows:
            self._merge(b, a, possible.argmax(axis=0))

    def _merge(self, a: int, b: int, follows: Ints) -> None:
        """`follows`: the choice of b for each of a."""
        self.cost[a] = self.cost[a] + self._part(a, b)[np.arange(len(follows)), follows] + self.cost[b][follows]
        for other in list(self.table[b]):
            self._join(a, other, self._part(b, other)[follows])
        self.members[a] += [(n, choice[follows]) for n, choice in self.members[b]]
        self.alive[b] = False
        self.nodes[a] = None

    def _usage(self, n: int, choice: Ints) -> Ints:
        """What a node holds with some of its choices; none where it never holds anything."""
        since, until = self.problem.node_interval[n]
        return self.problem.choice_usage[self.problem.choice_start[n] + choice] if since < until else choice[:0]

    def core(self) -> Core:
        variables = [n for n, alive in enumerate(self.alive) if alive]
        number = {n: v for v, n in enumerate(variables)}
        node_variable = np.full(self.problem.nodes, -1)
        node_choice: dict[int, Ints] = dict(self.single)
        for v, n in enumerate(variables):
            for m, choice in self.members[n]:
                node_variable[m], node_choice[m] = v, choice
        cost, table = [self.cost[n] for n in variables], [self.table[n] for n in variables]
        never = 1.0 + sum(_spread(own) for own in cost) + sum(_spread(costs) for tables in table for costs in tables.values())
        return Core(
            self.constant,
            tuple(cost),
            # More than all else can differ by, so that nothing with a forbidden pair is the least.
            tuple(
                {number[b]: np.minimum(costs, costs[np.isfinite(costs)].max() + never) for b, costs in t.items()} for t in table
            ),
            *self._memory(variables),
            node_variable,
            tuple(node_choice[n] for n in range(self.problem.nodes)),
        )

    def _memory(self, variables: list[int]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Room, value, since, until, amount."""
        problem = self.problem
        times = _fullest(problem.node_interval)
        since, until = np.searchsorted(times, problem.node_interval.T)
        always, most = np.zeros((2, len(times) + 1), np.int64)
        entries = [np.zeros((4, 0), np.int64)]

        def hold(member: tuple[int, Ints], first: int | None) -> None:
            n, choice = member
            if len(held := self._usage(n, choice)):
                least = held.min()
                for total, added in ((always, least), (most, held.max())):
                    total[since[n]] += added
                    total[until[n]] -= added
                more = np.flatnonzero(held > least)
                if first is not None and len(more):
                    entries.append(
                        np.stack([first + more, *np.full((2, len(more)), [[since[n]], [until[n]]]), held[more] - least])
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
        room = problem.usage_limit - always.cumsum()[:-1]
        kept = different(first, value, begin, end, amount, room)
        kept = kept[(most.cumsum()[:-1] > problem.usage_limit)[kept]]
        begin, end = np.searchsorted(kept, begin), np.searchsorted(kept, end)
        some = begin < end
        return room[kept], value[some], begin[some], end[some], amount[some]


def _parts(values: Floats, start: Ints) -> list[Floats]:
    """values[start[0]:start[1]], values[start[1]:start[2]], and so on."""
    return [values[begin:end] for begin, end in pairwise(start.tolist())]


def _spread(costs: Floats) -> float:
    finite = costs[np.isfinite(costs)]
    return float(finite.max() - finite.min())


def _fullest(intervals: Ints) -> Ints:
    """Times such that what is held at any other is held at one of them: a beginning, with an end before any further one."""
    lasting = intervals[intervals[:, 0] < intervals[:, 1]]
    begins, ends = np.unique(lasting[:, 0]), np.unique(lasting[:, 1])
    if not len(begins):
        return begins
    return begins[ends[np.searchsorted(ends, begins, side="right")] <= np.append(begins[1:], np.iinfo(np.int64).max)]


def different(values: int, value: Ints, since: Ints, until: Ints, amount: Ints, room: Ints) -> Ints:
    """Moments, of those at which values hold the same the one with the least room. Sums of random numbers modulo 2^64 tell."""
    weight = np.random.default_rng(0).integers(0, 2**63, size=values, dtype=np.uint64)[value] * amount.astype(np.uint64)
    change = np.zeros(len(room) + 1, np.uint64)
    np.add.at(change, since, weight)
    np.subtract.at(change, until, weight)
    held = np.cumsum(change, dtype=np.uint64)[:-1]
    order = np.lexsort((room, held))
    return np.sort(order[np.append(True, np.diff(held[order]) != 0)[: len(order)]])


def ranges(start: Ints, size: Ints) -> Ints:
    """start[0], start[0] + 1, …, size[0] of them, then the same from start[1], and so on."""
    return np.repeat(start - np.cumsum(size) + size, size) + np.arange(size.sum())
