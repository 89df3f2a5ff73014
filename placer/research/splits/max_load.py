"""The least max load: contiguous splits, annealing on several levels, then parts and the whole by constraint programming."""

from __future__ import annotations

import random
import time

import numpy as np

from placer.problem.arrays import Ints
from placer.research.splits.annealing import WARM, anneal, multilevel
from placer.research.splits.bound import max_load_bound_ns, packing_bound_ns
from placer.research.splits.chain import chain_split
from placer.research.splits.model import resolved
from placer.research.splits.problem import SplitProblem, excess_bytes, loads_ns, max_load_ns
from placer.research.splits.solution import SplitSolution

FIRST, PACKED, PROBE, STARTS, POLISHED, PARTS = 0.05, 0.15, 0.2, 0.45, 0.5, 0.75
"""By which part of the time each ends: moves from the contiguous split, the bound by packing, a first attempt at a proof, the
other starts, moves from the best of them, and the search of parts. The whole program has the rest."""
MOVES = 300_000
"""On each level of a start."""
POLISH = 2_000_000
"""Moves from the best of the starts."""
PART_S = 6.0
"""For one part."""


def minimise_max_load(problem: SplitProblem, *, time_limit_s: float = 90.0, seed: int = 0) -> SplitSolution:
    """Searches until the bound is met or the time is over.

    Starts are a contiguous split and annealings from anywhere. The best is improved by deciding all units of two or three devices
    anew, the busiest among them. What remains of the time is for the whole program, from which a better bound may come.

    Sources: those of `chain_split`, `multilevel`; P. Shaw, Using constraint programming and local search methods to solve vehicle
    routing problems, 1998.
    """
    started = time.perf_counter()

    def ends(part: float) -> float:
        return started + part * time_limit_s

    bound = max_load_bound_ns(problem)
    best = chain_split(problem)
    everything = np.ones(problem.units, np.bool_)

    def value(device: Ints) -> int:
        return 1 << 60 if excess_bytes(problem, device) else max_load_ns(problem, device)

    def whole(seconds: float) -> None:
        nonlocal best, bound
        if seconds > 0 and value(best) > bound:
            found = resolved(
                problem, best, everything, list(range(problem.devices)), seconds=seconds, seed=seed, at_least_ns=bound
            )
            bound = max(bound, found.bound_ns)
            best = best if found.device is None else min(best, found.device, key=value)

    best = min(best, anneal(problem, best, moves=POLISH, ends=ends(FIRST), seed=seed, hot=WARM), key=value)
    if (left := ends(PACKED) - time.perf_counter()) > 0 and value(best) > bound:
        bound = max(bound, packing_bound_ns(problem, value(best), seconds=left, seed=seed))
    whole(ends(PROBE) - time.perf_counter())
    start = seed
    while time.perf_counter() < ends(STARTS) and value(best) > bound:
        best = min(best, multilevel(problem, moves=MOVES, ends=ends(STARTS), seed=start), key=value)
        start += 1
    if value(best) > bound:
        best = min(best, anneal(problem, best, moves=POLISH, ends=ends(POLISHED), seed=seed, hot=WARM), key=value)
        best = _by_parts(problem, best, bound, ends(PARTS), seed)
    whole(ends(1) - time.perf_counter())
    return SplitSolution.of(best, "max_load", value(best), bound, started)


def _by_parts(problem: SplitProblem, device: Ints, bound_ns: int, ends: float, seed: int) -> Ints:
    """Decides the units of the busiest device and of one or two others anew until no such part gets better."""
    rng = random.Random(seed)
    done: set[tuple[int, ...]] = set()
    parts = _parts(problem)
    while (left := ends - time.perf_counter()) > 0:
        load = loads_ns(problem, device)
        top = int(load.argmax())
        open_parts = [part for part in parts if top in part and part not in done]
        if not open_parts or load[top] <= bound_ns:
            break
        part = rng.choice(open_parts)
        found = resolved(problem, device, np.isin(device, part), list(part), seconds=min(left, PART_S), seed=seed)
        done.add(part)
        if found.device is not None and max_load_ns(problem, found.device) < load[top]:
            device, done = found.device, set()
    return device


def _parts(problem: SplitProblem) -> list[tuple[int, ...]]:
    devices = range(problem.devices)
    pairs = [(a, b) for a in devices for b in devices if a < b]
    return pairs + [(*pair, c) for pair in pairs for c in devices if c > pair[1]]
