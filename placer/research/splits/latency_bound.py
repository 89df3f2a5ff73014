"""Lower bounds on the latency of every split, from single paths through the graph."""

from __future__ import annotations

import time

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.research.splits.bound import UNLIMITED_NS, Cuts
from placer.research.splits.problem import SplitProblem


def shortest_path_ns(problem: SplitProblem) -> int:
    """A lower bound: the longest path in ns, with each op where it is fastest and copies free."""
    return int(_ends_ns(problem, _least_ns(problem)).max(initial=0))


def pieces_of_path(problem: SplitProblem, *, time_limit_s: float) -> tuple[int, Ints]:
    """A lower bound in ns from the path that is longest on CPUs, and, [U], a split that comes from it.

    An accelerator runs once, so its part of the path is one contiguous piece. The ops of the piece are done when all work of the
    accelerator is done. Its load is at least the load of the cheapest set of units that contains the piece and not the rest of
    the path; a minimum cut gives this set. A dynamic programme chooses the best pieces: at most one for each accelerator, each
    within the memory limit. The loads of chosen pieces are then bounded by the cheapest sets that fit, and the programme is
    repeated until it chooses pieces with such bounds only. When the time is over, the work of the piece replaces the cut.

    In the split, accelerators may wait for each other in a circle.
    """
    deadline = time.perf_counter() + time_limit_s
    path = _longest_path(problem)
    cuts, unit = Cuts(problem), problem.op_unit[path].tolist()
    cpu, work = problem.op_time_ns[path].T.tolist()
    sets = _pieces(problem, unit)
    load = {
        (i, j): cuts.least(sorted(piece), sorted({*unit} - piece)) if time.perf_counter() < deadline else sum(work[i:j])
        for (i, j), piece in sets.items()
    }
    fitting: dict[tuple[int, int], Bools] = {}
    while True:
        least, chosen = _chosen(cpu, load, problem.accelerators)
        if time.perf_counter() > deadline or not (unbounded := [piece for piece in chosen if piece not in fitting]):
            break
        for piece in unbounded:
            bound, fitting[piece] = cuts.least_that_fits(sorted(sets[piece]), sorted({*unit} - sets[piece]))
            load[piece] = max(load[piece], bound)
    device = np.full(problem.units, problem.accelerators)
    for d, piece in enumerate(chosen):
        if piece in fitting:
            device[fitting[piece] & problem.unit_supported & (device == problem.accelerators)] = d
    return least, device


def _pieces(problem: SplitProblem, unit: list[int]) -> dict[tuple[int, int], set[int]]:
    """By (begin, end): the units of each piece of a path that an accelerator can have. ``unit`` has the unit of each op of it."""
    last = {u: k for k, u in enumerate(unit)}
    pieces = {}
    for j in range(1, len(unit) + 1):
        piece: set[int] = set()
        for i in range(j - 1, -1, -1):
            if last[unit[i]] >= j or not problem.unit_supported[unit[i]]:
                break
            piece.add(unit[i])
            if problem.unit_bytes[[*piece]].sum() > problem.memory_limit_bytes:
                break
            if not piece & {*unit[:i]}:
                pieces[i, j] = piece.copy()
    return pieces


def _chosen(cpu: list[int], load: dict[tuple[int, int], int], accelerators: int) -> tuple[int, list[tuple[int, int]]]:
    """The least time of a path, given the times of its ops on CPUs and of its pieces on accelerators; and the pieces chosen."""
    least = np.full((accelerators + 1, len(cpu) + 1), UNLIMITED_NS)  # [at most so many pieces, first ops of the path]
    least[:, 0] = 0
    begin = np.full_like(least, -1)  # where the piece that ends there begins
    ending: dict[int, list[tuple[int, int]]] = {}
    for (i, j), ns in load.items():
        ending.setdefault(j, []).append((i, ns))
    for j in range(1, len(cpu) + 1):
        least[:, j] = least[:, j - 1] + cpu[j - 1]
        for i, ns in ending.get(j, ()):
            better = np.flatnonzero(least[:-1, i] + ns < least[1:, j]) + 1
            least[better, j] = least[better - 1, i] + ns
            begin[better, j] = i
    pieces, j, unused = [], len(cpu), accelerators
    while j:
        i = int(begin[unused, j])
        if i < 0:
            j -= 1
        else:
            pieces.append((i, j))
            j, unused = i, unused - 1
    return int(least[-1, -1]), pieces


def _least_ns(problem: SplitProblem) -> Ints:
    """[N]: the time of each op where it is fastest."""
    least = problem.op_time_ns[:, 0].copy()
    supported = problem.unit_supported[problem.op_unit]
    least[supported] = problem.op_time_ns[supported].min(axis=1)
    return least


def _ends_ns(problem: SplitProblem, time_ns: Ints) -> Ints:
    """[N]: when each op ends if it waits for its inputs only."""
    end = time_ns.tolist()
    order = np.argsort(problem.consumer_op, kind="stable")
    maker, user = problem.tensor_op[problem.consumer_tensor[order]].tolist(), problem.consumer_op[order].tolist()
    for a, b in zip(maker, user, strict=True):
        end[b] = max(end[b], end[a] + int(time_ns[b]))
    return np.array(end, np.int64)


def _longest_path(problem: SplitProblem) -> Ints:
    """The ops of the path that takes longest on CPUs, in order."""
    end = _ends_ns(problem, problem.op_time_ns[:, 0])
    if not len(end):
        return np.zeros(0, np.int64)
    makers, users = problem.tensor_op[problem.consumer_tensor], problem.consumer_op
    path = [int(np.argmax(end))]
    while len(before := makers[users == path[-1]]):
        path.append(int(before[np.argmax(end[before])]))
    return np.array(path[::-1])
