"""Total cost on any number of devices under memory limits, by constraint programming that adds the limits lazily."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from placer.problem.memory import excess
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import answer, limits_can_bind
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.bounds.branch_and_bound import LAND, branch_and_bound
from placer.solvers.bounds.lagrangian_relaxation import Relaxation, lagrangian_relaxation
from placer.solvers.bounds.memory_prices import FISHER
from placer.solvers.heuristics.greedy import greedy_assignment
from placer.solvers.heuristics.tf_default import default_assignment
from placer.solvers.primitives.cp_model import PERRON, Model
from placer.solvers.primitives.neighbourhoods import SHAW, search_neighbourhoods
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.primitives.repair import repair
from placer.solvers.reductions.reduce import reduce
from placer.solvers.reductions.reduced import choices
from placer.solvers.sources import references

MAX_UNITS = 2_000
"""Up to this number of units to decide, solving the whole program gives better assignments than searching neighbourhoods."""
RELAXATION_SHARE, NEIGHBOURHOOD_SHARE = 0.4, 0.2
"""Shares of the time limit for the relaxation, and for the neighbourhoods of a larger problem."""


@dataclass(frozen=True, slots=True)
class CpSat:
    """Minimises the total cost under memory limits, with a proved bound, up to the time limit.

    A limit becomes a constraint only at moments where a solution exceeds it, so every model is a relaxation and its bound is
    valid. A second search, on another processor, raises the bound. Both are seeded and stop by deterministic time, which ends
    before the time limit does.
    """

    name: str = "cp_sat"

    def unsupported(self, problem: PlacementProblem, objective: Objective) -> str:
        """Says that the objective is another."""
        return "" if objective == "total_cost" else f"it minimises total_cost, not {objective}"

    def solve(self, problem: PlacementProblem, objective: Objective, *, time_limit_s: float = 10.0, seed: int = 0) -> Solution:
        """Searches in steps, until the bound is reached or the time is over.

        1. The Lagrangian relaxation gives a bound and assignments, which are repaired.
        2. A problem of more than `MAX_UNITS` units is improved by neighbourhoods, and on two devices by branch and bound: its
           whole program would take too long.
        3. If no assignment fits, the program minimises the bytes over the limits first.
        4. The program minimises the total cost; limits that its solution exceeds are added, until it exceeds none.

        The bound is the higher one of the relaxation's and the program's.
        """
        started = time.perf_counter()
        if why := cannot_fit(problem):
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, why)
        reduced = reduce(problem)
        original, problem = problem, reduced.problem
        limited = limits_can_bind(problem)
        relaxation = lagrangian_relaxation(problem, time_limit_s=RELAXATION_SHARE * time_limit_s, seed=seed)
        bound, starts = relaxation.bound_ns, _starts(problem, relaxation)
        fitting = [a for a in (repair(problem, start) if limited else start for start in starts) if a is not None]
        best = min(fitting, key=lambda a: total_cost_ns(problem, a), default=None)

        if best is not None and choices(problem) > MAX_UNITS and total_cost_ns(problem, best) > bound:
            best = search_neighbourhoods(
                problem, best, relaxation.assignments, relaxation.moments, seconds=NEIGHBOURHOOD_SHARE * time_limit_s, seed=seed
            )
            if problem.num_devices == 2:
                remaining_s = time_limit_s - (time.perf_counter() - started)
                best, proved = branch_and_bound(relaxation.prices, best, time_limit_s=remaining_s)
                bound = max(bound, proved)
        model: Model | None = None
        if limited and best is None:
            model = _limited_model(problem, relaxation, starts)
            nearest = min(starts, key=lambda a: int(excess(problem, a).sum()))
            nearest, missing_bytes = model.least_excess(nearest, time_limit_s - (time.perf_counter() - started), seed)
            if missing_bytes:
                return self._infeasible(objective, missing_bytes, started)
            best = None if excess(problem, nearest).any() else nearest
        reason = StopReason.TIME_LIMIT
        while (remaining_s := time_limit_s - (time.perf_counter() - started)) > 0:
            if best is not None and total_cost_ns(problem, best) <= bound:
                reason = StopReason.PROVED_OPTIMAL
                break
            if model is None:
                model = _limited_model(problem, relaxation, starts)
            status, candidate, proved = model.minimise(best or starts[0], remaining_s, seed, proving=True)
            if status is Status.INFEASIBLE:
                _, missing_bytes = model.least_excess(starts[0], max(1.0, remaining_s), seed)
                return self._infeasible(objective, max(1, missing_bytes), started)
            bound = max(bound, proved)
            if candidate is None:
                break
            if not limited or not excess(problem, candidate).any():
                best = min((a for a in (best, candidate) if a is not None), key=lambda a: total_cost_ns(problem, a))
                if status is Status.FEASIBLE:
                    break
                continue
            repaired = repair(problem, candidate)
            if repaired is not None and (best is None or total_cost_ns(problem, repaired) < total_cost_ns(problem, best)):
                best = repaired
            model.limit_where_exceeded(candidate)
        if best is None:
            return Solution(
                None, Status.UNKNOWN, objective, 0, bound, self.name, time.perf_counter() - started,
                StopReason.NOT_FOUND, f"within {time_limit_s:g} s",
            )  # fmt: skip
        best = reduced.invert(best)
        return answer(original, objective, best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=bound)

    def _infeasible(self, objective: Objective, missing_bytes: int, started: float) -> Solution:
        detail, seconds = f"they would have to be at least {missing_bytes} bytes higher in all", time.perf_counter() - started
        return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, detail)

    def cite(self) -> str:
        """The solver, large neighbourhood search, Lagrangian relaxation, and branch and bound."""
        return references(PERRON, SHAW, FISHER, LAND)


def cannot_fit(problem: PlacementProblem) -> str:
    """A simple proof that no assignment meets the limits, as text; empty if there is none."""
    limits, names, persistent_bytes = problem.devices.memory_limit_bytes, problem.devices.names, problem.units.persistent_bytes
    only = problem.units.allowed.sum(axis=1) == 1
    for d in np.flatnonzero(limits >= 0).tolist():
        pinned_bytes = int(persistent_bytes[only & problem.units.allowed[:, d]].sum())
        if pinned_bytes > limits[d]:
            over = pinned_bytes - int(limits[d])
            return f"what can only be on {names[d]} takes {pinned_bytes} bytes, {over} over its limit of {limits[d]}"
    capacity = np.where(limits < 0, np.iinfo(np.int64).max, limits)
    too_large = np.flatnonzero(persistent_bytes > np.where(problem.units.allowed, capacity, -1).max(axis=1))
    if len(too_large):
        unit = int(too_large[0])
        largest = int(np.where(problem.units.allowed, capacity, -1)[unit].max(axis=0))
        op = problem.ops.names[int(np.flatnonzero(problem.ops.unit == unit)[0])]
        nbytes = int(persistent_bytes[unit])
        return f"{op} takes {nbytes} bytes, {nbytes - largest} more than any device it may be on has"
    nbytes, limit = int(persistent_bytes.sum()), int(limits.sum())
    if (limits >= 0).all() and nbytes > limit:
        return f"variables and captures take {nbytes} bytes, {nbytes - limit} more than all limits together"
    return ""


def _limited_model(problem: PlacementProblem, relaxation: Relaxation, starts: list[Assignment]) -> Model:
    """The program, with the limits at moments where the relaxation has prices or a start exceeds them."""
    model = Model(problem)
    if limits_can_bind(problem):
        model.limit(relaxation.moments)
        for start in starts:
            model.limit_where_exceeded(start)
    return model


def _starts(problem: PlacementProblem, relaxation: Relaxation) -> list[Assignment]:
    """Distinct assignments to start from; some may exceed limits."""
    candidates = [*relaxation.assignments[:1], greedy_assignment(problem), default_assignment(problem), all_on(problem, "CPU")]
    return list({a.device.tobytes(): a for a in candidates}.values())


solver = CpSat
