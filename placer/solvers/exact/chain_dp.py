"""Total cost over contiguous splits: a dynamic programme over ideals (Tarnawski et al. 2020)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from placer.common.clock import TimeUpError, limit, spend
from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.edges import edges_of
from placer.problem.memory import excess
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind, unfinished
from placer.solvers.base import Objective, Solution, StopReason
from placer.solvers.heuristics.dfs_fill import SOURCE
from placer.solvers.primitives.ideals import Edges, contained, ideals, precedence

MAX_IDEALS, MAX_IDEALS_LIMITED = 600, 150
"""Limits of the number of ideals; the second holds where memory limits can bind, since each piece's memory is then checked."""
FIRST_IDEALS, GROWTH = 22, 3
"""The number of ideals of the first programme, and the factor to the next; larger ones take nearly all of the time."""
PIECE_SHARE = 0.01
"""The work of pricing a crossing in one piece, see `placer.common.clock.spend`."""
ORDER_OP_RUNS, MEMBER_SHARE, SUBSET_SHARE = 10, 0.02, 3e-5
"""The work for each unit of the order; for each unit in each ideal; and for each unit in each pair of ideals."""
MAX_PIECE_USES = 100_000_000
"""Limit of the number of pieces times the uses of crossings in each."""
FORBIDDEN_NS = np.iinfo(np.int64).max // 4
"""Cost of a forbidden piece, above all costs."""


@dataclass(frozen=True, slots=True)
class ChainDp:
    """Puts one contiguous piece of the graph on each device, in the order of devices, and all other units on the CPU.

    For two devices this is the least total cost of such splits, if the graph has few ideals; if it has many, only prefixes of
    depth-first orders are tried. With more devices, a copy between two accelerators is priced as two copies through the CPU.
    Time: I² E D for I ideals.
    """

    name: str = "chain_dp"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective is another."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Runs the dynamic programme over few ideals, then over three times as many, up to `MAX_IDEALS` or the time limit."""
        started, best, all_ideals, reason = time.perf_counter(), None, False, StopReason.COMPLETED
        try:
            with limit(time_limit_s):
                order, max_ideals = _order(problem), _max_ideals(problem)
                count = min(FIRST_IDEALS, max_ideals)
                best, all_ideals = contiguous(problem, order, count)
                while not all_ideals and count < max_ideals:
                    count = min(GROWTH * count, max_ideals)
                    best, all_ideals = contiguous(problem, order, count)
        except TimeUpError:
            if best is None:
                return unfinished(problem, objective, solver=self.name, started=started)
            reason = StopReason.TIME_LIMIT
        detail = "contiguous splits, every ideal" if all_ideals else "contiguous splits, prefixes of depth-first orders"
        return answer(problem, objective, best, solver=self.name, started=started, stop_reason=reason, stop_detail=detail)

    def cite(self) -> str:
        """The paper."""
        return SOURCE


