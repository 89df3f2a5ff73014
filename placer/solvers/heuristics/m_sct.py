"""m-SCT: m-ETF in which a device waits for the favourite child of what it ran last."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristics.m_etf import EarliestStart, Queue
from placer.solvers.primitives.list_scheduling import Schedule, list_scheduler, mean_copy_ns, mean_time_ns
from placer.solvers.sources import BAECHI, HANEN, lines

WINDOW = 1_000
"""Ops in one linear program. The simplex method takes about 0.2 s for these, and time grows faster than their number."""
NS_PER_UNIT = 1_000
"""It counts in microseconds, as its tolerances are absolute."""


class _Favouring(EarliestStart):
    """The m-SCT algorithm; see `m_sct_schedule`."""

    def __init__(self, problem: PlacementProblem) -> None:
        super().__init__(problem)
        self._child = favourite_children(self.schedule)
        self._awaited = [-1] * problem.num_devices  # by device: the favourite child of the op it ran last
        self._urgent = [Queue(partial(self.closed, d)) for d in self.devices]  # ops and when their inputs are everywhere

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
            return first  # by then the child is not ready
        starts = {d: max(self.schedule.ready(child, d), self.queues[d].free) for d in self.open_to[self.unit_of[child]]}
        if starts[device] > min(starts.values()):
            return first
        urgent = self._urgent[device].first()
        return urgent if urgent is not None and urgent[0] <= starts[device] else (starts[device], child)


def favourite_children(schedule: Schedule) -> list[int]:
    """[N]: for each op the one successor that should follow it on its device, or -1; no op follows two.

    From Hanen and Munier's linear program, solved for `WINDOW` ops in a row at a time: edges between windows have none.
    """
    problem = schedule.problem
    time = mean_time_ns(problem) / NS_PER_UNIT
    pair = np.array(schedule.producer, np.int64) * problem.num_ops + np.array(schedule.consumer, np.int64)
    pairs, pair_of = np.unique(pair, return_inverse=True)
    copy = np.zeros(len(pairs))
    np.maximum.at(copy, pair_of, mean_copy_ns(problem) / NS_PER_UNIT)
    producer, consumer = np.divmod(pairs, problem.num_ops)
    favourite = np.full(problem.num_ops, -1)
    for begin in range(0, problem.num_ops, WINDOW):
        inside = np.flatnonzero((producer >= begin) & (consumer < begin + WINDOW))
        follows = _follows(time[begin : begin + WINDOW], producer[inside] - begin, consumer[inside] - begin, copy[inside])
        favourite[producer[inside[follows]]] = consumer[inside[follows]]
    children: list[int] = favourite.tolist()
    return children


def _follows(time: Floats, producer: Ints, consumer: Ints, copy: Floats) -> Bools:
    """[E]: the edges that save more than half of their copy in the optimum of the linear program.

    The least makespan on devices without number, where the edges out of an op save one copy in all, and so do those into one.
    """
    from ortools.linear_solver.python import model_builder

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
    simplex = model_builder.Solver("GLOP")
    simplex.set_solver_specific_parameters("use_dual_simplex: true")  # twice as fast here
    if simplex.solve(program) != model_builder.SolveStatus.OPTIMAL:
        return np.zeros(len(copy), np.bool_)
    return np.array([simplex.value(part) > 0.5 for part in saved], np.bool_) & (copy > 0)


def m_sct_schedule(problem: PlacementProblem) -> Schedule:
    """m-ETF, save that a device whose last op has its favourite child ready, and could start it first of all, waits for it.

    While it waits it takes only the child, or an op all of whose inputs are everywhere already. Beyond m-ETF it takes the time
    of the linear programs. As in Baechi, with the differences of `m_etf_schedule`, mean times and copies in the program, and
    the program in windows.
    """
    return _Favouring(problem).run()


m_sct = partial(
    list_scheduler,
    "m_sct",
    m_sct_schedule,
    lines(BAECHI, HANEN),
)
