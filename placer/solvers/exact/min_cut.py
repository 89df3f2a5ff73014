"""Two devices, total cost, no memory limit that binds: a minimum cut."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from placer.problem.arrays import Floats, Ints
from placer.problem.crossings import crossings_of
from placer.problem.memory import live_ranges_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, overfull
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.sources import IHLER, STONE, lines

SOURCE, SINK = 0, 1


MOST_RENT_NS = 2**40
"""Any one charge for memory: a third of an hour. A million of them add up in 64 bits, also where nothing fits at any price."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The cheapest cut's assignment and its capacity, a lower bound on the total cost of every assignment it chose from."""

    assignment: Assignment
    bound_ns: int


def minimum_cut(
    problem: PlacementProblem,
    devices: tuple[int, int] = (0, 1),
    *,
    work_ns: Ints | None = None,
    copies: float = 1.0,
    rent: Floats | None = None,
    tilt: Floats | None = None,
) -> Cut:
    """Splits the units over two devices by an s-t minimum cut: `expansion` from one device to the other.

    Raises:
        ValueError: a unit is allowed on neither device.
    """
    first, second = devices
    allowed = problem.units.allowed[:, devices]
    if not allowed.any(axis=1).all():
        unit = int(np.argmin(allowed.any(axis=1)))
        raise ValueError(f"unit {unit} is allowed on neither {' nor '.join(problem.devices.names[d] for d in devices)}.")
    stay = Assignment(np.where(allowed[:, 0], first, second))
    return expansion(problem, stay, second, work_ns=work_ns, copies=copies, rent=rent, tilt=tilt)


