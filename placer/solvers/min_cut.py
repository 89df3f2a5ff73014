"""Two devices, total cost, no memory limit that binds: a minimum cut."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from placer.problem.memory import Holdings
from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, overfull
from placer.solvers.base import Objective, Solution, Status

SOURCE, SINK = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The cheapest cut's assignment and its capacity, a lower bound on every assignment's total cost."""

    assignment: Assignment
    bound_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Rent:
    """A price of the memory in use on a device at one moment, in ns for each holding."""

    device: int
    holdings: Holdings
    price_ns: Ints


def minimum_cut(
    problem: PlacementProblem,
    devices: tuple[int, int] = (0, 1),
    *,
    work_ns: Ints | None = None,
    copies: float = 1.0,
    rents: Sequence[Rent] = (),
) -> Cut:
    """Splits the units over two devices by an s-t minimum cut.

    Units are nodes, the first device is the source's side. A unit's edge to a terminal is what it works longer on the other
    side. What a crossing costs is a sum, over the places q its users take it from (q on device e, the other device o), of

        same · [made on e] · [any user at q]  +  cross · [made on o] · [any user at q]

    where same and cross are the costs of the copy to q from where the maker has it on e and on o. An auxiliary node, which any
    user on e drags to e's side, charges a cost once for all users (Ihler, Wagner, Wagner 1993). With k = min(same, cross):

    - k · [any user at q] hangs the auxiliary node on the terminal;
    - (cross - k) · [made on o] · [any user at q] hangs it on the maker;
    - r = same - k is left: a copy within e, from its own memory to its view of the host's or back, that costs more than the
      same copy from o. It makes two nodes on one side cost more than two on different sides, which no cut can express. If no
      user takes it at q, then all of q's users are on o and pay there, so m = min(r, what they pay for a place on o) is due
      in each case: it is charged to the maker, and the rest of r is left out.

    So the cut is exact unless r > 0 and the crossing has several users, and always a lower bound.

    Args:
        devices: the pair; every unit must be allowed on one of them.
        work_ns: shape [U, D], what to take for `problem.unit_time_ns`.
        copies: scales what every copy costs.
        rents: are added to the total. With any of these the bound is one on the changed problem.

    Raises:
        ValueError: a unit is allowed on neither device.
    """
    from ortools.graph.python import max_flow

    work = (problem.unit_time_ns if work_ns is None else work_ns)[:, devices]
    allowed = problem.unit_allowed[:, devices]
    if not allowed.any(axis=1).all():
        unit = int(np.argmin(allowed.any(axis=1)))
        raise ValueError(f"unit {unit} is allowed on neither {' nor '.join(problem.device_names[d] for d in devices)}.")

    free = np.flatnonzero(allowed.all(axis=1))
    node = np.where(allowed[:, 0], SOURCE, SINK)
    node[free] = np.arange(2, 2 + len(free))
    constant = int(work[~allowed[:, 1], 0].sum() + work[~allowed[:, 0], 1].sum())

    arcs = _Arcs(2 + len(free))
    constant += arcs.either(node[free], work[free, 0], work[free, 1])
    _add_crossings(problem, devices, copies, node, arcs)
    for rent in rents:
        _add_rent(rent, devices, node, arcs)
    tail, head, capacity = arcs.merged()

    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(tail, head, capacity)
    side = np.ones(arcs.nodes, np.bool_)
    side[SOURCE] = False
    if len(tail):
        status = flow.solve(SOURCE, SINK)
        if status != flow.OPTIMAL:
            raise ValueError(f"the maximum flow ended with {status}: the costs are too large for 64 bits.")
        constant += flow.optimal_flow()
        kept = np.array(flow.get_source_side_min_cut(), np.int64)
        side[kept[kept < arcs.nodes]] = False
    else:
        side[2:] = False
    return Cut(Assignment(np.array(devices, np.int64)[side[node].astype(np.int64)]), constant)


