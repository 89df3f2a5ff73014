"""Minimises the max load: contiguous splits, multilevel annealing, then constraint programming over parts and the whole."""

from __future__ import annotations

import random
import time

import numpy as np

from placer.problem.arrays import Ints
from placer.research.splits.annealing import GOOD_START_TEMPERATURE, anneal, multilevel
from placer.research.splits.bound import max_load_bound_ns, packing_bound_ns
from placer.research.splits.chain import chain_split
from placer.research.splits.model import decide_anew
from placer.research.splits.problem import SplitProblem, excess_bytes, loads_ns, max_load_ns
from placer.research.splits.solution import SplitSolution

CONTIGUOUS_END, PACKING_END, PROOF_END, STARTS_END, POLISH_END, PARTS_END = 0.05, 0.15, 0.2, 0.45, 0.5, 0.75
"""Shares of the time limit at which the phases end, in order: moves from the contiguous split; the packing bound; a first attempt
at a proof; annealing from random starts; moves from the best start; the search of parts. The rest of the time is for the whole
model."""
LEVEL_MOVES = 300_000
"""Moves on each level of a random start."""
POLISH_MOVES = 2_000_000
"""Moves from the contiguous split, and from the best start."""
PART_LIMIT_S = 6.0
"""Time limit for one part."""


def minimise_max_load(problem: SplitProblem, *, time_limit_s: float = 90.0, seed: int = 0) -> SplitSolution:
    """Searches for the split of the least max load until the bound proves one or the time is over.

    The search starts from a contiguous split and from random splits that are annealed. The best is improved by deciding all units
    of two or three devices anew, one of them the busiest. The rest of the time is for a model of the whole problem, which may
    also raise the bound.

    Sources: those of `chain_split` and `multilevel`; P. Shaw, Using constraint programming and local search methods to solve
    vehicle routing problems, 1998.
    """
    started = time.perf_counter()

    def end_of(share: float) -> float:
        return started + share * time_limit_s

    bound = max_load_bound_ns(problem)
    best = chain_split(problem)
    all_units = np.ones(problem.units, np.bool_)

    def value(device: Ints) -> int:
        return 1 << 60 if excess_bytes(problem, device) else max_load_ns(problem, device)

    def solve_whole(deadline: float) -> None:
        nonlocal best, bound
        seconds = deadline - time.perf_counter()
        if seconds > 0 and value(best) > bound:
            devices = list(range(problem.devices))
            answer = decide_anew(problem, best, all_units, devices, seconds=seconds, seed=seed, at_least_ns=bound)
            bound = max(bound, answer.bound_ns)
            best = best if answer.device is None else min(best, answer.device, key=value)

    def polish(deadline: float) -> Ints:
        return anneal(problem, best, moves=POLISH_MOVES, deadline=deadline, seed=seed, start_temperature=GOOD_START_TEMPERATURE)

    best = min(best, polish(end_of(CONTIGUOUS_END)), key=value)
    if (seconds := end_of(PACKING_END) - time.perf_counter()) > 0 and value(best) > bound:
        bound = max(bound, packing_bound_ns(problem, value(best), seconds=seconds, seed=seed))
    solve_whole(end_of(PROOF_END))
    start_seed = seed
    while time.perf_counter() < end_of(STARTS_END) and value(best) > bound:
        best = min(best, multilevel(problem, moves=LEVEL_MOVES, deadline=end_of(STARTS_END), seed=start_seed), key=value)
        start_seed += 1
    if value(best) > bound:
        best = min(best, polish(end_of(POLISH_END)), key=value)
        best = _decide_parts(problem, best, bound, end_of(PARTS_END), seed)
    solve_whole(end_of(1))
    return SplitSolution.of(best, "max_load", value(best), bound, started)


def _decide_parts(problem: SplitProblem, device: Ints, bound_ns: int, deadline: float, seed: int) -> Ints:
    """Decides the units of the busiest device and of one or two others anew, until no such part gets better."""
    rng = random.Random(seed)
    tried: set[tuple[int, ...]] = set()
    parts = _parts(problem)
    while (seconds := deadline - time.perf_counter()) > 0:
        load = loads_ns(problem, device)
        busiest = int(load.argmax())
        untried = [part for part in parts if busiest in part and part not in tried]
        if not untried or load[busiest] <= bound_ns:
            break
        part = rng.choice(untried)
        answer = decide_anew(problem, device, np.isin(device, part), list(part), seconds=min(seconds, PART_LIMIT_S), seed=seed)
        tried.add(part)
        if answer.device is not None and max_load_ns(problem, answer.device) < load[busiest]:
            device, tried = answer.device, set()
    return device


def _parts(problem: SplitProblem) -> list[tuple[int, ...]]:
    """All pairs and triples of devices."""
    devices = range(problem.devices)
    pairs = [(a, b) for a in devices for b in devices if a < b]
    return pairs + [(*pair, c) for pair in pairs for c in devices if c > pair[1]]