def expansion(
    problem: PlacementProblem,
    stay: Assignment,
    to: int,
    *,
    work_ns: Ints | None = None,
    copies: float = 1.0,
    rent: Floats | None = None,
    tilt: Floats | None = None,
) -> Cut:
    """The cheapest way to move some of the units to one device, by an s-t minimum cut.

    Units are nodes, those that stay on the source's side. A unit's edge to a terminal is what it works longer on the other
    side. What a crossing costs is a sum, over both sides e (the other one o) and the places q its users take it from there, of

        same · [maker on e] · [any user at q]  +  cross · [maker on o] · [any user at q]

    where same and cross are the costs of the copy to q from where the maker has it on e and on o. An auxiliary node, which any
    user at q drags to e's side, charges a cost once for all users (Ihler, Wagner, Wagner 1993). With k = min(same, cross):

    - k · [any user at q] hangs the auxiliary node on the terminal;
    - (cross - k) · [maker on o] · [any user at q] hangs it on the maker;
    - r = same - k is left, such as a copy within a GPU, from its own memory to its view of the host's, that costs more than
      the same copy from the host. It makes two nodes on one side cost more than two on different sides, which no cut can
      express. If no user takes it at q, then all of q's users are on o and pay there, so m = min(r, what they pay for a place
      on o) is due in each case: it is charged to the maker, and the rest of r is left out.

    So the cut is exact unless r > 0 and the crossing has several users, and always a lower bound. With three devices and more
    that is often so; repeated for each device in turn this is alpha-expansion (Boykov, Veksler, Zabih 2001).

    Args:
        stay: where units are that do not move; those that may not be on `to` stay.
        work_ns: shape [U, D], what to take for `problem.unit_time_ns`.
        copies: scales what every copy costs.
        rent: shape [D, N], ns for each byte that a device holds at a moment (`placer.problem.memory.usage`), added to the
            total, rounded down for each unit and for each tensor at each place. The bound is then one on that sum.
        tilt: shape [N], what the rent of the tensors that an op makes is multiplied by. The bound is then none.
    """
    from ortools.graph.python import max_flow

    work = problem.unit_time_ns if work_ns is None else work_ns
    every = np.arange(problem.num_units)
    sides = (stay.device, np.where(problem.units.allowed[:, to], to, stay.device))
    node = np.where(stay.device == to, SINK, SOURCE)
    free = np.flatnonzero(sides[0] != sides[1])
    node[free] = np.arange(2, 2 + len(free))
    fixed = node < 2
    arcs = _Arcs(2 + len(free))

    costs = [work[every, side] for side in sides]
    if rent is not None:
        kept = _rent_of_units(problem, rent)
        costs = [cost + kept[every, side] for cost, side in zip(costs, sides, strict=True)]
        _add_rent_of_tensors(problem, rent, tilt, sides, node, arcs)
    constant = int(costs[0][fixed].sum()) + arcs.either(node[free], costs[0][free], costs[1][free])
    _add_crossings(problem, sides, copies, node, arcs)
    tail, head, capacity = arcs.merged()

    flow = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(tail, head, capacity)
    moved = np.ones(arcs.nodes, np.bool_)
    moved[SOURCE] = False
    if len(tail):
        status = flow.solve(SOURCE, SINK)
        if status != flow.OPTIMAL:
            raise ValueError(f"the maximum flow ended with {status}: the costs are too large for 64 bits.")
        constant += flow.optimal_flow()
        kept_back = np.array(flow.get_source_side_min_cut(), np.int64)
        moved[kept_back[kept_back < arcs.nodes]] = False
    else:
        moved[2:] = False
    return Cut(Assignment(np.where(moved[node], sides[1], sides[0])), constant)


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


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The places where crossings are taken on one side: Y of them."""

    crossing: Ints
    """[Y], ascending"""
    of_user: Ints
    """[E]: the cell of each use."""
    users: Ints
    """[Y]"""
    same: Ints
    """[Y]: the copy there, made on this side."""
    cross: Ints
    """[Y]: the copy there, made on the other."""

    @classmethod
    def of(cls, problem: PlacementProblem, sides: tuple[Ints, Ints], e: int, copies: float) -> _Cells:
        crossings, places = crossings_of(problem), 2 * problem.num_devices
        taken = crossings.user_place[np.arange(len(crossings.user)), sides[e][crossings.user]]
        key, of_user, users = np.unique(crossings.user_crossing * places + taken, return_inverse=True, return_counts=True)
        x, place = np.divmod(key, places)

        def copy_from(side: Ints) -> Ints:
            made = crossings.place[x, side[crossings.unit[x]]]
            cost: Ints = np.rint(copies * problem.links.copy_ns(crossings.nbytes[x], crossings.count[x], made, place)).astype(
                np.int64
            )
            return cost

        return cls(x, of_user, users, copy_from(sides[e]), copy_from(sides[1 - e]))


def _add_crossings(problem: PlacementProblem, sides: tuple[Ints, Ints], copies: float, node: Ints, arcs: _Arcs) -> None:
    """Adds what crossings cost."""
    crossings = crossings_of(problem)
    cells = [_Cells.of(problem, sides, e, copies) for e in range(2)]
    base = [np.minimum(side.same, side.cross) for side in cells]
    cross = [side.cross - low for side, low in zip(cells, base, strict=True)]
    for e, side in enumerate(cells):
        _charge_the_rest(problem, side.same - base[e], cells, e, cross, node, arcs)
    for e, side in enumerate(cells):
        maker, both = node[crossings.unit[side.crossing]], base[e] + cross[e]
        gate = np.empty(len(both), np.int64)  # what the charges hang on: an auxiliary node, or the only user
        gate[side.of_user] = node[crossings.user]
        several = np.flatnonzero((side.users > 1) & (both > 0))
        gate[several] = arcs.fresh(len(several))
        paid = np.flatnonzero(both > 0)
        _directed(arcs, e, maker[paid], gate[paid], cross[e][paid])
        _directed(arcs, e, np.full(len(paid), (SINK, SOURCE)[e]), gate[paid], base[e][paid])
        hung = np.flatnonzero((side.users[side.of_user] > 1) & (both[side.of_user] > 0))
        _directed(arcs, e, gate[side.of_user[hung]], node[crossings.user[hung]], both[side.of_user[hung]])


def _charge_the_rest(
    problem: PlacementProblem, rest: Ints, cells: list[_Cells], e: int, cross: list[Ints], node: Ints, arcs: _Arcs
) -> None:
    """Charges makers on side `e` with what of `rest` is due in each case, and takes it off `cross` of the other side.

    The cells of one crossing take turns, since they may take it off the same one. What stands in for a cell on the other side
    is the dearest of those where its users go instead.
    """
    side, other = cells[e], cells[1 - e]
    crossings = crossings_of(problem)
    always = (crossings.user == crossings.unit[crossings.user_crossing]) | (node[crossings.user] == (SOURCE, SINK)[e])
    sure = np.zeros(len(rest), np.bool_)  # the maker's unit is itself a user there, or one is that cannot move
    sure[side.of_user[always]] = True
    turn = np.arange(len(rest)) - np.searchsorted(side.crossing, side.crossing)
    left = rest > 0
    for k in np.unique(turn[left]).tolist():
        now = left & (turn == k)
        use = np.flatnonzero(now[side.of_user])
        use = use[np.lexsort((cross[1 - e][other.of_user[use]], side.of_user[use]))]
        use = use[np.append(side.of_user[use][1:] != side.of_user[use][:-1], True)]  # the dearest of each cell
        cell, instead = side.of_user[use], other.of_user[use]
        due = np.where(sure[cell], rest[cell], np.minimum(rest[cell], cross[1 - e][instead]))
        cross[1 - e][instead] -= np.where(sure[cell], 0, due)
        zero = np.zeros(len(due), np.int64)
        arcs.either(node[crossings.unit[side.crossing[cell]]], *((due, zero) if e == 0 else (zero, due)))


def _rent_of_units(problem: PlacementProblem, rent: Floats) -> Ints:
    """[U, D]: for what a unit keeps, and for its workspace."""
    kept = np.outer(problem.units.persistent_bytes, rent.sum(axis=1))
    np.add.at(kept, problem.ops.unit, problem.ops.workspace_bytes * rent.T[problem.ops.moment])
    return np.floor(np.minimum(kept, MOST_RENT_NS)).astype(np.int64)


def _add_rent_of_tensors(
    problem: PlacementProblem, rent: Floats, tilt: Floats | None, sides: tuple[Ints, Ints], node: Ints, arcs: _Arcs
) -> None:
    """Charges tensors for as long as each is held at each place.

    It is held there until the last of those there that need it, the maker needing it to the end. So the rent is a sum over
    these in the order of what each adds to those before, due where it or any later one is there: a chain of auxiliary nodes.
    What is shared takes nothing where it is made, so there its chain hangs on the maker.
    """
    until = np.concatenate([np.zeros((problem.num_devices, 1)), np.cumsum(rent, axis=1)], axis=1)
    ranges = live_ranges_of(problem)
    what, unit, at = ranges.tensor, ranges.unit, ranges.place
    size = problem.tensors.held_bytes if tilt is None else problem.tensors.held_bytes * tilt[problem.tensors.op]
    pays = ~problem.tensors.shared[what] | (np.arange(len(what)) >= problem.num_tensors)
    maker = unit[what]
    for e, side in enumerate(sides):
        place = at[np.arange(len(what)), side[unit]]
        memory = problem.devices.place_device[place]
        held_ns = size[what] * (until[memory, ranges.last + 1] - until[memory, ranges.first])
        due = np.floor(np.minimum(held_ns, MOST_RENT_NS)).astype(np.int64)
        able = np.flatnonzero((due > 0) & pays & (node[unit] != (SINK, SOURCE)[e]))
        made_there = problem.tensors.shared[what] & (problem.tensor_place[what, side[maker]] == place)
        away = np.where(made_there, node[maker], (SINK, SOURCE)[e])
        _add_chains(arcs, e, (what * 2 * problem.num_devices + place)[able], node[unit[able]], due[able], away[able])


def _add_chains(arcs: _Arcs, e: int, group: Ints, node: Ints, due: Ints, away: Ints) -> None:
    """Costs, for each group, the most that is due for any of its nodes on side `e` if its `away` is not."""
    order = np.lexsort((due, group))
    group, node, due, away = group[order], node[order], due[order], away[order]
    new = np.append(True, (group[1:] != group[:-1]) | (due[1:] != due[:-1]))[: len(group)]
    level, first = np.cumsum(new) - 1, np.flatnonzero(new)
    group, size = group[first], np.bincount(level, minlength=len(first))
    total = due[first]
    below = np.flatnonzero(group[1:] == group[:-1])  # levels with another of the same group above
    gate = node[first]  # who alone is due most of a group needs no auxiliary node
    hung = np.flatnonzero((size > 1) | np.isin(np.arange(len(first)), below))
    gate[hung] = arcs.fresh(len(hung))
    step = total.copy()
    step[below + 1] -= total[below]
    _directed(arcs, e, away[first], gate, step)
    _directed(arcs, e, gate[below], gate[below + 1], total[below])
    _directed(arcs, e, gate[level], node, due)


def _directed(arcs: _Arcs, e: int, away: Ints, here: Ints, cost: Ints) -> None:
    """Costs `cost` where `here` is on side e (0 the source's) and `away` is not."""
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
        if problem.num_devices != 2:
            return f"it splits over two devices, and there are {problem.num_devices}: {', '.join(problem.devices.names)}"
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
            stop_reason=StopReason.PROVED_OPTIMAL,
            lower_bound_ns=cut.bound_ns,
        )
        if solution.status is not Status.FEASIBLE:
            return solution
        detail = "copies within a GPU, which no cut can express, are priced after the cut"
        return replace(solution, stop_reason=StopReason.COMPLETED, stop_detail=detail)

    def cite(self) -> str:
        """Cuts and hyperedges."""
        return lines(STONE, IHLER)
