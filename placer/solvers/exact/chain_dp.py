"""Total cost over contiguous splits: a dynamic programme over ideals.

J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, Efficient Algorithms for Device Placement of DNN Graph
Operators, NeurIPS 2020.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.crossings import crossings_of
from placer.problem.edges import edges_of
from placer.problem.memory import excess
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution
from placer.solvers.primitives.ideals import Edges, contained, ideals, precedence
from placer.solvers.sources import TARNAWSKI

MOST, MOST_LIMITED = 600, 150
"""The most ideals; fewer where limits can bind, since pieces are then tried for size."""
USES = 100_000_000
"""Pieces times what crosses in each."""
NEVER = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class ChainDp:
    """One contiguous piece of the graph on each device, in their order, and the rest on the CPU.

    The least total cost of such splits where the graph has few ideals and there are two devices; over prefixes of depth-first
    orders where it has many. With more devices a copy from one straight to another counts as one by way of the CPU.
    """

    name: str = "chain_dp"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """There is nothing to search."""
        started = time.perf_counter()
        assignment, everything = contiguous(problem)
        detail = "contiguous splits, every ideal" if everything else "contiguous splits, prefixes of depth-first orders"
        return answer(problem, objective, assignment, solver=self.name, started=started, stop_detail=detail)

    def cite(self) -> str:
        """The paper."""
        return TARNAWSKI


def contiguous(problem: PlacementProblem) -> tuple[Assignment, bool]:
    """The cheapest contiguous split, and whether all ideals were looked at."""
    rest = np.where(problem.units.allowed[:, problem.devices.host], problem.devices.host, problem.units.allowed.argmax(axis=1))
    limited = limits_can_bind(problem)
    most = min(MOST_LIMITED if limited else MOST, math.isqrt(USES // max(1, len(crossings_of(problem).user))))
    family, everything = ideals(problem.num_units, _order(problem), max(2, most))
    within = contained(family)
    count = len(family)
    every = np.arange(count)
    others = [d for d in range(problem.num_devices) if d != problem.devices.host]
    least = np.zeros(count, np.int64)
    came = []  # by device: where its piece begins, and where what is before that ends
    for d in others:
        saved = np.where(within, _piece_costs_ns(problem, family, rest, d), NEVER)
        if limited:
            saved = np.where(_fitting(problem, family, within, rest, d), saved, NEVER)
        np.fill_diagonal(saved, 0)
        with_piece = least[:, None] + saved
        begins = with_piece.argmin(axis=0)
        through = np.where(within, with_piece[begins, every][:, None], NEVER)
        ends = through.argmin(axis=0)
        least = through[ends, every]
        came.append((begins, ends))
    device, j = rest.copy(), count - 1
    for d, (begins, ends) in zip(others[::-1], came[::-1], strict=True):
        j = int(ends[j])
        i = int(begins[j])
        device = np.where(family[j] & ~family[i] & problem.units.allowed[:, d], d, device)
        j = i
    return Assignment(device), everything


def _order(problem: PlacementProblem) -> Edges:
    """Which unit comes before which, without circles."""
    edges = edges_of(problem)
    maker, user = edges.producer, edges.consumer
    order = np.argsort(user, kind="stable")
    feeds = zip(problem.ops.unit[maker[order]].tolist(), problem.ops.unit[user[order]].tolist(), strict=True)
    return precedence(problem.num_units, feeds)


def _piece_costs_ns(problem: PlacementProblem, family: Bools, rest: Ints, d: int) -> Ints:
    """[I, I]: what is added to the total cost where `d` takes what ideal j has beyond ideal i, and all else is at `rest`."""
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
        made = inside(maker)
        here, there = int(crossings.place[x, d]), int(crossings.place[x, rest[maker]])
        used: dict[int, Bools] = {}
        for entry in range(int(crossings.start[x]), int(crossings.start[x + 1])):
            unit = int(crossings.user[entry])
            taken = inside(unit)
            for place, where in (
                (int(crossings.user_place[entry, d]), taken),
                (int(crossings.user_place[entry, rest[unit]]), ~taken),
            ):
                used[place] = used[place] | where if place in used else where
        for place, where in used.items():
            from_here, from_there = problem.links.copy_ns(
                crossings.nbytes[x], crossings.count[x], np.array([here, there]), np.array(place)
            ).tolist()
            cost += where * np.where(made, from_here, from_there)
    nothing: Ints = cost - cost[0, 0]
    return nothing


def _fitting(problem: PlacementProblem, family: Bools, within: Bools, rest: Ints, d: int) -> Bools:
    """[I, I]: whether `d` has room for what ideal j has beyond ideal i. A part of what fits does too."""
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
