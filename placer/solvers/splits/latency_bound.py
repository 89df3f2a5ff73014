"""No split has a lower latency than this."""

from __future__ import annotations

import time

import numpy as np

from placer.problem.problem import Ints
from placer.problem.split import SplitProblem
from placer.solvers.splits.bound import UNLIMITED, Cuts


def latency_bound_ns(problem: SplitProblem, *, time_limit_s: float) -> int:
    """The larger of the two bounds below."""
    return max(shortest_path_ns(problem), pieces_of_path_ns(problem, time_limit_s=time_limit_s))


def shortest_path_ns(problem: SplitProblem) -> int:
    """The longest path, each op where it takes least, copies free."""
    return int(_ends_ns(problem, _least_ns(problem)).max(initial=0))


def pieces_of_path_ns(problem: SplitProblem, *, time_limit_s: float) -> int:
    """How fast accelerators can make the path that is longest on CPUs.

    An accelerator runs once, so that what it has of a path is one piece of it, whose ops are all done when everything on that
    accelerator is. That has no less to do than the cheapest set of units with the piece in it and the rest of the path out: the
    time of its units and of the copies in and out, a minimum cut. The best pieces, at most as many as there are accelerators,
    none too large for one, are found by a dynamic programme. When the time is over, the work on the path stands for a cut.
    """
    ends = time.perf_counter() + time_limit_s
    path = _longest_path(problem)
    cuts, unit = Cuts(problem), problem.op_unit[path].tolist()
    cpu, work = problem.op_time_ns[path].T.tolist()
    inside_until = {u: k for k, u in enumerate(unit)}  # the last place on the path of each unit
    least = np.full((problem.accelerators + 1, len(path) + 1), UNLIMITED)  # by pieces at most, of the path up to an op
    least[:, 0] = 0
    for j in range(len(path)):
        least[:, j + 1] = least[:, j] + cpu[j]
        piece: set[int] = set()
        nbytes = done = 0
        for i in range(j, -1, -1):
            if inside_until[unit[i]] > j or not problem.unit_supported[unit[i]]:
                break
            if unit[i] not in piece:
                piece.add(unit[i])
                nbytes += int(problem.unit_bytes[unit[i]])
            done += work[i]
            if nbytes > problem.memory_limit_bytes:
                break
            rest = set(unit) - piece
            if not piece & set(unit[:i]):
                load = cuts.least(sorted(piece), sorted(rest)) if time.perf_counter() < ends else done
                least[1:, j + 1] = np.minimum(least[1:, j + 1], least[:-1, i] + load)
    return int(least[-1, -1])


def _least_ns(problem: SplitProblem) -> Ints:
    """[N]: each op where it takes least."""
    least = problem.op_time_ns[:, 0].copy()
    supported = problem.unit_supported[problem.op_unit]
    least[supported] = problem.op_time_ns[supported].min(axis=1)
    return least


def _ends_ns(problem: SplitProblem, time_ns: Ints) -> Ints:
    """[N]: when each op ends if nothing but its inputs makes it wait."""
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
