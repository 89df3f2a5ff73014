"""Multilevel simulated annealing on the max load: units joined by heavy nets move together first, then one by one.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, 1983; G. Karypis, R. Aggarwal, V. Kumar,
S. Shekhar, Multilevel hypergraph partitioning, 1997.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.grouping import grouped
from placer.research.splits.problem import SplitProblem, loads_ns
from placer.solvers.primitives.metropolis import temperature_at

NORM = 8
"""Loads are compared by the norm of this power. The busiest devices dominate it, but the others count too."""
END_TEMPERATURE = 0.02
"""The last temperature as a share of the first. A temperature is a relative change of the norm."""
RANDOM_START_TEMPERATURE, GOOD_START_TEMPERATURE = 0.1, 0.006
"""The first temperature from a random split, and from a good one."""
NEIGHBOUR_MOVES = 0.8
"""The share of moves that go to the device of a neighbour."""
MAX_JOINING_UNITS = 8
"""Nets of more units join none when levels are made."""
MAX_LEVEL_RATIO = 0.95
"""A level is used if it has at most this share of the units of the level before."""


def multilevel(problem: SplitProblem, *, moves: int, deadline: float, seed: int) -> Ints:
    """[U]: a random split, annealed on the coarsest level and then on each finer one.

    Args:
        problem: the problem, which is the finest level.
        moves: number of moves on each level.
        deadline: the `time.perf_counter` value at which the search stops in any case.
        seed: decides which units are joined, how many levels there are, and every move.
    """
    rng = random.Random(seed)
    share = rng.choice((0.15, 0.25, 0.4)) / problem.accelerators
    heaviest = share * int(problem.unit_time_ns[:, 1].sum())
    min_units = problem.accelerators * rng.choice((4, 6, 10))
    levels, joined = [problem], []
    while levels[-1].units > min_units:
        unit = _matching(levels[-1], heaviest, rng)
        coarser = merged(levels[-1], unit)
        if coarser.units > MAX_LEVEL_RATIO * levels[-1].units:
            break
        levels.append(coarser)
        joined.append(unit)
    supported = levels[-1].unit_supported.tolist()
    start = [rng.randrange(problem.accelerators) if ok else problem.accelerators for ok in supported]
    device = anneal(
        levels[-1], np.array(start), moves=moves, deadline=deadline, seed=seed, start_temperature=RANDOM_START_TEMPERATURE
    )
    for level, unit in zip(levels[-2::-1], joined[::-1], strict=True):
        device = anneal(level, device[unit], moves=moves, deadline=deadline, seed=seed, start_temperature=GOOD_START_TEMPERATURE)
    return device


def merged(problem: SplitProblem, unit: Ints) -> SplitProblem:
    """The problem in which each unit u is part of the new unit ``unit[u]``, numbered from 0."""
    count = int(unit.max(initial=-1)) + 1
    nbytes, supported = np.zeros(count, np.int64), np.ones(count, np.bool_)
    np.add.at(nbytes, unit, problem.unit_bytes)
    np.logical_and.at(supported, unit, problem.unit_supported)
    return replace(problem, op_unit=unit[problem.op_unit], unit_bytes=nbytes, unit_supported=supported)


def _matching(problem: SplitProblem, heaviest_ns: float, rng: random.Random) -> Ints:
    """[U]: the new unit of each unit. Units that heavy nets join are paired, in random order and with random weights."""
    weights: list[dict[int, float]] = [{} for _ in range(problem.units)]
    for cost, net in _members(problem):
        if len(net) <= MAX_JOINING_UNITS:
            for a in net:
                for b in net:
                    if a != b:
                        weights[a][b] = weights[a].get(b, 0.0) + cost / (len(net) - 1)
    time_ns, nbytes = problem.unit_time_ns[:, 1].tolist(), problem.unit_bytes.tolist()
    partner = list(range(problem.units))
    order = list(range(problem.units))
    rng.shuffle(order)
    free = [True] * problem.units
    for a in order:
        if not free[a]:
            continue
        best, chosen = -1.0, a
        for b, weight in weights[a].items():
            if free[b] and time_ns[a] + time_ns[b] <= heaviest_ns and nbytes[a] + nbytes[b] <= problem.memory_limit_bytes:
                value = weight * rng.uniform(0.7, 1.3) / (1 + 4 * time_ns[a] * time_ns[b] / heaviest_ns**2)
                if value > best:
                    best, chosen = value, b
        free[a] = free[chosen] = False
        partner[chosen] = a
    return np.unique(partner, return_inverse=True)[1]


def _members(problem: SplitProblem) -> list[tuple[int, list[int]]]:
    """The cost and the units of each net (see `Nets`: a tensor with the units that make and use it)."""
    nets = problem.nets
    units = np.split(nets.unit, nets.start[1:-1]) if len(nets.cost_ns) else []
    return [(cost, unit.tolist()) for cost, unit in zip(nets.cost_ns.tolist(), units, strict=True)]


def anneal(problem: SplitProblem, start: Ints, *, moves: int, deadline: float, seed: int, start_temperature: float) -> Ints:
    """[U]: the split of the least max load on the way from ``start``. Moves that exceed the memory limit are not made."""
    rng = random.Random(seed)
    k, devices, units = problem.accelerators, problem.devices, problem.units
    members = _members(problem)
    nets: list[list[tuple[int, int, int]]] = [
        [] for _ in range(units)
    ]  # of each unit, for each net: start in `count`, cost, size
    neighbours: list[dict[int, None]] = [{} for _ in range(units)]
    device: list[int] = start.tolist()
    count = [0] * (len(members) * devices)  # of each net and device: the units of the net that are there
    for m, (cost, net) in enumerate(members):
        for unit in net:
            nets[unit].append((m * devices, cost, len(net)))
            neighbours[unit].update(dict.fromkeys(net))
            count[m * devices + device[unit]] += 1
    others = [[b for b in neighbours[a] if b != a] for a in range(units)]
    on_cpu, on_accelerator = problem.unit_time_ns[:, 0].tolist(), problem.unit_time_ns[:, 1].tolist()
    supported, nbytes, limit = problem.unit_supported.tolist(), problem.unit_bytes.tolist(), problem.memory_limit_bytes
    held = [sum(nbytes[u] for u in members) for members in grouped(start, devices)]
    load: list[int] = loads_ns(problem, start).tolist()
    best_load, best = max(load), list(device)
    scale = max(1, best_load)
    power = [(x / scale) ** NORM for x in load]
    total = sum(power)
    draw = rng.random
    sharpness = 0.0
    for move in range(moves if units else 0):
        if move % 512 == 0:
            if time.perf_counter() > deadline:
                break
            sharpness = 1 / temperature_at(move / moves, NORM * start_temperature, END_TEMPERATURE)
            total = sum(power)
        unit = int(draw() * units)
        here = device[unit]
        to = (
            device[others[unit][int(draw() * len(others[unit]))]]
            if others[unit] and draw() < NEIGHBOUR_MOVES
            else int(draw() * devices)
        )
        if to == here:
            continue
        load_here, load_to = load[here], load[to]
        if here < k:
            load_here -= on_accelerator[unit]
            for at, cost, size in nets[unit]:
                inside = count[at + here]
                if inside == size:
                    load_here += cost
                elif inside == 1:
                    load_here -= cost
        else:
            load_here -= on_cpu[unit]
        if to < k:
            if held[to] + nbytes[unit] > limit or not supported[unit]:
                continue
            load_to += on_accelerator[unit]
            for at, cost, size in nets[unit]:
                inside = count[at + to]
                if inside == 0:
                    load_to += cost
                elif inside == size - 1:
                    load_to -= cost
        else:
            load_to += on_cpu[unit]
        power_here, power_to = (load_here / scale) ** NORM, (load_to / scale) ** NORM
        new_total = total - power[here] - power[to] + power_here + power_to
        if new_total > total and draw() > (total / new_total) ** sharpness:
            continue
        for at, _, _ in nets[unit]:
            count[at + here] -= 1
            count[at + to] += 1
        device[unit] = to
        load[here], load[to], power[here], power[to], total = load_here, load_to, power_here, power_to, new_total
        held[here] -= nbytes[unit]
        held[to] += nbytes[unit]
        if load_here < best_load and load_to < best_load and (busiest := max(load)) < best_load:
            best_load, best = busiest, list(device)
    return np.array(best, np.int64)
