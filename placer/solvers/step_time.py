"""Step time: the best of many starts on the execution model, improved by local search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.problem.memory import excess
from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.problem.simulate import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.fit import fit
from placer.solvers.fixed import all_on
from placer.solvers.greedy import greedy_assignment
from placer.solvers.min_cut import minimum_cut
from placer.solvers.tf_default import default_assignment

COPY_SCALES = (1.0, 0.25, 4.0)
"""Cuts are taken with copies weighed so: overlap hides copies that a sum charges in full, and queues lengthen others."""
OP_RUNS = 400_000
"""Ops played in all simulations of one search: what bounds it, rather than the clock, so that equal runs are equal."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The least simulated step time of the usual placements, minimum cuts between each pair of devices, and local moves.

    Never worse, by the model, than TensorFlow's default, all-CPU or all-GPU where those fit.
    """

    name: str = "step_time"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "step_time" else f"it minimises step_time, not {objective}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Starts, then moves of connected pieces and single units, until a local optimum or the end of the effort."""
        started = time.perf_counter()
        simulator = Simulator(problem)
        limited = limits_can_bind(problem)
        effort = max(0, OP_RUNS // max(1, problem.ops))
        best: Assignment | None = None
        best_ns = 0
        for start in _starts(problem, few=problem.ops > 5_000):
            candidate = fit(problem, start) if limited else start
            if candidate is None:
                continue
            value = simulator.step_ns(candidate)
            effort -= 1
            if best is None or value < best_ns:
                best, best_ns = candidate, value
        if best is None:
            reason = "no start could be made to meet the memory limits"
            return Solution(None, Status.UNKNOWN, objective, 0, 0, self.name, time.perf_counter() - started, reason)

        reason = "local optimum"
        improved = True
        while improved and reason == "local optimum":
            improved = False
            for units, device in _moves(problem, best):
                if effort <= 0 or time.perf_counter() - started > time_limit_s:
                    reason = "end of effort"
                    break
                moved = best.device.copy()
                moved[units] = device
                candidate = Assignment(moved)
                effort -= 1
                value = simulator.step_ns(candidate)
                if value < best_ns and not (limited and excess(problem, candidate).any()):
                    best, best_ns, improved = candidate, value, True
                    break
        return answer(
            problem,
            objective,
            best,
            solver=self.name,
            started=started,
            stop_reason=reason,
            lower_bound_ns=min(best_ns, critical_path_ns(problem)),
        )

    def cite(self) -> str:
        """Its parts."""
        return "Multi-start local search on placer's execution model; starts include minimum cuts (Stone 1977)."


def critical_path_ns(problem: PlacementProblem) -> int:
    """A bound on every step time: the longest chain of data, each op on its fastest device and no copy charged, plus the call.

    On an asynchronous device an op adds to a chain at least what its stream computes.
    """
    work = np.where(problem.asynchronous, np.minimum(problem.op_compute_ns, problem.op_time_ns), problem.op_time_ns)
    work = np.where(problem.unit_allowed[problem.op_unit], work, np.iinfo(np.int64).max).min(axis=1)
    done = work.tolist()
    ready = [0] * problem.ops
    producer = problem.tensor_op[problem.consumer_tensor]
    order = np.argsort(problem.consumer_op, kind="stable")
    longest = 0
    edges = iter(zip(problem.consumer_op[order].tolist(), producer[order].tolist(), strict=True))
    edge = next(edges, None)
    for op in range(problem.ops):
        while edge is not None and edge[0] == op:
            ready[op] = max(ready[op], done[edge[1]])
            edge = next(edges, None)
        done[op] += ready[op]
        longest = max(longest, done[op])
    return int(longest) + problem.call_overhead_ns


def _starts(problem: PlacementProblem, *, few: bool) -> Iterator[Assignment]:
    yield default_assignment(problem)
    yield all_on(problem, "CPU")
    yield all_on(problem, "GPU")
    for other in range(problem.devices):
        pair = (problem.host, other)
        if other == problem.host or not problem.unit_allowed[:, pair].any(axis=1).all():
            continue
        for scale in COPY_SCALES[:1] if few else COPY_SCALES:
            yield minimum_cut(problem, pair, copies=scale).assignment
    if not few:
        yield greedy_assignment(problem)


def _moves(problem: PlacementProblem, assignment: Assignment) -> Iterator[tuple[Ints, int]]:
    """Connected pieces of one device, small first, then units at a crossing: each to every other device it may use."""
    device = assignment.device
    producer = problem.op_unit[problem.tensor_op[problem.consumer_tensor]]
    consumer = problem.op_unit[problem.consumer_op]
    free = problem.unit_allowed.sum(axis=1) > 1
    same = (device[producer] == device[consumer]) & free[producer] & free[consumer]
    pieces = _components(problem.units, producer[same], consumer[same])
    for piece in sorted((p for p in pieces if free[p[0]]), key=len):
        units = np.array(piece)
        for to in range(problem.devices):
            if to != device[piece[0]] and problem.unit_allowed[units, to].all():
                yield units, to
    crossing = device[producer] != device[consumer]
    for unit in np.unique(np.concatenate([producer[crossing], consumer[crossing]])).tolist():
        if free[unit]:
            for to in np.flatnonzero(problem.unit_allowed[unit]).tolist():
                if to != device[unit]:
                    yield np.array([unit]), to


def _components(units: int, left: Ints, right: Ints) -> list[list[int]]:
    root = list(range(units))

    def find(unit: int) -> int:
        while root[unit] != unit:
            root[unit] = root[root[unit]]
            unit = root[unit]
        return unit

    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        root[find(a)] = find(b)
    pieces: dict[int, list[int]] = {}
    for unit in range(units):
        pieces.setdefault(find(unit), []).append(unit)
    return list(pieces.values())
