"""Any number of devices and memory limits over lifetimes: constraint programming with lazy limits."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.branch_and_bound import branched
from placer.solvers.bounds.lagrangian import Relaxed, lagrangian
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.neighbourhoods import improved
from placer.solvers.primitives.repair import fit
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices
from placer.solvers.sources import FISHER, LAND, PERRON, SHAW, lines

LARGEST = 2_000
"""Units to decide, up to which the whole program finds more than neighbourhoods."""
RELAXED, NEAR = 0.4, 0.2
"""Of the time, for the relaxation, and for neighbourhoods of a larger problem."""


@dataclass(frozen=True, slots=True)
class CpSat:
    """Total cost under memory limits, with a proved bound, until the time is over.

    Limits become constraints only at moments where a solution exceeds them, so that every model on the way is a relaxation and
    its bound holds. The search, and a second one beside it on another processor that raises the bound, are seeded and end by
    deterministic time before the clock ends them.
    """

    name: str = "cp_sat"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Other objectives."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Starts from the relaxation, then tightens and solves the whole until that meets every limit or the time is over. Where
        no repair of a start fits, what misses the limits least comes first, until it meets them. The bound is the better of the
        relaxation's and the program's. Of larger problems neighbourhoods are searched first, and on two devices the relaxation
        is branched on: their program comes to nothing in any time one would wait.
        """
        started = time.perf_counter()
        if why := cannot_fit(problem):
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, why)
        reduced = reduce(problem)
        original, problem = problem, reduced.problem
        limited = limits_can_bind(problem)
        relaxed = lagrangian(problem, time_limit_s=RELAXED * time_limit_s, seed=seed)
        bound, starts = relaxed.bound_ns, _starts(problem, relaxed)
        fitting = [a for a in (fit(problem, start) if limited else start for start in starts) if a is not None]
        best = min(fitting, key=lambda a: total_cost_ns(problem, a), default=None)

        if best is not None and choices(problem) > LARGEST and total_cost_ns(problem, best) > bound:
            best = improved(problem, best, relaxed, seconds=NEAR * time_limit_s, seed=seed)
            if problem.num_devices == 2:
                left = time_limit_s - (time.perf_counter() - started)
                best, proved = branched(relaxed.prices, best, time_limit_s=left)
                bound = max(bound, proved)
        model: Model | None = None
        if limited and best is None:
            model = _limited_model(problem, relaxed, starts)
            nearest = min(starts, key=lambda a: int(excess(problem, a).sum()))
            nearest, short = model.least_excess(nearest, time_limit_s - (time.perf_counter() - started), seed)
            if short:
                return self._infeasible(objective, short, started)
            best = None if excess(problem, nearest).any() else nearest
        reason = StopReason.TIME_LIMIT
        while (left := time_limit_s - (time.perf_counter() - started)) > 0:
            if best is not None and total_cost_ns(problem, best) <= bound:
                reason = StopReason.PROVED_OPTIMAL
                break
            if model is None:
                model = _limited_model(problem, relaxed, starts)
            verdict, found, proved = model.minimise(best or starts[0], left, seed, proving=True)
            if verdict is Status.INFEASIBLE:
                _, short = model.least_excess(starts[0], max(1.0, left), seed)
                return self._infeasible(objective, max(1, short), started)
            bound = max(bound, proved)
            if found is None:
                break
            if not limited or not excess(problem, found).any():
                best = min((a for a in (best, found) if a is not None), key=lambda a: total_cost_ns(problem, a))
                if verdict is Status.FEASIBLE:
                    break
                continue
            repaired = fit(problem, found)
            if repaired is not None and (best is None or total_cost_ns(problem, repaired) < total_cost_ns(problem, best)):
                best = repaired
            model.limit_where_exceeded(found)
        if best is None:
            return Solution(
                None, Status.UNKNOWN, objective, 0, bound, self.name, time.perf_counter() - started,
                StopReason.NOT_FOUND, f"within {time_limit_s:g} s",
            )  # fmt: skip
        best = reduced.invert(best)
        return answer(original, objective, best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=bound)

    def _infeasible(self, objective: Objective, short: int, started: float) -> Solution:
        detail, seconds = f"they would have to be at least {short} bytes higher in all", time.perf_counter() - started
        return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, detail)

    def cite(self) -> str:
        """The solver, and what comes before it."""
        return lines(PERRON, SHAW, FISHER, LAND)


def cannot_fit(problem: PlacementProblem) -> str:
    """A cheap proof that no assignment meets the limits, in words; "" where none is found."""
    limits, names, kept = problem.devices.memory_limit_bytes, problem.devices.names, problem.units.persistent_bytes
    only = problem.units.allowed.sum(axis=1) == 1
    for d in np.flatnonzero(limits >= 0).tolist():
        held = int(kept[only & problem.units.allowed[:, d]].sum())
        if held > limits[d]:
            return f"what can only be on {names[d]} takes {held} bytes, {held - int(limits[d])} over its limit of {limits[d]}"
    room = np.where(limits < 0, np.iinfo(np.int64).max, limits)
    homeless = np.flatnonzero(kept > np.where(problem.units.allowed, room, -1).max(axis=1))
    if len(homeless):
        unit = int(homeless[0])
        most = int(np.where(problem.units.allowed, room, -1)[unit].max(axis=0))
        op = problem.ops.names[int(np.flatnonzero(problem.ops.unit == unit)[0])]
        return f"{op} takes {kept[unit]} bytes, {int(kept[unit]) - most} more than any device it may be on has"
    if (limits >= 0).all() and kept.sum() > limits.sum():
        return f"variables and captures take {kept.sum()} bytes, {int(kept.sum() - limits.sum())} more than all limits together"
    return ""


def _limited_model(problem: PlacementProblem, relaxed: Relaxed, starts: list[Assignment]) -> Model:
    """The program, with the limits where what is known exceeds them."""
    model = Model(problem)
    if limits_can_bind(problem):
        model.limit(relaxed.moments)
        for start in starts:
            model.limit_where_exceeded(start)
    return model


def _starts(problem: PlacementProblem, relaxed: Relaxed) -> list[Assignment]:
    """Distinct assignments to start from."""
    found = [*relaxed.found[:1], greedy_assignment(problem), default_assignment(problem), all_on(problem, "CPU")]
    return list({a.device.tobytes(): a for a in found}.values())
