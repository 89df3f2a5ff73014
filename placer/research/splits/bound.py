"""Lower bounds on the max load of every split, from the work, from minimum cuts and from packing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.model import WORKERS
from placer.research.splits.problem import SplitProblem
from placer.solvers.primitives.or_tools import cp_search, cp_solver, least_cut

UNLIMITED_NS = 1 << 50
"""The capacity of an arc that no minimum cut may cut."""
MAX_PRICES = 8
"""The most memory prices that are tried for one accelerator."""


def max_load_bound_ns(problem: SplitProblem) -> int:
    """The largest of three lower bounds on the max load of a split, in ns.

    - All work, if units could be divided and copies were free.
    - For each unit u: some device has u. The load of a set of units is their time plus the cost of the nets that the set cuts. An
      accelerator with u has at least the load of the cheapest set that contains u, which a minimum cut gives.
    - For each two units of a net: they are on one device or on two. On two, each accelerator has at least the load of the
      cheapest set that contains one of the units and not the other.
    """
    if not problem.units:
        return 0
    cuts, cpu = Cuts(problem), problem.unit_time_ns[:, 0].tolist()
    alone = [cuts.least([u], []) if ok else UNLIMITED_NS for u, ok in enumerate(problem.unit_supported.tolist())]
    bound: int = max(_work_ns(problem), *map(min, alone, cpu))
    nets = problem.nets
    pairs = {
        tuple(sorted((a, b)))
        for m in range(len(nets.cost_ns))
        for a, *others in [nets.unit[nets.start[m] : nets.start[m + 1]].tolist()]
        for b in others
    }
    for a, b in sorted(pairs):
        if min(alone[a], alone[b], cpu[a], cpu[b]) == UNLIMITED_NS:
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
    """The load if units could be divided and copies were free. CPUs take the units that they slow down least."""
    cpu, accelerator = problem.unit_time_ns[problem.unit_supported].T
    order = np.argsort(cpu / np.maximum(1e-9, accelerator), kind="stable")
    done = np.append(0, np.cumsum(cpu[order])), np.append(0, np.cumsum(accelerator[order]))
    low, high = 0, int(accelerator.sum())
    while low < high:
        load = (low + high) // 2
        on_accelerators = done[1][-1] - np.interp(problem.cpus * load, *done)
        low, high = (low, load) if on_accelerators <= problem.accelerators * load else (load + 1, high)
    return max(0, low - 1)  # minus a nanosecond for rounding


def packing_bound_ns(problem: SplitProblem, at_most_ns: int, *, seconds: float, seed: int) -> int:
    """A lower bound on the max load, from packing units into devices with free copies and unlimited memory.

    Args:
        problem: the problem.
        at_most_ns: the max load of a known split.
        seconds: time limit of the constraint solver.
        seed: of the constraint solver.
    """
    from placer.solvers.primitives.loaded_ortools import cp_model

    # Times are in the largest unit that divides them all: those of published layers are whole microseconds.
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
    solver: Any = cp_solver(seconds=seconds, seed=seed, workers=WORKERS, symmetry_level=4)
    cp_search(solver, model)
    least: int = math.ceil(solver.best_objective_bound - 0.5)
    return grain * max(0, least)


class Cuts:
    """The least load of an accelerator that has some units and lacks others, as a minimum cut."""

    def __init__(self, problem: SplitProblem) -> None:
        units, nets = problem.units, problem.nets
        self._bytes, self._limit = problem.unit_bytes, problem.memory_limit_bytes
        self._source, self._sink = units, units + 1
        tail, head = list(range(units)), [self._sink] * units
        capacity = problem.unit_time_ns[:, 1].tolist()
        for m, cost in enumerate(nets.cost_ns.tolist()):
            members = nets.unit[nets.start[m] : nets.start[m + 1]].tolist()
            net_in, net_out = units + 2 + 2 * m, units + 3 + 2 * m
            tail += [net_in] + members + [net_out] * len(members)
            head += [net_out] + [net_in] * len(members) + members
            capacity += [cost] + [UNLIMITED_NS] * 2 * len(members)
        self._arcs: tuple[Ints, Ints, Ints] = (np.array(tail), np.array(head), np.array(capacity, np.int64))

    def least(self, inside: list[int], outside: list[int]) -> int:
        """The least load of an accelerator with the units ``inside`` and without those ``outside``; memory is not limited."""
        return self._cut(inside, outside)[0]

    def least_that_fits(self, inside: list[int], outside: list[int]) -> tuple[int, Bools]:
        """A lower bound on that least load within the memory limit, and [U], a set that fits and comes close to it.

        ``inside`` itself must fit. This is a Lagrangian bound: each unit pays a price for its bytes, and the price of the whole
        limit is subtracted. For a fixed set that is a straight line over the price. The next price is where the line of the last
        set that fits and the line of the last set that does not fit meet.
        """
        bound, chosen = self._cut(inside, outside)
        limit, too_large = self._limit, (bound, self._bytes[chosen].sum())
        if too_large[1] <= limit:
            return bound, chosen
        load, fitting = self._cut(inside, [u for u in range(len(self._bytes)) if u not in {*inside}])
        fits = (load, self._bytes[fitting].sum())
        for _ in range(MAX_PRICES):
            price = (fits[0] - too_large[0]) / (too_large[1] - fits[1])
            memory_price = np.floor(price * self._bytes).astype(np.int64)
            priced_load, chosen = self._cut(inside, outside, memory_price)
            bound = max(bound, priced_load - math.floor(price * limit) - 1)  # minus a nanosecond for rounding
            line = priced_load - int(memory_price[chosen].sum()), self._bytes[chosen].sum()
            if line in (too_large, fits):
                break
            if line[1] > limit:
                too_large = line
            else:
                fits, fitting = line, chosen
        return bound, fitting

    def _cut(self, inside: list[int], outside: list[int], memory_price: Ints | None = None) -> tuple[int, Bools]:
        """The least load, with a price [U] for each unit added, and [U], the set of units that has it."""
        tail, head, capacity = self._arcs
        units = len(self._bytes)
        if memory_price is not None:
            capacity = capacity.copy()
            capacity[:units] += memory_price
        least, side = least_cut(
            np.append(tail, [self._source] * len(inside) + outside),
            np.append(head, inside + [self._sink] * len(outside)),
            np.append(capacity, [UNLIMITED_NS] * (len(inside) + len(outside))),
            source=self._source,
            sink=self._sink,
            nodes=self._sink + 1,
        )
        return least, side[:units]
