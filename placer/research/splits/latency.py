"""Minimises the latency: contiguous splits, annealing, then constraint programming over parts and the whole."""

from __future__ import annotations

import random
import time

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.chain import IMPOSSIBLE_NS, piece_loads_ns, unit_order
from placer.research.splits.latency_annealing import anneal
from placer.research.splits.latency_bound import pieces_of_path, shortest_path_ns
from placer.research.splits.latency_model import decide_anew
from placer.research.splits.problem import SplitProblem, excess_bytes, latency_ns
from placer.research.splits.solution import SplitSolution
from placer.solvers.primitives.ideals import contained, ideals

MAX_IDEALS = (1_000, 2_000)
"""Sizes of the dynamic programmes over ideals, in turn, until one has all ideals."""
ROUND_MOVES = 50_000
"""Moves of one round of annealing."""
START_TEMPERATURES = (0.003, 0.1, 0.02, 0.3)
"""First temperatures of the rounds, in turn, as shares of the latency."""
BOUND_SHARE = 0.15
"""The share of the time limit for the bound, which gives a first split too."""
PROOF_END, ANNEALING_END, PARTS_END = 0.2, 0.65, 0.85
"""The share of the time limit at which each phase ends: a first attempt at a proof, annealing, and the search of parts. The whole
model has the rest."""
PART_LIMIT_S = 8.0
"""Time limit for one part."""
MAX_PART_UNITS = 60
"""The most units of a part around one unit."""


def minimise_latency(problem: SplitProblem, *, time_limit_s: float = 120.0, seed: int = 0) -> SplitSolution:
    """Searches for the split of the least latency until the bound proves one or the time is over.

    Sources: J. Tarnawski et al., NeurIPS 2020, for the setting and contiguous splits; P. Shaw, Using constraint programming and
    local search methods to solve vehicle routing problems, 1998.
    """
    started = time.perf_counter()

    def end_of(share: float) -> float:
        return started + share * time_limit_s

    def value(device: Ints) -> int:
        latency = None if excess_bytes(problem, device) else latency_ns(problem, device)
        return 1 << 60 if latency is None else latency

    bound, from_bound = pieces_of_path(problem, time_limit_s=BOUND_SHARE * time_limit_s)
    bound = max(bound, shortest_path_ns(problem))
    best = min(np.full(problem.units, problem.accelerators), from_bound, key=value)
    for max_ideals in MAX_IDEALS:
        family, exact = ideals(problem.units, unit_order(problem), max_ideals)
        best = min(best, chained(problem, family), key=value)
        if exact or time.perf_counter() > end_of(ANNEALING_END / 4):
            break

    def solve_whole(deadline: float) -> None:
        nonlocal best, bound
        seconds = deadline - time.perf_counter()
        if seconds > 0 and value(best) > bound:
            answer = decide_anew(problem, best, np.ones(problem.units, np.bool_), seconds=seconds, seed=seed)
            bound = max(bound, answer.bound_ns)
            best = best if answer.device is None else min(best, answer.device, key=value)

    solve_whole(end_of(PROOF_END))
    annealing_end, turn = end_of(ANNEALING_END), 0
    while time.perf_counter() < annealing_end and value(best) > bound:
        temperature = START_TEMPERATURES[turn % len(START_TEMPERATURES)]
        annealed = anneal(
            problem, best, moves=ROUND_MOVES, deadline=annealing_end, seed=seed + turn, start_temperature=temperature
        )
        best = min(best, annealed, key=value)
        turn += 1
    rng = random.Random(seed)
    while (seconds := end_of(PARTS_END) - time.perf_counter()) > 0 and value(best) > bound:
        answer = decide_anew(problem, best, _part(problem, best, rng), seconds=min(seconds, PART_LIMIT_S), seed=seed)
        best = best if answer.device is None else min(best, answer.device, key=value)
    solve_whole(end_of(1))
    return SplitSolution.of(best, "latency", value(best), bound, started)


def chained(problem: SplitProblem, family: Bools) -> Ints:
    """[U]: the split of the least latency if contiguous pieces on accelerators, with CPU work between them, run in sequence.

    Pieces that do not wait for each other are counted in sequence too, so the latency of the split may be lower.

    Args:
        problem: the problem.
        family: [I, U]: ideals, ascending; the first is empty, the last has all units.
    """
    k, count = problem.accelerators, len(family)
    on_accelerator, _ = piece_loads_ns(problem, family)
    np.fill_diagonal(on_accelerator, IMPOSSIBLE_NS)
    on_cpus = np.where(contained(family), _cpu_paths_ns(problem, family), IMPOSSIBLE_NS)
    every = np.arange(count)
    reached = np.where(every == 0, 0, IMPOSSIBLE_NS)
    origins: list[tuple[Ints, Ints]] = []  # by number of pieces: the ideals before the last piece and before the CPU work
    totals = []
    before_piece = every
    for _ in range(k + 1):
        through = reached[:, None] + on_cpus
        before_cpus = through.argmin(axis=0)
        waits = through[before_cpus, every]
        origins.append((before_piece, before_cpus))
        totals.append(waits[-1])
        through = waits[:, None] + on_accelerator
        before_piece = through.argmin(axis=0)
        reached = through[before_piece, every]
    used = int(np.argmin(totals))
    device, j = np.full(problem.units, k), count - 1
    for a in range(used, 0, -1):
        before_piece, before_cpus = origins[a]
        j = int(before_cpus[j])
        i = int(before_piece[j])
        device[family[j] & ~family[i]] = a - 1
        j = i
    return device


def _cpu_paths_ns(problem: SplitProblem, family: Bools) -> Ints:
    """[I, I]: the longest path on CPUs through the ops in ideal j but not in ideal i."""
    end = np.zeros((problem.ops, len(family)), np.int64)  # when each op ends, over the ops that are not in ideal i
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
    """[U]: the units of two accelerators, or the units around a random one."""
    used = sorted({d for d in device.tolist() if d < problem.accelerators})
    if len(used) > 1 and rng.random() < 0.5:
        at = rng.randrange(len(used) - 1)
        other = used[at + 1] if rng.random() < 0.5 else rng.choice([d for d in used if d != used[at]])
        return np.isin(device, [used[at], other])
    part = np.zeros(problem.units, np.bool_)
    part[rng.randrange(problem.units)] = True
    nets = problem.nets
    net = np.repeat(np.arange(len(nets.cost_ns)), np.diff(nets.start))
    while part.sum() < MAX_PART_UNITS:
        touched = np.zeros(len(nets.cost_ns), np.bool_)
        touched[net[part[nets.unit]]] = True
        added = [u for u in dict.fromkeys(nets.unit[touched[net]].tolist()) if not part[u]]
        if not added:
            break
        rng.shuffle(added)
        part[added[: MAX_PART_UNITS - int(part.sum())]] = True
    return part
