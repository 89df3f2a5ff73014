"""No split has a lower max load than this."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.model import WORKERS
from placer.research.splits.problem import SplitProblem

UNLIMITED = 1 << 50
PRICES = 8
"""The most prices of memory tried for one accelerator."""


def max_load_bound_ns(problem: SplitProblem) -> int:
    """The best of what all work, each unit, and each two units that a net joins, demand.

    - All work, were units divisible and copies free.
    - Some device has unit u. On an accelerator, that has no less to do than the cheapest set of units with u in it: the time of
      its units and the nets it cuts, a minimum cut.
    - Two units are on one device or on two. On two, each accelerator has no less to do than the cheapest set with one of them in
      it and the other out.
    """
    if not problem.units:
        return 0
    cuts, cpu = Cuts(problem), problem.unit_time_ns[:, 0].tolist()
    alone = [cuts.least([u], []) if ok else UNLIMITED for u, ok in enumerate(problem.unit_supported.tolist())]
    bound: int = max(_work_ns(problem), *map(min, alone, cpu))
    nets = problem.nets
    pairs = {
        tuple(sorted((a, b)))
        for m in range(len(nets.cost_ns))
        for a, *others in [nets.unit[nets.start[m] : nets.start[m + 1]].tolist()]
        for b in others
    }
    for a, b in sorted(pairs):
        if min(alone[a], alone[b], cpu[a], cpu[b]) == UNLIMITED:
            continue
        together = min(cuts.least([a, b], []), cpu[a] + cpu[b])
        if together <= bound:
            continue
        with_a, with_b = cuts.least([a], [b]), cuts.least([b], [a])
        apart = min(max(with_a, with_b), max(with_a, cpu[b]), max(with_b, cpu[a]))
        if problem.cpus > 1:
            apart = min(apart, max(cpu[a], cpu[b]))
        bound = max(bound, min(together, apart))
    return bound


def _work_ns(problem: SplitProblem) -> int:
    """All units shared by accelerators and CPUs, however they are divided: CPUs take those that they are least slow at."""
    cpu, accelerator = problem.unit_time_ns[problem.unit_supported].T
    order = np.argsort(cpu / np.maximum(1e-9, accelerator), kind="stable")
    done = np.append(0, np.cumsum(cpu[order])), np.append(0, np.cumsum(accelerator[order]))
    low, high = 0, int(accelerator.sum())
    while low < high:
        load = (low + high) // 2
        left = done[1][-1] - np.interp(problem.cpus * load, *done)
        low, high = (low, load) if left <= problem.accelerators * load else (load + 1, high)
    return max(0, low - 1)  # a nanosecond for what floats round


def packing_bound_ns(problem: SplitProblem, at_most_ns: int, *, seconds: float, seed: int) -> int:
    """What loads demand when copies are free and memory without limit: units packed into devices, by constraint programming.

    Args:
        at_most_ns: the max load of a split.
    """
    from ortools.sat.python import cp_model

    # In the largest unit of time that all are multiples of: published layers' times are whole microseconds.
    grain = max(1, int(np.gcd.reduce(problem.unit_time_ns, axis=None)))
    time = (problem.unit_time_ns // grain).tolist()
    model: Any = cp_model.CpModel()
    top = model.new_int_var(0, at_most_ns // grain, "")
    load: list[Any] = [0] * problem.devices
    for (cpu, accelerator), supported in zip(time, problem.unit_supported.tolist(), strict=True):
        if cpu or accelerator:
            on = [model.new_bool_var("") for _ in range(problem.devices)]
            model.add_exactly_one(on)
            for d, literal in enumerate(on):
                load[d] += literal * (accelerator if d < problem.accelerators else cpu)
                if d < problem.accelerators and not supported:
                    model.add(literal == 0)
    for work in load:
        model.add(work <= top)
    model.minimize(top)
    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = WORKERS
    solver.parameters.symmetry_level = 4
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = seconds
    solver.solve(model)
    least: int = math.ceil(solver.best_objective_bound - 0.5)
    return grain * max(0, least)


class Cuts:
    """Least loads of an accelerator by what it must hold and must not, each a minimum cut."""

    def __init__(self, problem: SplitProblem) -> None:
        units, nets = problem.units, problem.nets
        self._bytes, self._limit = problem.unit_bytes, problem.memory_limit_bytes
        self._source, self._sink = units, units + 1
        tail, head = list(range(units)), [self._sink] * units
        capacity = problem.unit_time_ns[:, 1].tolist()
        for m, cost in enumerate(nets.cost_ns.tolist()):
            members = nets.unit[nets.start[m] : nets.start[m + 1]].tolist()
            some, rest = units + 2 + 2 * m, units + 3 + 2 * m
            tail += [some] + members + [rest] * len(members)
            head += [rest] + [some] * len(members) + members
            capacity += [cost] + [UNLIMITED] * 2 * len(members)
        self._arcs: tuple[Ints, Ints, Ints] = (np.array(tail), np.array(head), np.array(capacity, np.int64))

    def least(self, inside: list[int], outside: list[int]) -> int:
        """The least load, whatever its bytes."""
        return self._cut(inside, outside)[0]

    def least_that_fits(self, inside: list[int], outside: list[int]) -> tuple[int, Bools]:
        """A bound on the least load of what an accelerator can hold, and, [U], something near it; `inside` must be so.

        Units pay for their bytes, and what full use of the limit would pay is taken off. Each set makes that a straight line over
        the price; the next price is where the lines of the last set that fits and of the last that does not meet.
        """
        best, there = self._cut(inside, outside)
        limit, over = self._limit, (best, self._bytes[there].sum())
        if over[1] <= limit:
            return best, there
        load, near = self._cut(inside, [u for u in range(len(self._bytes)) if u not in {*inside}])
        fits = (load, self._bytes[near].sum())
        for _ in range(PRICES):
            price = (fits[0] - over[0]) / (over[1] - fits[1])
            rent = np.floor(price * self._bytes).astype(np.int64)
            paid, there = self._cut(inside, outside, rent)
            best = max(best, paid - math.floor(price * limit) - 1)  # a nanosecond for what floats round
            line = paid - int(rent[there].sum()), self._bytes[there].sum()
            if line in (over, fits):
                break
            if line[1] > limit:
                over = line
            else:
                fits, near = line, there
        return best, near

    def _cut(self, inside: list[int], outside: list[int], rent: Ints | None = None) -> tuple[int, Bools]:
        """The least load and rent, [U]: of what set of units."""
        from ortools.graph.python import max_flow

        tail, head, capacity = self._arcs
        units = len(self._bytes)
        if rent is not None:
            capacity = capacity.copy()
            capacity[:units] += rent
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(
            np.append(tail, [self._source] * len(inside) + outside),
            np.append(head, inside + [self._sink] * len(outside)),
            np.append(capacity, [UNLIMITED] * (len(inside) + len(outside))),
        )
        flow.solve(self._source, self._sink)
        least: int = flow.optimal_flow()
        with_source = np.array(flow.get_source_side_min_cut(), np.int64)
        there = np.zeros(units, np.bool_)
        there[with_source[with_source < units]] = True
        return least, there
