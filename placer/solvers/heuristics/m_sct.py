"""m-SCT: m-ETF in which a device waits for the favourite child of the op it ran last."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristic import Heuristic
from placer.solvers.heuristics.m_etf import BAECHI, EarliestStart, Queue
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, mean_copy_ns, mean_time_ns
from placer.solvers.primitives.or_tools import linear_optimum
from placer.solvers.sources import references

SCT = (
    "C. Hanen, A. Munier, An approximation algorithm for scheduling dependent tasks on m processors with small communication "
    "delays, IEEE Symposium on Emerging Technologies and Factory Automation (ETFA), 1995, https://hal.science/hal-01185825"
)

WINDOW_OPS = 1_000
"""Ops in one linear program. The simplex method takes about 0.2 s for so many; its time grows faster than their number."""
PROGRAM_OP_RUNS = 80
"""The work of a linear program for each of its ops, see `placer.common.clock.spend`."""
NS_PER_LP_UNIT = 1_000
"""The linear program counts microseconds: the tolerances of its solver are absolute."""


class _FavouriteChildFirst(EarliestStart):
    """The m-SCT algorithm; see `m_sct_schedule`."""

    def __init__(self, problem: PlacementProblem) -> None:
        super().__init__(problem)
        self._child = favourite_children(self.schedule)
        self._awaited = [-1] * problem.num_devices  # [D]: the favourite child of the op that a device ran last, or -1
        self._urgent = [Queue(partial(self.closed, d)) for d in self.devices]  # [D]: ops, by when their inputs are on all devices

    def add(self, op: int) -> None:
        super().add(op)
        devices = self.open_to[self.unit_of[op]]
        everywhere = max(self.schedule.ready(op, d) for d in devices)
        for d in devices:
            self._urgent[d].add(op, everywhere)

    def place(self, op: int, device: int, start: int) -> None:
        super().place(op, device, start)
        self._urgent[device].free = self.schedule.end[op]
        self._awaited[device] = self._child[op]

    def offer(self, device: int) -> tuple[int, int] | None:
        first, child = super().offer(device), self._awaited[device]
        if first is None or child < 0 or self.schedule.waits[child] or self.closed(device, child):
            return first
        if first[0] < max(self.schedule.end[self.schedule.producer[e]] for e in self.schedule.into[child]):
            return first  # the child is not ready by that time
        starts = {d: max(self.schedule.ready(child, d), self.queues[d].free) for d in self.open_to[self.unit_of[child]]}
        if starts[device] > min(starts.values()):
            return first
        urgent = self._urgent[device].first()
        return urgent if urgent is not None and urgent[0] <= starts[device] else (starts[device], child)


def favourite_children(schedule: Schedule) -> list[int]:
    """[N]: for each op the successor that should run next on its device, or -1; no op is the favourite child of two.

    By the linear program of Hanen and Munier (1995), solved for `WINDOW_OPS` consecutive ops at a time; no favourite child is in
    another window than its producer.
    """
    problem = schedule.problem
    time = mean_time_ns(problem) / NS_PER_LP_UNIT
    pair = np.array(schedule.producer, np.int64) * problem.num_ops + np.array(schedule.consumer, np.int64)
    pairs, pair_of = np.unique(pair, return_inverse=True)
    copy = np.zeros(len(pairs))
    np.maximum.at(copy, pair_of, mean_copy_ns(problem) / NS_PER_LP_UNIT)
    producer, consumer = np.divmod(pairs, problem.num_ops)
    favourite = np.full(problem.num_ops, -1)
    for begin in range(0, problem.num_ops, WINDOW_OPS):
        spend(PROGRAM_OP_RUNS * min(WINDOW_OPS, problem.num_ops - begin))
        inside = np.flatnonzero((producer >= begin) & (consumer < begin + WINDOW_OPS))
        saved = _copy_is_saved(time[begin : begin + WINDOW_OPS], producer[inside] - begin, consumer[inside] - begin, copy[inside])
        favourite[producer[inside[saved]]] = consumer[inside[saved]]
    children: list[int] = favourite.tolist()
    return children


def _copy_is_saved(time: Floats, producer: Ints, consumer: Ints, copy: Floats) -> Bools:
    """[E]: whether an edge saves more than half of its copy in the optimum of the linear program.

    The program minimises the makespan on an unlimited number of devices. The edges out of one op may save one copy together, and
    so may the edges into one op.
    """
    from placer.solvers.primitives.loaded_ortools import model_builder

    program = model_builder.Model()  # type: ignore[no-untyped-call]
    start = [program.new_num_var(0, math.inf, "") for _ in time]
    saved = [program.new_num_var(0, 1, "") for _ in copy]
    makespan = program.new_num_var(0, math.inf, "")
    sharing: dict[tuple[str, int], list[Any]] = {}
    for i, j, cost, part in zip(producer.tolist(), consumer.tolist(), copy.tolist(), saved, strict=True):
        program.add(start[j] - start[i] + cost * part >= time[i] + cost)
        sharing.setdefault(("out of", i), []).append(part)
        sharing.setdefault(("into", j), []).append(part)
    for parts in sharing.values():
        program.add(model_builder.LinearExpr.sum(parts) <= 1)
    for begin, duration in zip(start, time.tolist(), strict=True):
        program.add(makespan - begin >= duration)
    program.minimize(makespan)
    simplex = linear_optimum(program, "use_dual_simplex: true")  # twice as fast for this program
    if simplex is None:
        return np.zeros(len(copy), np.bool_)
    return np.array([simplex.value(part) > 0.5 for part in saved], np.bool_) & (copy > 0)


def m_sct_schedule(problem: PlacementProblem) -> Schedule:
    """m-ETF, except that a device may wait for the favourite child of the op it ran last (Baechi, 2023).

    It waits if the child is ready and can start on no device earlier. While it waits it runs only the child, or an op whose
    inputs are on all devices already. Differs from Baechi as `m_etf_schedule` does, and in the linear program: it has mean times
    and copies, and is solved in windows. Time: that of m-ETF and of N / 1000 linear programs.
    """
    return _FavouriteChildFirst(problem).run()


def solver() -> Heuristic:
    """Memory-constrained small communication times (m-SCT) of Baechi."""
    return list_scheduler("m_sct", m_sct_schedule, references(BAECHI, SCT))
