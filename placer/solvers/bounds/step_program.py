"""A lower bound on the step time by a linear program over the resources and the paths of a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.encoded_assignment import copy_columns
from placer.problem.memory import holdings, usage
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED
from placer.solvers.bounds.limited_load import shared_loads
from placer.solvers.bounds.step_bound import RESOURCES
from placer.solvers.primitives.or_tools import linear_optimum
from placer.solvers.primitives.two_sided_relaxation import sides, two_sided_relaxation

NEUMAIER = (
    "A. Neumaier, O. Shcherbina, Safe bounds in linear and mixed-integer linear programming, Mathematical Programming 99, 2004, "
    "doi:10.1007/s10107-003-0433-3"
)

PARTS_OF_STEP = 8
"""The step is divided into so many parts; in each, the worst moment over a memory limit becomes a constraint."""
MEMORY_ROUNDS = 3
"""Limit of the number of programs, each with more moments."""
MARGIN = 1e-9
"""Share of the terms of a bound that rounding may be wrong by."""


def step_program_ns(simulator: Simulator, limit_ns: int) -> int:
    """A lower bound on the step time of the assignments that meet the memory limits, or on `limit_ns` if that is shorter, in ns.

    The variables are the share of each unit that is on the side of the accelerators, the shares of the tensors that cross between
    the sides, and when ops are issued and end. The step is as long as the longest path and the busiest resource: threads,
    streams, the threads that feed them, and links. Every assignment and its schedule are a solution, so the optimum is a bound.
    Other than the longest chain and the least load, it sees that a unit is on the same side for all paths and resources.

    Several accelerators are one side: they share its work equally, and copies between them are free. The bound is computed from
    the dual values, whatever their accuracy (Neumaier, Shcherbina 2004). 0 if there is one device only.

    Args:
        limit_ns: a step time that need not be exceeded, such as that of a known assignment.
    """
    if simulator.problem.num_devices < 2:
        return 0
    program = StepProgram(simulator, limit_ns)
    best, shares = 0, None
    relaxation = two_sided_relaxation(simulator.problem) if (simulator.problem.devices.memory_limit_bytes >= 0).any() else None
    for _ in range(MEMORY_ROUNDS):
        if relaxation is not None and not program.limit_memory(relaxation, shares) and shares is not None:
            break
        bound_ns, shares = program.minimum_ns()
        best = max(best, bound_ns)
        if relaxation is None or shares is None:
            break
    return simulator.whole_ns(best, simulator.least_call_ns)


@dataclass
class _Rows:
    """Inequalities: the sum of coefficients times variables is at least a constant."""

    row: list[Ints] = field(default_factory=list)
    column: list[Ints] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    at_least: list[Floats] = field(default_factory=list)
    count: int = 0

    def add(self, at_least: Floats, terms: Iterable[tuple[Ints, Floats | float]]) -> None:
        """Adds as many rows as `at_least` has, from terms with a column and a coefficient for each row."""
        number = np.arange(self.count, self.count + len(at_least))
        for column, value in terms:
            self.row.append(number)
            self.column.append(np.broadcast_to(column, number.shape))
            self.value.append(np.broadcast_to(np.asarray(value, np.float64), number.shape))
        self.at_least.append(np.asarray(at_least, np.float64))
        self.count += len(number)

    def add_one(self, at_least: float, columns: Ints, values: Floats) -> None:
        """Adds one row."""
        self.row.append(np.full(len(columns), self.count))
        self.column.append(np.asarray(columns, np.int64))
        self.value.append(np.asarray(values, np.float64))
        self.at_least.append(np.array([at_least], np.float64))
        self.count += 1


class StepProgram:
    """The linear program of `step_program_ns`. Times are in ns."""

    def __init__(self, simulator: Simulator, limit_ns: int) -> None:
        self._simulator, self._limit_ns = simulator, max(1, limit_ns)
        problem, edges = simulator.problem, simulator.edges
        self._rows, self._upper = _Rows(), np.zeros(0)
        self._lower = np.zeros(0)
        side, unit = sides(problem), problem.ops.unit
        self._members = [np.flatnonzero(side == k) for k in range(2)]
        self._moments: set[tuple[int, int]] = set()
        allowed = problem.units.allowed
        can = np.stack([allowed[:, members].any(axis=1) for members in self._members], axis=1)
        self._share = self._variables(np.where(can[:, 0], 0.0, 1.0), np.where(can[:, 1], 1.0, 0.0))
        self._step = int(self._variables(np.zeros(1), np.full(1, float(self._limit_ns)))[0])
        self._streamed = problem.devices.asynchronous & ~simulator.tables.host_only
        self._issued, self._ended = (self._times(problem.num_ops) for _ in range(2))
        pairs, number = np.unique(unit[edges.producer] * problem.num_units + unit[edges.consumer], return_inverse=True)
        self._from, self._to = pairs // problem.num_units, pairs % problem.num_units
        self._pair = number.reshape(-1)
        self._crosses = self._variables(np.zeros(len(pairs)), np.ones(len(pairs)))  # from the host's side to the accelerators'
        self._add_pairs()
        self._add_paths()
        self._add_loads()

    def _variables(self, lower: Floats, upper: Floats) -> Ints:
        first = len(self._lower)
        self._lower, self._upper = np.append(self._lower, lower), np.append(self._upper, upper)
        return np.arange(first, len(self._lower))

    def _times(self, count: int) -> Ints:
        return self._variables(np.zeros(count), np.full(count, float(self._limit_ns)))

    def _add_pairs(self) -> None:
        """A pair crosses if its first unit is on side 0 and its second on side 1: exact where shares are 0 or 1."""
        first, second, crosses = self._share[self._from], self._share[self._to], self._crosses
        zero = np.zeros(len(crosses))
        self._rows.add(zero, [(crosses, 1.0), (second, -1.0), (first, 1.0)])
        self._rows.add(zero, [(crosses, -1.0), (second, 1.0)])
        self._rows.add(zero - 1, [(crosses, -1.0), (first, -1.0)])

    def _least(self, by_device: Floats, allowed: Bools) -> Floats:
        """[..., 2]: the least value on the allowed devices of each side, 0 where there are none."""
        parts = [np.where(allowed, by_device, np.inf)[..., members].min(axis=-1) for members in self._members]
        least = np.stack(parts, axis=-1)
        return np.where(np.isfinite(least), least, 0.0)

    def _least_between(self, by_devices: Floats, src: Bools, dst: Bools) -> Floats:
        """[E, 2, 2]: the least value between the allowed devices of two sides, 0 where there are none."""
        values = np.where(src[:, :, None] & dst[:, None, :], by_devices, np.inf)
        least = np.stack(
            [np.stack([values[:, a][:, :, b].min(axis=(1, 2)) for b in self._members], axis=1) for a in self._members], axis=1
        )
        return np.where(np.isfinite(least), least, 0.0)

    def _add_paths(self) -> None:
        """When ops are issued and end: after the ops before them, and before the end of the step."""
        problem, edges, rows = self._simulator.problem, self._simulator.edges, self._rows
        allowed, unit = problem.units.allowed[problem.ops.unit], problem.ops.unit
        first = np.where(self._streamed, problem.ops.dispatch_ns, problem.ops.time_ns).astype(np.float64)
        second = np.where(self._streamed, problem.ops.compute_ns, 0).astype(np.float64)
        host, stream = self._least(first, allowed), self._least(second, allowed)
        share = self._share[unit]
        rows.add(host[:, 0], [(self._issued, 1.0), (share, host[:, 0] - host[:, 1])])
        rows.add(stream[:, 0], [(self._ended, 1.0), (self._issued, -1.0), (share, stream[:, 0] - stream[:, 1])])
        rows.add(np.zeros(problem.num_ops), [(np.array(self._step), 1.0), (self._ended, -1.0)])

        src, dst = edges.producer, edges.consumer
        wait, copy = edges.pairs(problem)
        own = np.eye(problem.num_devices, dtype=np.bool_)
        early = (wait == ISSUED)[:, :, None] & own
        after_end = copy + second[src][:, :, None]
        issue_gap = self._least_between(np.where(early, 0.0, after_end), allowed[src], allowed[dst]) + host[dst][:, None, :]
        self._add_gaps(self._issued, self._issued, issue_gap, np.arange(len(src)))
        follows = early & self._streamed[src][:, :, None] & self._streamed[dst][:, None, :]
        open_pairs = allowed[src][:, :, None] & allowed[dst][:, None, :]
        sure = ~(early & ~follows & open_pairs).any(axis=(1, 2))
        end_gap = np.where(follows, 0.0, copy + first[dst][:, None, :])
        end_gap = self._least_between(end_gap, allowed[src], allowed[dst]) + stream[dst][:, None, :]
        self._add_gaps(self._ended, self._ended, end_gap, np.flatnonzero(sure))
        if len(self._members[1]) == 1:
            self._add_front(copy, host[dst] + stream[dst], stream[dst], allowed)

    def _add_front(self, copy: Ints, whole: Floats, stream: Floats, allowed: Bools) -> None:
        """When an op and all before it have ended, on one stream.

        An op in the stream ends after them. So does a copy out of or into the stream's memory, which waits for the stream.

        Args:
            copy: [E, D, D], as of `StepEdges.pairs`.
            whole: [E, 2]: the time of the consumer on each side.
            stream: [E, 2]: its time in the stream.
            allowed: [N, D]
        """
        problem, edges, rows = self._simulator.problem, self._simulator.edges, self._rows
        src, dst = edges.producer, edges.consumer
        front = self._times(problem.num_ops)
        rows.add(np.zeros(problem.num_ops), [(front, 1.0), (self._ended, -1.0)])
        rows.add(np.zeros(problem.num_ops), [(np.array(self._step), 1.0), (front, -1.0)])
        own = (np.arange(problem.num_devices) == self._members[1][0]) & problem.devices.asynchronous
        from_own = ((edges.place[edges.message] == np.arange(problem.num_devices)) & own)[:, :, None]
        to_own = ((edges.consumer_place == np.arange(problem.num_devices)) & own)[:, None, :]
        waits = (from_own ^ to_own | from_own & to_own & ~np.eye(problem.num_devices, dtype=np.bool_)) & ~edges.free[
            edges.message, None, None
        ]
        gap = np.where(waits, copy + self._by_device(whole)[:, None, :], self._by_device(stream)[:, None, :])
        self._add_gaps(front, front, self._least_between(gap, allowed[src], allowed[dst]), np.arange(len(src)))

    def _by_device(self, by_side: Floats) -> Floats:
        """[E, D] of [E, 2]."""
        return by_side[:, sides(self._simulator.problem)]

    def _add_gaps(self, before: Ints, after: Ints, gap: Floats, chosen: Ints) -> None:
        """For each chosen edge: a time of the consumer is at least that of the producer and a gap, [E, 2, 2] by their sides."""
        edges, gap = self._simulator.edges, gap[chosen]
        src, dst, pair = edges.producer[chosen], edges.consumer[chosen], self._pair[chosen]
        same = self._from[pair] == self._to[pair]
        for rows, is_same in ((np.flatnonzero(~same), False), (np.flatnonzero(same), True)):
            g, p = gap[rows], pair[rows]
            terms: list[tuple[Ints, Floats | float]] = [(after[dst[rows]], 1.0), (before[src[rows]], -1.0)]
            if is_same:
                terms.append((self._share[self._from[p]], g[:, 0, 0] - g[:, 1, 1]))
            else:
                terms.append((self._share[self._from[p]], g[:, 0, 0] - g[:, 1, 0]))
                terms.append((self._share[self._to[p]], g[:, 1, 0] - g[:, 1, 1]))
                terms.append((self._crosses[p], g[:, 0, 0] + g[:, 1, 1] - g[:, 0, 1] - g[:, 1, 0]))
            self._rows.add(g[:, 0, 0], terms)

    def _add_loads(self) -> None:
        """The step is as long as each resource works: on ops, and a link or a thread that feeds a stream on copies."""
        load = shared_loads(self._simulator)
        for resource in range(load.shape[2]):
            self._add_load(load[:, :, resource], [])
        by_direction = {sides: self._copies(*sides) for sides in ((0, 1), (1, 0), (1, 1))}
        for occupied, _ in (by_direction[0, 1], by_direction[1, 0]):
            self._add_load(np.zeros_like(load[:, :, 0]), occupied)
        copies = [term for _, handled in by_direction.values() for term in handled]
        self._add_load(load[:, :, RESOURCES], copies, self._most_sent_ns())

    def _add_load(self, load: Floats, more: list[tuple[Ints, Floats]], slack_ns: float = 0.0) -> None:
        columns = np.concatenate([[self._step], self._share, *(column for column, _ in more)])
        values = np.concatenate([[1.0], load[:, 0] - load[:, 1], *(-value for _, value in more)])
        self._rows.add_one(float(load[:, 0].sum()) - slack_ns, columns, values)

    def _copies(self, src: int, dst: int) -> tuple[list[tuple[Ints, Floats]], list[tuple[Ints, Floats]]]:
        """The loads of copies from one side to another: on a link between own memories, and on a thread that feeds a stream.

        Each is a list of variables, 1 if a copy is made, and of the least time for which it occupies the resource, in ns, divided
        by the number of such resources.
        """
        problem, edges = self._simulator.problem, self._simulator.edges
        sources, targets = self._members[src], self._members[dst]
        busy = ~(self._simulator.tables.host_only & (problem.ops.time_ns == 0))[:, self._members[1]].any(axis=1)
        made, taken = edges.place[edges.message][:, sources], edges.consumer_place[:, targets]
        made_own, taken_own = (made == sources).all(axis=1), (taken == targets).all(axis=1)
        sure = (made_own | (made != sources).all(axis=1)) & (taken_own | (taken != targets).all(axis=1))
        differs = made_own != taken_own if src == dst else np.ones_like(sure)
        kept = ~edges.free[edges.message] & sure & differs & ((src == dst) | (self._from[self._pair] != self._to[self._pair]))
        e = np.flatnonzero(kept)
        key, first, number = np.unique(2 * edges.message[e] + taken_own[e], return_index=True, return_inverse=True)
        crossed = self._any_crosses(len(key), number, e, (src, dst))
        received = np.flatnonzero(busy[edges.consumer[e]] & taken_own[e] & (dst == 1))
        arrives = self._any_crosses(len(key), number[received], e[received], (src, dst))
        message, own_link = edges.message[e][first], (made_own & taken_own)[e][first]
        sends = busy[edges.producer[e]][first] & (src == 1)
        occupied, handled = np.full(len(key), np.inf), np.full(len(key), np.inf)
        for k, s in enumerate(sources.tolist()):
            for m, t in enumerate(targets.tolist()):
                if src != dst or s == t:
                    columns = copy_columns(problem, message, made[e][first][:, k], taken[e][first][:, m])
                    occupied = np.minimum(occupied, np.where(own_link, np.minimum(columns[0], columns[1]), 0))
                    handled = np.minimum(handled, columns[-1])
        occupied, handled = occupied / (len(sources) * len(targets)), handled / len(self._members[1])
        return [(crossed, occupied)], [(crossed, sends * handled), (arrives, handled)]

    def _any_crosses(self, count: int, number: Ints, edges: Ints, between: tuple[int, int]) -> Ints:
        """Variables that are 1 if any of their edges is between these sides.

        Args:
            count: the number of variables.
            number: the variable of each edge.
            edges: the edges.
            between: the sides of the producer and of the consumer.
        """
        variables = self._variables(np.zeros(count), np.ones(count))
        pair = self._pair[edges]
        first, second, crosses = self._share[self._from[pair]], self._share[self._to[pair]], self._crosses[pair]
        terms: list[tuple[Ints, Floats | float]] = [(variables[number], 1.0)]
        if between == (0, 1):
            terms += [(crosses, -1.0)]
        elif between == (1, 0):
            terms += [(crosses, -1.0), (first, -1.0), (second, 1.0)]
        else:
            terms += [(second, -1.0), (crosses, np.where(self._from[pair] == self._to[pair], 0.0, 1.0))]
        self._rows.add(np.zeros(len(edges)), terms)
        return variables

    def _most_sent_ns(self) -> float:
        """The longest time for which a thread can send copies after the last op, in ns."""
        problem, edges = self._simulator.problem, self._simulator.edges
        most = np.rint(edges.count * float(problem.links.interval_ns.max(initial=0)))
        places = np.minimum(np.bincount(edges.message, minlength=len(most)), 2 * problem.num_devices)
        return float(np.bincount(edges.op, most * places, problem.num_ops).max(initial=0))

    def limit_memory(self, relaxation: PlacementProblem, shares: Floats | None) -> bool:
        """Adds the memory limits at the worst moments of an assignment; returns whether there was a new one.

        Args:
            relaxation: the problem with one device for each side.
            shares: [U], of a solution, which is rounded; None for everything on either side.
        """
        allowed, limits, known = relaxation.units.allowed, relaxation.devices.memory_limit_bytes.tolist(), len(self._moments)
        for side in range(2):
            wanted = np.full(len(allowed), side) if shares is None else (shares > 0.5).astype(np.int64)
            device = np.where(allowed[np.arange(len(allowed)), wanted], wanted, 1 - wanted)
            held = usage(relaxation, Assignment(device))[side]
            for part in np.array_split(np.arange(relaxation.num_ops), PARTS_OF_STEP):
                if limits[side] >= 0 and len(part):
                    worst = side, int(part[np.argmax(held[part])])
                    if held[worst[1]] > limits[side] and worst not in self._moments:
                        self._moments.add(worst)
                        self._limit_at(relaxation, *worst)
        return len(self._moments) > known

    def _limit_at(self, relaxation: PlacementProblem, side: int, moment: int) -> None:
        """Adds the memory limit of a side at a moment."""
        parts = holdings(relaxation, side, moment)
        present = self._variables(np.zeros(len(parts.nbytes)), np.ones(len(parts.nbytes)))
        limit = float(max(1, relaxation.devices.memory_limit_bytes[side]))
        self._rows.add_one(-1.0, present, -parts.nbytes / limit)
        holding = np.repeat(np.arange(len(present)), np.diff(parts.start))
        sign, base = np.where(parts.on_device == 1, 1.0, -1.0), np.where(parts.on_device == 1, 0.0, 1.0)
        taken = np.flatnonzero(parts.nbytes[holding] > 0)
        self._rows.add(base[taken], [(present[holding[taken]], 1.0), (self._share[parts.unit[taken]], -sign[taken])])
        for h in np.flatnonzero(parts.nbytes < 0).tolist():  # given back only if a holder is there
            own = slice(parts.start[h], parts.start[h + 1])
            columns = np.append(present[h], self._share[parts.unit[own]])
            self._rows.add_one(-float(base[own].sum()), columns, np.append(-1.0, sign[own]))

    def minimum_ns(self) -> tuple[int, Floats | None]:
        """A bound on the optimum, in ns, and the share of each unit on side 1; 0 and None if the program is not solved."""
        from placer.solvers.primitives.loaded_ortools import model_builder

        rows = self._rows
        row, column, value = np.concatenate(rows.row), np.concatenate(rows.column), np.concatenate(rows.value)
        at_least = np.concatenate(rows.at_least)
        unit = np.where(self._upper > 1, float(self._limit_ns), 1.0)  # times as shares of the limit
        size = np.ones(rows.count)
        np.maximum.at(size, row, np.abs(value * unit[column]))
        order = np.argsort(row, kind="stable")
        start = np.searchsorted(row[order], np.arange(rows.count + 1)).tolist()
        column_of, scaled = column[order].tolist(), (value * unit[column] / size[row])[order].tolist()
        model = model_builder.Model()  # type: ignore[no-untyped-call]
        variables = [model.new_num_var(a, b, "") for a, b in zip(self._lower / unit, self._upper / unit, strict=True)]
        constraints = []
        for r, least in enumerate((at_least / size).tolist()):
            terms = [variables[c] for c in column_of[start[r] : start[r + 1]]]
            weighted = model_builder.LinearExpr.weighted_sum(terms, scaled[start[r] : start[r + 1]])
            constraints.append(model.add(weighted >= least))
        model.minimize(variables[self._step])
        simplex = linear_optimum(model)
        if simplex is None:
            return 0, None
        dual = np.maximum(0.0, [simplex.dual_value(constraint) for constraint in constraints]) * self._limit_ns / size
        reduced = np.zeros(len(unit))
        reduced[self._step] = 1.0
        np.subtract.at(reduced, column, dual[row] * value)
        least_terms = np.where(reduced > 0, self._lower, self._upper) * reduced
        added = np.abs(dual * at_least).sum() + np.abs(least_terms).sum() + np.abs(dual[row] * value * self._upper[column]).sum()
        bound_ns = float((dual * at_least).sum() + least_terms.sum() - MARGIN * added)
        return max(0, int(bound_ns)), np.array([simplex.value(variables[c]) for c in self._share])