class _Arcs:
    """Arcs under collection; a cut pays an arc whose tail is on the source's side and whose head is not."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._parts: list[tuple[Ints, Ints, Ints]] = []

    def fresh(self, count: int) -> Ints:
        """Numbers of new nodes."""
        first, self.nodes = self.nodes, self.nodes + count
        return np.arange(first, self.nodes)

    def add(self, tail: Ints, head: Ints, capacity: Ints) -> None:
        self._parts.append((tail, head, capacity))

    def either(self, node: Ints, first: Ints, second: Ints) -> int:
        """Costs `first` on the source's side, `second` on the sink's; returns what is due in each case."""
        low = np.minimum(first, second)
        self.add(np.full(len(node), SOURCE), node, second - low)
        self.add(node, np.full(len(node), SINK), first - low)
        return int(low.sum())

    def merged(self) -> tuple[Ints, Ints, Ints]:
        """All arcs, parallel ones summed, those that cost nothing or can never be cut left out."""
        tail, head, capacity = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        kept = (capacity > 0) & (tail != head) & (tail != SINK) & (head != SOURCE)
        key, inverse = np.unique(tail[kept] * self.nodes + head[kept], return_inverse=True)
        summed = np.zeros(len(key), np.int64)
        np.add.at(summed, inverse, capacity[kept])
        return key // self.nodes, key % self.nodes, summed


def _add_crossings(problem: PlacementProblem, devices: tuple[int, int], copies: float, node: Ints, arcs: _Arcs) -> None:
    """Adds what crossings cost."""
    crossings, count = problem.crossings, len(problem.crossings.unit)
    maker = node[crossings.unit]
    ends = np.array(devices, np.int64)
    every = np.arange(count)
    # Everything below has the shape [X, 2 devices e, 2 places of e: its own memory, its view of the host's].
    places = np.stack([ends, ends + problem.devices], axis=1)
    made = crossings.place[:, devices]
    same, cross = (
        np.rint(
            copies * problem.copy_ns(crossings.nbytes[:, None, None], crossings.count[:, None, None], origin[:, :, None], places)
        ).astype(np.int64)
        for origin in (made, made[:, ::-1])
    )
    kind = (crossings.user_place[:, devices] != ends).astype(np.int64)  # [E, 2]: 1 for host memory
    users = np.zeros((count, 2, 2), np.int64)
    for e in range(2):
        np.add.at(users[:, e], (crossings.user_crossing, kind[:, e]), 1)
    same[users == 0] = cross[users == 0] = 0
    base = np.minimum(same, cross)
    cross -= base
    rest = same - base

    # The places of o that stand in for a place of e: the dearer of those where its users go instead.
    for e in range(2):
        for k in range(2):
            x = np.flatnonzero(rest[:, e, k])
            if not len(x):
                continue
            shared = np.zeros((count, 2), np.bool_)
            taking = kind[:, e] == k
            shared[crossings.user_crossing[taking], kind[taking, 1 - e]] = True
            own = np.zeros(count, np.bool_)  # the maker's unit is itself a user there, so that the copy is always due
            mine = taking & (crossings.user == crossings.unit[crossings.user_crossing])
            own[crossings.user_crossing[mine]] = True
            other = np.where(shared, cross[every, 1 - e], 0)
            instead = other.argmax(axis=1)
            due = np.where(own, rest[:, e, k], np.minimum(rest[:, e, k], other[every, instead]))[x]
            cross[x, 1 - e, instead[x]] -= np.where(own[x], 0, due)
            zero = np.zeros(len(x), np.int64)
            arcs.either(maker[x], *((due, zero) if e == 0 else (zero, due)))

    for e in range(2):
        terminal = np.full(count, (SINK, SOURCE)[e])
        for k in range(2):
            taking = np.flatnonzero(kind[:, e] == k)
            of, user = crossings.user_crossing[taking], node[crossings.user[taking]]
            both = base[:, e, k] + cross[:, e, k]
            several = users[:, e, k] > 1
            aux = np.full(count, -1, np.int64)
            charged = np.flatnonzero(several & (both > 0))
            aux[charged] = arcs.fresh(len(charged))
            gate = aux.copy()  # what the charges hang on: the auxiliary node, or the only user
            single = ~several[of]
            gate[of[single]] = user[single]
            used = np.flatnonzero((users[:, e, k] > 0) & (both > 0))
            hung = aux[of] >= 0
            _directed(arcs, e, maker[used], gate[used], cross[used, e, k])
            _directed(arcs, e, terminal[used], gate[used], base[used, e, k])
            _directed(arcs, e, aux[of[hung]], user[hung], both[of[hung]])


def _add_rent(rent: Rent, devices: tuple[int, int], node: Ints, arcs: _Arcs) -> None:
    """Charges each holding once where any of its holders is on the device; those that others can hold too go free."""
    e = devices.index(rent.device)
    held = rent.holdings
    holding = np.repeat(np.arange(len(held.nbytes)), np.diff(held.start))
    elsewhere = np.bincount(holding, held.on_device != rent.device, minlength=len(held.nbytes))
    price = np.where(elsewhere > 0, 0, rent.price_ns)
    aux = arcs.fresh(len(price))
    _directed(arcs, e, np.full(len(price), (SINK, SOURCE)[e]), aux, price)
    _directed(arcs, e, aux[holding], node[held.unit], price[holding])


def _directed(arcs: _Arcs, e: int, away: Ints, here: Ints, cost: Ints) -> None:
    """Costs `cost` where `here` is on device e (0 the source's side) and `away` is not."""
    if e == 0:
        arcs.add(here, away, cost)
    else:
        arcs.add(away, here, cost)


@dataclass(frozen=True, slots=True)
class MinCut:
    """Exact for two devices and the total cost, in near-linear time. Knows no memory limits."""

    name: str = "min_cut"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives, other numbers of devices, and what exceeds a memory limit so placed."""
        if objective != "total_cost":
            return f"it minimises total_cost, not {objective}"
        if problem.devices != 2:
            return f"it splits over two devices, and there are {problem.devices}: {', '.join(problem.device_names)}"
        return overfull(problem, minimum_cut(problem).assignment) if limits_can_bind(problem) else ""

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """One maximum flow, whatever the time limit."""
        started = time.perf_counter()
        cut = minimum_cut(problem)
        solution = answer(
            problem,
            objective,
            cut.assignment,
            solver=self.name,
            started=started,
            stop_reason="exact",
            lower_bound_ns=cut.bound_ns,
        )
        if solution.status is not Status.FEASIBLE:
            return solution
        return replace(solution, stop_reason="copies within a GPU that no cut can express are priced after it")

    def cite(self) -> str:
        """Cuts and hyperedges."""
        return (
            "H. S. Stone, Multiprocessor scheduling with the aid of network flow algorithms, 1977; "
            "E. Ihler, D. Wagner, F. Wagner, Modeling hypergraphs by graphs with the same mincut properties, 1993"
        )
