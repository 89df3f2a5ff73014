"""The least total cost over two devices, by a minimum cut of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Floats, Ints
from placer.problem.crossings import crossings_of
from placer.problem.memory import live_ranges_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.or_tools import least_cut

STONE = (
    "H. S. Stone, Multiprocessor scheduling with the aid of network flow algorithms, IEEE Transactions on Software Engineering "
    "SE-3(1), 1977, doi:10.1109/TSE.1977.233840"
)
IHLER = (
    "E. Ihler, D. Wagner, F. Wagner, Modeling hypergraphs by graphs with the same mincut properties, Information Processing "
    "Letters 45(4), 1993, doi:10.1016/0020-0190(93)90115-P"
)
BOYKOV = (
    "Y. Boykov, O. Veksler, R. Zabih, Fast approximate energy minimization via graph cuts, IEEE Transactions on Pattern Analysis "
    "and Machine Intelligence 23(11), 2001, doi:10.1109/34.969114"
)


SOURCE, SINK = 0, 1
MAX_MEMORY_COST_NS = 2**40
"""Limit of one charge for memory: about 18 minutes. The sum of a million of them fits in 64 bits, at any price."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The assignment of a minimum cut, and its capacity: a lower bound on the total cost of the assignments it chose from."""

    assignment: Assignment
    bound_ns: int


