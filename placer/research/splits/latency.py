"""The least latency: contiguous splits, then moves of units and of connected ones, then parts by constraint programming."""

from __future__ import annotations

import random
import time

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.chain import NEVER, piece_loads_ns, unit_order
from placer.research.splits.latency_annealing import anneal
from placer.research.splits.latency_bound import pieces_of_path, shortest_path_ns
from placer.research.splits.latency_model import resolved
from placer.research.splits.problem import SplitProblem, excess_bytes, latency_ns
from placer.research.splits.solution import SplitSolution
from placer.solvers.primitives.ideals import contained, ideals

FAMILIES = (1_000, 2_000)
"""Ideals in the programmes; the first that is exact is the last."""
MOVES = 50_000
"""From one start at one temperature."""
HOT = (0.003, 0.1, 0.02, 0.3)
"""First temperatures, as parts of the latency; they take turns."""
BOUND = 0.15
"""The part of the time that the bound may take, which gives a first split too."""
PROBE, ANNEALED, PARTS = 0.2, 0.65, 0.85
"""By which part of the time each ends: a first attempt at a proof, moves, and the search of parts. The whole program has the
rest."""
PART_S = 8.0
LARGEST = 60
"""Units in a part that is no pair of accelerators."""


def minimise_latency(problem: SplitProblem, *, time_limit_s: float = 120.0, seed: int = 0) -> SplitSolution:
    """Searches until the bound is met or the time is over.

    Sources: J. Tarnawski et al., NeurIPS 2020, for the setting and contiguous splits; P. Shaw, Using constraint programming and
    local search methods to solve vehicle routing problems, 1998.
    """
    started = time.perf_counter()

    def ends(part: float) -> float:
        return started + part * time_limit_s

    def value(device: Ints) -> int:
        found = None if excess_bytes(problem, device) else latency_ns(problem, device)
        return 1 << 60 if found is None else found

    bound, near = pieces_of_path(problem, time_limit_s=BOUND * time_limit_s)
    bound = max(bound, shortest_path_ns(problem))
    best = min(np.full(problem.units, problem.accelerators), near, key=value)
    for most in FAMILIES:
        family, exact = ideals(problem.units, unit_order(problem), most)
        best = min(best, chained(problem, family), key=value)
        if exact or time.perf_counter() > ends(ANNEALED / 4):
            break

    def whole(seconds: float) -> None:
        nonlocal best, bound
        if seconds > 0 and value(best) > bound:
            found = resolved(problem, best, np.ones(problem.units, np.bool_), seconds=seconds, seed=seed)
            bound = max(bound, found.bound_ns)
            best = best if found.device is None else min(best, found.device, key=value)

    whole(ends(PROBE) - time.perf_counter())
    turn = 0
    while time.perf_counter() < ends(ANNEALED) and value(best) > bound:
        hot = HOT[turn % len(HOT)]
        best = min(best, anneal(problem, best, moves=MOVES, ends=ends(ANNEALED), seed=seed + turn, hot=hot), key=value)
        turn += 1
    rng = random.Random(seed)
    while (left := ends(PARTS) - time.perf_counter()) > 0 and value(best) > bound:
        found = resolved(problem, best, _part(problem, best, rng), seconds=min(left, PART_S), seed=seed)
        best = best if found.device is None else min(best, found.device, key=value)
    whole(ends(1) - time.perf_counter())
    return SplitSolution.of(best, "latency", value(best), bound, started)


def chained(problem: SplitProblem, family: Bools) -> Ints:
    """[U]: pieces on accelerators one after the other, with what lies between on CPUs, of the least latency so counted.

    Pieces of different accelerators that do not wait for each other count one after the other too, so the split may be better.
    """
    k, count = problem.accelerators, len(family)
    on_accelerator, _ = piece_loads_ns(problem, family)
    np.fill_diagonal(on_accelerator, NEVER)
    on_cpus = np.where(contained(family), _cpu_paths_ns(problem, family), NEVER)
    every = np.arange(count)
    reached = np.where(every == 0, 0, NEVER)
    came: list[tuple[Ints, Ints]] = []
    lasts = []
    before_piece = every
    for _ in range(k + 1):
        through = reached[:, None] + on_cpus
        before_cpus = through.argmin(axis=0)
        waits = through[before_cpus, every]
        came.append((before_piece, before_cpus))
        lasts.append(waits[-1])
        through = waits[:, None] + on_accelerator
        before_piece = through.argmin(axis=0)
        reached = through[before_piece, every]
    used = int(np.argmin(lasts))
    device, j = np.full(problem.units, k), count - 1
    for a in range(used, 0, -1):
        before_piece, before_cpus = came[a]
        j = int(before_cpus[j])
        i = int(before_piece[j])
        device[family[j] & ~family[i]] = a - 1
        j = i
    return device


def _cpu_paths_ns(problem: SplitProblem, family: Bools) -> Ints:
    """[I, I]: the longest path through the ops of ideal j that are not in ideal i, on CPUs."""
    end = np.zeros((problem.ops, len(family)), np.int64)  # of each op, over ops outside of ideal i
    outside = ~family[:, problem.op_unit].T
    order = np.argsort(problem.consumer_op, kind="stable")
    maker, user = problem.tensor_op[problem.consumer_tensor[order]], problem.consumer_op[order]
    first = np.searchsorted(user, np.arange(problem.ops + 1)).tolist()
    for op, time_ns in enumerate(problem.op_time_ns[:, 0].tolist()):
        starts = end[maker[first[op] : first[op + 1]]].max(axis=0, initial=0)
        end[op] = np.where(outside[op], starts + time_ns, 0)
    unit_end = np.zeros((problem.units, len(family)), np.int64)
    np.maximum.at(unit_end, problem.op_unit, end)
    return np.stack([(family * unit_end[:, i]).max(axis=1, initial=0) for i in range(len(family))])


def _part(problem: SplitProblem, device: Ints, rng: random.Random) -> Bools:
    """[U]: what two accelerators hold, or units around one."""
    used = sorted({d for d in device.tolist() if d < problem.accelerators})
    if len(used) > 1 and rng.random() < 0.5:
        at = rng.randrange(len(used) - 1)
        other = used[at + 1] if rng.random() < 0.5 else rng.choice([d for d in used if d != used[at]])
        return np.isin(device, [used[at], other])
    near = np.zeros(problem.units, np.bool_)
    near[rng.randrange(problem.units)] = True
    nets = problem.nets
    net = np.repeat(np.arange(len(nets.cost_ns)), np.diff(nets.start))
    while near.sum() < LARGEST:
        touched = np.zeros(len(nets.cost_ns), np.bool_)
        touched[net[near[nets.unit]]] = True
        added = [u for u in dict.fromkeys(nets.unit[touched[net]].tolist()) if not near[u]]
        if not added:
            break
        rng.shuffle(added)
        near[added[: LARGEST - int(near.sum())]] = True
    return near
