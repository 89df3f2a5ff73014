"""Step time: the best of many starts on the execution model, improved by local search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.problem.memory import excess
from placer.problem.price import move_costs_ns, total_cost_ns
from placer.problem.problem import Assignment, Ints, PlacementProblem
from placer.problem.simulate import Simulator
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.fit import fit
from placer.solvers.grouping import components
from placer.solvers.heuristics.earliest_finish import earliest_finish_assignment
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.heft import heft_schedule
from placer.solvers.heuristics.peft import peft_schedule
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.lagrangian import lagrangian
from placer.solvers.min_cut import minimum_cut
from placer.solvers.sources import ARABNEJAD, STONE, TOPCUOGLU, here, lines
from placer.solvers.step_bound import step_bound_ns

CUTS = ((1.0, False), (1.0, True), (0.25, False), (4.0, False), (0.25, True))
"""Weights of copies, and whether dispatch is hidden, in the cuts to start from: overlap hides what a sum charges in full, and
queues lengthen it."""
LARGE = 5_000
"""Ops from which on fewer starts are tried."""
OP_RUNS = 160_000
"""Ops played in all simulations of one search without a time limit, about a quarter of a second; starts are tried anyway."""
OP_RUNS_PER_S = 400_000
"""The same per second of a time limit. Counting these rather than looking at the clock makes equal runs equal."""
PARTS = 4


@dataclass(frozen=True, slots=True)
class StepTime:
    """The least simulated step time of the usual placements, minimum cuts, list schedules and local moves from the best.

    Never worse, by the model, than TensorFlow's default, all-CPU or all-GPU where those fit.
    """

    name: str = "step_time"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "step_time" else f"it minimises step_time, not {objective}"

    def solve(
        self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float | None = None, seed: int = 0
    ) -> Solution:
        """Tries each start, then moves from the best, until a local optimum, the bound, or the end of the effort.

        Args:
            time_limit_s: None spends an effort by size: about 0.4 s at 10,000 ops, 3 s at 100,000.
            seed: nothing here is random.
        """
        started = time.perf_counter()
        simulator = problem.simulator
        bound = step_bound_ns(simulator)
        limited = limits_can_bind(problem)
        runs = OP_RUNS if time_limit_s is None else OP_RUNS_PER_S * time_limit_s
        effort = int(runs / max(1, problem.ops))
        ends = started + (time_limit_s if time_limit_s is not None else float("inf"))

        best: Assignment | None = None
        best_ns = 0
        seen: set[bytes] = set()
        for start in _starts(simulator, limited):
            candidate: Assignment | None = start
            if limited and excess(problem, start).any():
                candidate = fit(problem, start) if best is None or problem.ops <= LARGE else None
            if candidate is None or candidate.device.tobytes() in seen:
                continue
            seen.add(candidate.device.tobytes())
            value = simulator.step_ns(candidate)
            effort -= 1
            if best is None or value < best_ns:
                best, best_ns = candidate, value
        if best is None:
            reason = "no start could be made to meet the memory limits"
            return Solution(None, Status.UNKNOWN, objective, 0, bound, self.name, time.perf_counter() - started, reason)

        reason = ""
        while not reason:
            before = best_ns
            for units, device in _moves(problem, best, effort):
                if best_ns <= bound:
                    reason = "optimal"
                elif time.perf_counter() > ends:
                    reason = "time limit"
                elif effort <= 0:
                    reason = "end of effort"
                if reason:
                    break
                moved = best.device.copy()
                moved[units] = device
                candidate = Assignment(moved)
                if moved.tobytes() in seen or (limited and excess(problem, candidate).any()):
                    continue
                seen.add(moved.tobytes())
                effort -= 1
                value = simulator.step_ns(candidate)
                if value < best_ns:
                    best, best_ns = candidate, value
            if best_ns == before:
                reason = reason or ("optimal" if best_ns <= bound else "local optimum")
        return answer(problem, objective, best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=bound)

    def cite(self) -> str:
        """Its parts."""
        return lines(here("local search on the execution model from the best of many starts"), STONE, TOPCUOGLU, ARABNEJAD)


def _starts(simulator: Simulator, limited: bool) -> Iterator[Assignment]:
    """The simple placements, so that nothing found is worse than they are, and what may be better."""
    problem = simulator.problem
    large = problem.ops > LARGE
    if limited:
        yield from lagrangian(problem).found[:1]
    yield default_assignment(problem)
    yield all_on(problem, "CPU")
    yield all_on(problem, "GPU")
    hidden = np.zeros((problem.units, problem.devices), np.int64)
    np.add.at(hidden, problem.op_unit, np.where(problem.asynchronous, problem.op_compute_ns, problem.op_time_ns))
    for other in range(problem.devices):
        pair = (problem.host, other)
        if other != problem.host and problem.unit_allowed[:, pair].any(axis=1).all():
            for copies, overlapped in CUTS[:2] if large else CUTS:
                yield minimum_cut(problem, pair, work_ns=hidden if overlapped else None, copies=copies).assignment
    yield earliest_finish_assignment(problem)
    if not large:
        yield heft_schedule(problem).assignment
        yield peft_schedule(problem).assignment
        yield greedy_assignment(problem)


def _moves(problem: PlacementProblem, assignment: Assignment, effort: int) -> list[tuple[Ints, int]]:
    """Sets of units and a device to move them to, those that add least to the total cost first.

    Connected pieces of one device and their first and last parts in execution order; each device's side of a boundary; and
    single units at a boundary, or all of them where the effort reaches that far.
    """
    device, allowed = assignment.device, problem.unit_allowed
    producer = problem.op_unit[problem.tensor_op[problem.consumer_tensor]]
    consumer = problem.op_unit[problem.consumer_op]
    free = allowed.sum(axis=1) > 1
    same = (device[producer] == device[consumer]) & free[producer] & free[consumer]
    crosses = device[producer] != device[consumer]
    base = total_cost_ns(problem, assignment)

    pieces = [np.array(p) for p in components(problem.units, producer[same], consumer[same]) if free[p[0]]]
    pieces.sort(key=lambda piece: (-len(piece), int(piece[0])))
    sets: list[tuple[Ints, int]] = []
    for to in range(problem.devices):
        for a, b in ((producer, consumer), (consumer, producer)):
            sets.append((np.unique(a[crosses & (device[b] == to)]), to))
        for piece in pieces[: max(PARTS, effort)]:
            if device[piece[0]] != to and len(piece) > 1:
                sets.append((piece, to))
                if len(piece) > 2 * PARTS:
                    cuts = [len(piece) * i // PARTS for i in range(1, PARTS)]
                    sets.extend((part, to) for i in cuts for part in (piece[:i], piece[i:]))
    found: list[tuple[int, Ints, int]] = []
    for units, to in sets[: 4 * max(PARTS, effort)]:
        can = units[allowed[units, to]]
        if len(can):
            moved = device.copy()
            moved[can] = to
            found.append((total_cost_ns(problem, Assignment(moved)) - base, can, to))

    there = problem.unit_time_ns + move_costs_ns(problem, assignment)
    change = there - there[np.arange(problem.units), device][:, None]
    edge = np.full(problem.units, problem.units <= effort)
    edge[producer[crosses]] = edge[consumer[crosses]] = True
    single, to_device = np.nonzero(allowed & edge[:, None] & (np.arange(problem.devices) != device[:, None]))
    found.extend(
        (cost, np.array([unit]), to)
        for cost, unit, to in zip(change[single, to_device].tolist(), single.tolist(), to_device.tolist(), strict=True)
    )
    found.sort(key=lambda move: (move[0], len(move[1]), int(move[1][0]), move[2]))
    return [(units, to) for _, units, to in found]