def _max_ideals(problem: PlacementProblem) -> int:
    """Limit of the number of ideals, at least 2."""
    most = MAX_IDEALS_LIMITED if limits_can_bind(problem) else MAX_IDEALS
    return max(2, min(most, math.isqrt(MAX_PIECE_USES // max(1, len(crossings_of(problem).user)))))


def contiguous(problem: PlacementProblem, order: Edges, max_ideals: int) -> tuple[Assignment, bool]:
    """The contiguous split of least total cost over at most so many ideals, and whether all ideals were tried.

    Args:
        problem: what to split.
        order: the precedence of its units, as edges without cycles.
        max_ideals: from 2 on.
    """
    rest = np.where(problem.units.allowed[:, problem.devices.host], problem.devices.host, problem.units.allowed.argmax(axis=1))
    limited = limits_can_bind(problem)
    spend(MEMBER_SHARE * problem.num_units * max_ideals)
    family, all_ideals = ideals(problem.num_units, order, max_ideals)
    spend(SUBSET_SHARE * problem.num_units * len(family) ** 2)
    within = contained(family)
    count = len(family)
    every = np.arange(count)
    others = [d for d in range(problem.num_devices) if d != problem.devices.host]
    least = np.zeros(count, np.int64)
    choices = []  # by device: the ideal where its piece begins, and the ideal where the pieces before it end
    for d in others:
        saved = np.where(within, _piece_costs_ns(problem, family, rest, d), FORBIDDEN_NS)
        if limited:
            saved = np.where(_fits(problem, family, within, rest, d), saved, FORBIDDEN_NS)
        np.fill_diagonal(saved, 0)
        with_piece = least[:, None] + saved
        begins = with_piece.argmin(axis=0)
        through = np.where(within, with_piece[begins, every][:, None], FORBIDDEN_NS)
        ends = through.argmin(axis=0)
        least = through[ends, every]
        choices.append((begins, ends))
    device, j = rest.copy(), count - 1
    for d, (begins, ends) in zip(others[::-1], choices[::-1], strict=True):
        j = int(ends[j])
        i = int(begins[j])
        device = np.where(family[j] & ~family[i] & problem.units.allowed[:, d], d, device)
        j = i
    return Assignment(device), all_ideals


def _order(problem: PlacementProblem) -> Edges:
    """The precedence of units, as edges without cycles."""
    spend(ORDER_OP_RUNS * problem.num_units)
    edges = edges_of(problem)
    maker, user = edges.producer, edges.consumer
    order = np.argsort(user, kind="stable")
    feeds = zip(problem.ops.unit[maker[order]].tolist(), problem.ops.unit[user[order]].tolist(), strict=True)
    return precedence(problem.num_units, feeds)


def _piece_costs_ns(problem: PlacementProblem, family: Bools, rest: Ints, d: int) -> Ints:
    """[I, I]: the change of the total cost, in ns, if `d` has the units of ideal j outside ideal i, the others `rest`."""
    allowed = problem.units.allowed[:, d]
    every = np.arange(problem.num_units)
    work = np.where(allowed, problem.unit_time_ns[:, d] - problem.unit_time_ns[every, rest], 0)
    done = family @ work
    cost: Ints = done - done[:, None]

    def inside(unit: int) -> Bools:
        both: Bools = family[:, unit] & ~family[:, unit][:, None] & allowed[unit]
        return both

    crossings = crossings_of(problem)
    for x, maker in enumerate(crossings.unit.tolist()):
        spend(20 + PIECE_SHARE * len(family) ** 2)
        maker_inside = inside(maker)
        made_at, else_at = int(crossings.place[x, d]), int(crossings.place[x, rest[maker]])
        used: dict[int, Bools] = {}
        for entry in range(int(crossings.start[x]), int(crossings.start[x + 1])):
            unit = int(crossings.user[entry])
            user_inside = inside(unit)
            for place, where in (
                (int(crossings.user_place[entry, d]), user_inside),
                (int(crossings.user_place[entry, rest[unit]]), ~user_inside),
            ):
                used[place] = used[place] | where if place in used else where
        for place, where in used.items():
            from_device, from_rest = problem.links.copy_ns(
                crossings.nbytes[x], crossings.count[x], np.array([made_at, else_at]), np.array(place)
            ).tolist()
            cost += where * np.where(maker_inside, from_device, from_rest)
    change: Ints = cost - cost[0, 0]
    return change


def _fits(problem: PlacementProblem, family: Bools, within: Bools, rest: Ints, d: int) -> Bools:
    """[I, I]: whether the units of ideal j outside ideal i fit on `d`. Any part of a piece that fits also fits."""
    count = len(family)
    allowed = problem.units.allowed[:, d]
    fits = np.zeros((count, count), np.bool_)
    misses = np.zeros((count, count), np.bool_)
    for i in range(count):
        for j in np.flatnonzero(within[i]).tolist():
            if fits[i, j] or misses[i, j]:
                continue
            split = Assignment(np.where(family[j] & ~family[i] & allowed, d, rest))
            if excess(problem, split)[d]:
                misses[np.ix_(within[:, i], within[j])] = True
            else:
                fits[np.ix_(within[i], within[:, j])] = True
    return fits


solver = ChainDp
