"""Splits by simulated annealing on several levels: units joined by heavy nets move together first, then one by one.

S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, 1983; G. Karypis, R. Aggarwal, V. Kumar,
S. Shekhar, Multilevel hypergraph partitioning, 1997.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np

from placer.problem.arrays import Ints
from placer.research.splits.problem import SplitProblem, loads_ns
from placer.solvers.primitives.grouping import grouped

NORM = 8
"""Loads are judged by the norm of this power, which the busiest devices decide but not alone."""
COLD = 0.02
"""The last temperature, as a part of the first. Temperatures are relative changes of the norm."""
HOT, WARM = 0.1, 0.006
"""The first temperature of a start from anywhere, and of one from something good."""
NEAR = 0.8
"""Moves that go to where a neighbour is."""
LARGE_NET = 8
"""Nets of more units join none."""
SHRINKS = 0.95
"""A level is kept where it has at most this part of the units of the one before."""


def multilevel(problem: SplitProblem, *, moves: int, ends: float, seed: int) -> Ints:
    """[U]: a split annealed from anywhere on the coarsest level, then on each finer one.

    Args:
        moves: tried on each level.
        ends: the `time.perf_counter` at which it stops in any case.
        seed: decides what is joined, how far, and every move.
    """
    rng = random.Random(seed)
    share = rng.choice((0.15, 0.25, 0.4)) / problem.accelerators
    heaviest = share * int(problem.unit_time_ns[:, 1].sum())
    least = problem.accelerators * rng.choice((4, 6, 10))
    levels, joined = [problem], []
    while levels[-1].units > least:
        unit = _matching(levels[-1], heaviest, rng)
        coarser = merged(levels[-1], unit)
        if coarser.units > SHRINKS * levels[-1].units:
            break
        levels.append(coarser)
        joined.append(unit)
    supported = levels[-1].unit_supported.tolist()
    start = [rng.randrange(problem.accelerators) if ok else problem.accelerators for ok in supported]
    device = anneal(levels[-1], np.array(start), moves=moves, ends=ends, seed=seed, hot=HOT)
    for level, unit in zip(levels[-2::-1], joined[::-1], strict=True):
        device = anneal(level, device[unit], moves=moves, ends=ends, seed=seed, hot=WARM)
    return device


def merged(problem: SplitProblem, unit: Ints) -> SplitProblem:
    """The problem with unit u part of unit `unit[u]`, numbered from 0."""
    count = int(unit.max(initial=-1)) + 1
    nbytes, supported = np.zeros(count, np.int64), np.ones(count, np.bool_)
    np.add.at(nbytes, unit, problem.unit_bytes)
    np.logical_and.at(supported, unit, problem.unit_supported)
    return replace(problem, op_unit=unit[problem.op_unit], unit_bytes=nbytes, unit_supported=supported)


def _matching(problem: SplitProblem, heaviest_ns: float, rng: random.Random) -> Ints:
    """[U]: pairs of units that the heaviest nets join, as one; in random order, of about equal ones any."""
    near: list[dict[int, float]] = [{} for _ in range(problem.units)]
    for cost, net in _members(problem):
        if len(net) <= LARGE_NET:
            for a in net:
                for b in net:
                    if a != b:
                        near[a][b] = near[a].get(b, 0.0) + cost / (len(net) - 1)
    time_ns, nbytes = problem.unit_time_ns[:, 1].tolist(), problem.unit_bytes.tolist()
    partner = list(range(problem.units))
    order = list(range(problem.units))
    rng.shuffle(order)
    free = [True] * problem.units
    for a in order:
        if not free[a]:
            continue
        best, chosen = -1.0, a
        for b, weight in near[a].items():
            together = time_ns[a] + time_ns[b]
            if free[b] and together <= heaviest_ns and nbytes[a] + nbytes[b] <= problem.memory_limit_bytes:
                value = weight * rng.uniform(0.7, 1.3) / (1 + 4 * time_ns[a] * time_ns[b] / heaviest_ns**2)
                if value > best:
                    best, chosen = value, b
        free[a] = free[chosen] = False
        partner[chosen] = a
    return np.unique(partner, return_inverse=True)[1]


def _members(problem: SplitProblem) -> list[tuple[int, list[int]]]:
    """The cost and the units of each net."""
    nets = problem.nets
    units = np.split(nets.unit, nets.start[1:-1]) if len(nets.cost_ns) else []
    return [(cost, unit.tolist()) for cost, unit in zip(nets.cost_ns.tolist(), units, strict=True)]


def anneal(problem: SplitProblem, start: Ints, *, moves: int, ends: float, seed: int, hot: float) -> Ints:
    """[U]: the split of the least max load among those on the way from `start`; moves that miss the memory limit are not made."""
    rng = random.Random(seed)
    k, devices, units = problem.accelerators, problem.devices, problem.units
    members = _members(problem)
    nets: list[list[tuple[int, int, int]]] = [[] for _ in range(units)]  # of each unit: where a net's counts begin, cost, size
    near: list[dict[int, None]] = [{} for _ in range(units)]
    device: list[int] = start.tolist()
    count = [0] * (len(members) * devices)  # of each net and device: units there
    for m, (cost, net) in enumerate(members):
        for unit in net:
            nets[unit].append((m * devices, cost, len(net)))
            near[unit].update(dict.fromkeys(net))
            count[m * devices + device[unit]] += 1
    around = [[b for b in near[a] if b != a] for a in range(units)]
    on_cpu, on_accelerator = problem.unit_time_ns[:, 0].tolist(), problem.unit_time_ns[:, 1].tolist()
    supported, nbytes, limit = problem.unit_supported.tolist(), problem.unit_bytes.tolist(), problem.memory_limit_bytes
    held = [sum(nbytes[u] for u in there) for there in grouped(start, devices)]
    load: list[int] = loads_ns(problem, start).tolist()
    least, best = max(load), list(device)
    scale = max(1, least)
    power = [(x / scale) ** NORM for x in load]
    total = sum(power)
    draw = rng.random
    sharpness = 0.0
    for move in range(moves if units else 0):
        if move % 512 == 0:
            if time.perf_counter() > ends:
                break
            sharpness = 1 / (NORM * hot * COLD ** (move / moves))
            total = sum(power)
        unit = int(draw() * units)
        here = device[unit]
        to = device[around[unit][int(draw() * len(around[unit]))]] if around[unit] and draw() < NEAR else int(draw() * devices)
        if to == here:
            continue
        left, joined = load[here], load[to]
        if here < k:
            left -= on_accelerator[unit]
            for at, cost, size in nets[unit]:
                there = count[at + here]
                if there == size:
                    left += cost
                elif there == 1:
                    left -= cost
        else:
            left -= on_cpu[unit]
        if to < k:
            if held[to] + nbytes[unit] > limit or not supported[unit]:
                continue
            joined += on_accelerator[unit]
            for at, cost, size in nets[unit]:
                there = count[at + to]
                if there == 0:
                    joined += cost
                elif there == size - 1:
                    joined -= cost
        else:
            joined += on_cpu[unit]
        power_left, power_joined = (left / scale) ** NORM, (joined / scale) ** NORM
        new = total - power[here] - power[to] + power_left + power_joined
        if new > total and draw() > (total / new) ** sharpness:
            continue
        for at, _, _ in nets[unit]:
            count[at + here] -= 1
            count[at + to] += 1
        device[unit] = to
        load[here], load[to], power[here], power[to], total = left, joined, power_left, power_joined, new
        held[here] -= nbytes[unit]
        held[to] += nbytes[unit]
        if left < least and joined < least and (most := max(load)) < least:
            least, best = most, list(device)
    return np.array(best, np.int64)