def minimum_cut(
    problem: PlacementProblem,
    devices: tuple[int, int] = (0, 1),
    *,
    work_ns: Ints | None = None,
    copies: float = 1.0,
    memory_price: Floats | None = None,
    price_scale: Floats | None = None,
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
    return expansion(problem, stay, second, work_ns=work_ns, copies=copies, memory_price=memory_price, price_scale=price_scale)


def expansion(
    problem: PlacementProblem,
    stay: Assignment,
    to: int,
    *,
    work_ns: Ints | None = None,
    copies: float = 1.0,
    memory_price: Floats | None = None,
    price_scale: Floats | None = None,
) -> Cut:
    """Finds the set of units whose move to one device gives the least total cost, by an s-t minimum cut.

    Each unit is a node; those on the source's side do not move. An edge between a unit and a terminal costs the difference of
    the unit's times on the two sides. The cost of a crossing is a sum over both sides e (o is the other side) and over the
    places q where users on side e take the tensor:

        same · [maker on e] · [any user at q]  +  cross · [maker on o] · [any user at q]

    Here `same` and `cross` are the costs of the copy to q from the producer's place on e and on o. An auxiliary node is on side
    e if any user at q is, so that it charges a cost once for all users (Ihler, Wagner, Wagner 1993). With k = min(same, cross):

    - k · [any user at q] is an edge between the auxiliary node and the terminal.
    - (cross - k) · [maker on o] · [any user at q] is an edge between the auxiliary node and the producer.
    - r = same - k remains. It is positive, for example, for a copy within a GPU, from its own memory to its view of the host's,
      that costs more than the same copy from the host. A cut cannot express it: two nodes on one side would cost more than two
      on different sides. If no user takes the tensor at q, then all of q's users are on o and pay there. So
      m = min(r, their payment for a place on o) is due in each case: the producer is charged m, and r - m is omitted.

    So the cut is always a lower bound, and it is exact unless r > 0 and the crossing has several users, which is common with
    three or more devices. Repeated for each device in turn this is alpha-expansion (Boykov, Veksler, Zabih 2001).

    Args:
        stay: the devices of the units if none moves; units that may not be on `to` stay there.
        to: the device.
        work_ns: shape [U, D], replaces `problem.unit_time_ns`.
        copies: factor of the cost of every copy.
        memory_price: shape [D, N], in ns for each byte that a device holds at a moment (see `placer.problem.memory.usage`).
            The cost of memory is added to the total, rounded down for each unit and for each tensor at each place. The bound
            is then one on that sum.
        price_scale: shape [N], factors of the memory price of the tensors that an op makes. The bound is then not valid.
    """
    spend(250 + 0.6 * problem.num_ops)
    work = problem.unit_time_ns if work_ns is None else work_ns
    units = np.arange(problem.num_units)
    sides = (stay.device, np.where(problem.units.allowed[:, to], to, stay.device))
    node = np.where(stay.device == to, SINK, SOURCE)
    free = np.flatnonzero(sides[0] != sides[1])
    node[free] = np.arange(2, 2 + len(free))
    fixed = node < 2
    arcs = _Arcs(2 + len(free))

    costs = [work[units, side] for side in sides]
    if memory_price is not None:
        unit_costs = _memory_cost_of_units(problem, memory_price)
        costs = [cost + unit_costs[units, side] for cost, side in zip(costs, sides, strict=True)]
        _add_memory_cost_of_tensors(problem, memory_price, price_scale, sides, node, arcs)
    constant = int(costs[0][fixed].sum()) + arcs.either(node[free], costs[0][free], costs[1][free])
    _add_crossings(problem, sides, copies, node, arcs)
    tail, head, capacity = arcs.merged()

    kept_back = np.ones(arcs.nodes, np.bool_)
    kept_back[SINK] = False
    if len(tail):
        cut_ns, kept_back = least_cut(tail, head, capacity, source=SOURCE, sink=SINK, nodes=arcs.nodes)
        constant += cut_ns
    return Cut(Assignment(np.where(kept_back[node], sides[0], sides[1])), constant)


class _Arcs:
    """The arcs of a flow network. A cut pays for an arc if its tail is on the source's side and its head is not."""

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
        """Charges nodes `first` on the source's side and `second` on the sink's; returns the sum that is due in each case."""
        low = np.minimum(first, second)
        self.add(np.full(len(node), SOURCE), node, second - low)
        self.add(node, np.full(len(node), SINK), first - low)
        return int(low.sum())

    def merged(self) -> tuple[Ints, Ints, Ints]:
        """All arcs as tails, heads and capacities. Parallel ones are summed; those are omitted that are free or in no cut."""
        tail, head, capacity = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        useful = (capacity > 0) & (tail != head) & (tail != SINK) & (head != SOURCE)
        key, inverse = np.unique(tail[useful] * self.nodes + head[useful], return_inverse=True)
        summed = np.zeros(len(key), np.int64)
        np.add.at(summed, inverse, capacity[useful])
        return key // self.nodes, key % self.nodes, summed


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The pairs of a crossing and a place where users on one side take it: Y cells."""

    crossing: Ints
    """[Y]: the crossing of each cell, ascending."""
    of_user: Ints
    """[E]: the cell of each use of a crossing."""
    users: Ints
    """[Y]: the number of uses in each cell."""
    same: Ints
    """[Y]: the cost of the copy if the producer is on this side, in ns."""
    cross: Ints
    """[Y]: the cost of the copy if the producer is on the other side, in ns."""

    @classmethod
    def of(cls, problem: PlacementProblem, sides: tuple[Ints, Ints], e: int, copies: float) -> _Cells:
        crossings, places = crossings_of(problem), 2 * problem.num_devices
        user_place = crossings.user_place[np.arange(len(crossings.user)), sides[e][crossings.user]]
        key, of_user, users = np.unique(crossings.user_crossing * places + user_place, return_inverse=True, return_counts=True)
        x, place = np.divmod(key, places)

        def copy_from(side: Ints) -> Ints:
            source = crossings.place[x, side[crossings.unit[x]]]
            cost: Ints = np.rint(copies * problem.links.copy_ns(crossings.nbytes[x], crossings.count[x], source, place)).astype(
                np.int64
            )
            return cost

        return cls(x, of_user, users, copy_from(sides[e]), copy_from(sides[1 - e]))


def _add_crossings(problem: PlacementProblem, sides: tuple[Ints, Ints], copies: float, node: Ints, arcs: _Arcs) -> None:
    """Adds the cost of crossings."""
    crossings = crossings_of(problem)
    cells = [_Cells.of(problem, sides, e, copies) for e in range(2)]
    base = [np.minimum(side.same, side.cross) for side in cells]
    cross = [side.cross - low for side, low in zip(cells, base, strict=True)]
    for e, side in enumerate(cells):
        _charge_remainder(problem, side.same - base[e], cells, e, cross, node, arcs)
    for e, side in enumerate(cells):
        maker, both = node[crossings.unit[side.crossing]], base[e] + cross[e]
        gate = np.empty(len(both), np.int64)  # [Y]: the node that pays: an auxiliary node, or the only user
        gate[side.of_user] = node[crossings.user]
        several = np.flatnonzero((side.users > 1) & (both > 0))
        gate[several] = arcs.fresh(len(several))
        paid = np.flatnonzero(both > 0)
        _directed(arcs, e, maker[paid], gate[paid], cross[e][paid])
        _directed(arcs, e, np.full(len(paid), (SINK, SOURCE)[e]), gate[paid], base[e][paid])
        hung = np.flatnonzero((side.users[side.of_user] > 1) & (both[side.of_user] > 0))
        _directed(arcs, e, gate[side.of_user[hung]], node[crossings.user[hung]], both[side.of_user[hung]])


def _charge_remainder(
    problem: PlacementProblem, rest: Ints, cells: list[_Cells], e: int, cross: list[Ints], node: Ints, arcs: _Arcs
) -> None:
    """Charges producers on side `e` with the part of `rest` that is due in each case, and subtracts it from the other `cross`.

    The cells of one crossing are charged one after the other, because they may subtract from the same cell. A cell is matched
    with the most expensive of the cells on the other side that its users move to.
    """
    side, other = cells[e], cells[1 - e]
    crossings = crossings_of(problem)
    always = (crossings.user == crossings.unit[crossings.user_crossing]) | (node[crossings.user] == (SOURCE, SINK)[e])
    sure = np.zeros(len(rest), np.bool_)  # whether the producer's own unit, or a unit that cannot move, is a user there
    sure[side.of_user[always]] = True
    turn = np.arange(len(rest)) - np.searchsorted(side.crossing, side.crossing)
    positive = rest > 0
    for k in np.unique(turn[positive]).tolist():
        charged = positive & (turn == k)
        use = np.flatnonzero(charged[side.of_user])
        use = use[np.lexsort((cross[1 - e][other.of_user[use]], side.of_user[use]))]
        use = use[np.append(side.of_user[use][1:] != side.of_user[use][:-1], True)]  # the most expensive of each cell
        cell, instead = side.of_user[use], other.of_user[use]
        due = np.where(sure[cell], rest[cell], np.minimum(rest[cell], cross[1 - e][instead]))
        cross[1 - e][instead] -= np.where(sure[cell], 0, due)
        zero = np.zeros(len(due), np.int64)
        arcs.either(node[crossings.unit[side.crossing[cell]]], *((due, zero) if e == 0 else (zero, due)))


def _memory_cost_of_units(problem: PlacementProblem, memory_price: Floats) -> Ints:
    """[U, D]: the cost of the memory of a unit's variables and workspace, in ns."""
    cost_ns = np.outer(problem.units.persistent_bytes, memory_price.sum(axis=1))
    np.add.at(cost_ns, problem.ops.unit, problem.ops.workspace_bytes * memory_price.T[problem.ops.moment])
    return np.floor(np.minimum(cost_ns, MAX_MEMORY_COST_NS)).astype(np.int64)


def _add_memory_cost_of_tensors(
    problem: PlacementProblem, memory_price: Floats, price_scale: Floats | None, sides: tuple[Ints, Ints], node: Ints, arcs: _Arcs
) -> None:
    """Charges for the memory of tensors, for as long as each place holds them.

    A place holds a tensor until the last of the units there that need it; the producer needs it to the end. So the cost is a sum
    over these units in the order of their last use: the increment of each is due if it or any later one is at the place. That
    is a chain of auxiliary nodes. A shared tensor uses no memory where it is made, so the chain of that place ends at the
    producer.
    """
    until = np.concatenate([np.zeros((problem.num_devices, 1)), np.cumsum(memory_price, axis=1)], axis=1)
    ranges = live_ranges_of(problem)
    tensor, unit = ranges.tensor, ranges.unit
    size = problem.tensors.held_bytes if price_scale is None else problem.tensors.held_bytes * price_scale[problem.tensors.op]
    pays = ~problem.tensors.shared[tensor] | (np.arange(len(tensor)) >= problem.num_tensors)
    maker = unit[tensor]
    for e, side in enumerate(sides):
        place = ranges.place[np.arange(len(tensor)), side[unit]]
        memory = problem.devices.place_device[place]
        held_ns = size[tensor] * (until[memory, ranges.last + 1] - until[memory, ranges.first])
        due = np.floor(np.minimum(held_ns, MAX_MEMORY_COST_NS)).astype(np.int64)
        able = np.flatnonzero((due > 0) & pays & (node[unit] != (SINK, SOURCE)[e]))
        made_at_place = problem.tensors.shared[tensor] & (problem.tensor_place[tensor, side[maker]] == place)
        away = np.where(made_at_place, node[maker], (SINK, SOURCE)[e])
        _add_chains(arcs, e, (tensor * 2 * problem.num_devices + place)[able], node[unit[able]], due[able], away[able])


def _add_chains(arcs: _Arcs, e: int, group: Ints, node: Ints, due: Ints, away: Ints) -> None:
    """Charges each group the largest `due` of its nodes on side `e`, if its node `away` is on the other side."""
    order = np.lexsort((due, group))
    group, node, due, away = group[order], node[order], due[order], away[order]
    new = np.append(True, (group[1:] != group[:-1]) | (due[1:] != due[:-1]))[: len(group)]
    level, first = np.cumsum(new) - 1, np.flatnonzero(new)
    group, size = group[first], np.bincount(level, minlength=len(first))
    total = due[first]
    below = np.flatnonzero(group[1:] == group[:-1])  # levels that are followed by another one of the same group
    gate = node[first]  # a single node with the largest charge of a group needs no auxiliary node
    hung = np.flatnonzero((size > 1) | np.isin(np.arange(len(first)), below))
    gate[hung] = arcs.fresh(len(hung))
    step = total.copy()
    step[below + 1] -= total[below]
    _directed(arcs, e, away[first], gate, step)
    _directed(arcs, e, gate[below], gate[below + 1], total[below])
    _directed(arcs, e, gate[level], node, due)


def _directed(arcs: _Arcs, e: int, away: Ints, near: Ints, cost: Ints) -> None:
    """Charges `cost` if `near` is on side e (0 is the source's) and `away` is not."""
    if e == 0:
        arcs.add(near, away, cost)
    else:
        arcs.add(away, near, cost)
