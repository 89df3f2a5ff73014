"""Total cost on any number of devices under memory limits, by constraint programming that adds the limits lazily."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placer.common.clock import TimeUpError, limit, now, unlimited
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
        started, ends = time.perf_counter(), now() + time_limit_s
        if why := cannot_fit(problem):
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, why)
        state = _Search(problem)
        try:
            with limit(time_limit_s):
                reason = state.run(time_limit_s, ends, seed)
        except TimeUpError:
            reason = StopReason.TIME_LIMIT
        if state.missing_bytes:
            detail = f"they would have to be at least {state.missing_bytes} bytes higher in all"
            seconds = time.perf_counter() - started
            return Solution(None, Status.INFEASIBLE, objective, 0, 0, self.name, seconds, StopReason.PROVED_INFEASIBLE, detail)
        if state.best is None:
            seconds, detail = time.perf_counter() - started, f"within {time_limit_s:g} s"
            return Solution(None, Status.UNKNOWN, objective, 0, state.bound_ns, self.name, seconds, StopReason.NOT_FOUND, detail)
        return answer(
            problem, objective, state.best, solver=self.name, started=started, stop_reason=reason, lower_bound_ns=state.bound_ns
        )

    def cite(self) -> str:
        """The solver, large neighbourhood search, Lagrangian relaxation, and branch and bound."""
        return references(PERRON, SHAW, FISHER, LAND)


class _Search:
    """The state of a search, which may end at any moment."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._original = problem
        self.bound_ns = 0
        self.missing_bytes = 0
        """A lower bound on the bytes over all limits; above 0 if no assignment fits."""
        self.best: Assignment | None = None
        """Of the original problem."""

    def run(self, time_limit_s: float, ends: float, seed: int) -> StopReason:
        """Searches as `CpSat.solve` says; returns why it ended."""
        reduced = reduce(self._original)
        problem = reduced.problem
        limited = limits_can_bind(problem)

        best: Assignment | None = None

        def offer(assignment: Assignment | None) -> None:
            nonlocal best
            if assignment is not None and (best is None or total_cost_ns(problem, assignment) < total_cost_ns(problem, best)):
                best = assignment
                self.best = reduced.invert(best)

        for start in _simple_starts(problem):
            if best is None:
                with unlimited():
                    offer(repair(problem, start) if limited else start)
        relaxation = lagrangian_relaxation(problem, time_limit_s=RELAXATION_SHARE * time_limit_s, seed=seed)
        self.bound_ns, starts = relaxation.bound_ns, _starts(problem, relaxation)
        for start in starts:
            offer(repair(problem, start) if limited else start)
        if best is not None and choices(problem) > MAX_UNITS and total_cost_ns(problem, best) > self.bound_ns:
            seconds = NEIGHBOURHOOD_SHARE * time_limit_s
            offer(search_neighbourhoods(problem, best, relaxation.assignments, relaxation.moments, seconds=seconds, seed=seed))
            if problem.num_devices == 2:
                branched, proved = branch_and_bound(relaxation.prices, best, time_limit_s=ends - now())
                offer(branched)
                self.bound_ns = max(self.bound_ns, proved)
        if best is not None and total_cost_ns(problem, best) <= self.bound_ns:
            return StopReason.PROVED_OPTIMAL
        model = _limited_model(problem, relaxation, starts)
        if limited and best is None:
            nearest = min(starts, key=lambda a: int(excess(problem, a).sum()))
            nearest, self.missing_bytes = model.least_excess(nearest, ends - now(), seed)
            if self.missing_bytes:
                return StopReason.PROVED_INFEASIBLE
            if not excess(problem, nearest).any():
                offer(nearest)
        while ends > now():
            if best is not None and total_cost_ns(problem, best) <= self.bound_ns:
                return StopReason.PROVED_OPTIMAL
            status, candidate, proved = model.minimise(best or starts[0], ends - now(), seed, proving=True)
            if status is Status.INFEASIBLE:
                self.missing_bytes = 1
                _, missing_bytes = model.least_excess(starts[0], ends - now(), seed)
                self.missing_bytes = max(1, missing_bytes)
                return StopReason.PROVED_INFEASIBLE
            self.bound_ns = max(self.bound_ns, proved)
            if candidate is None:
                break
            with unlimited():
                fits = not limited or not excess(problem, candidate).any()
                offer(candidate if fits else repair(problem, candidate))
            if fits and status is Status.FEASIBLE:
                break
            if not fits:
                model.limit_where_exceeded(candidate)
        return StopReason.TIME_LIMIT


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


def _simple_starts(problem: PlacementProblem) -> Iterator[Assignment]:
    """Assignments to start from, computed one by one; some may exceed limits."""
    yield default_assignment(problem)
    yield all_on(problem, "CPU")
    yield greedy_assignment(problem)


def _starts(problem: PlacementProblem, relaxation: Relaxation) -> list[Assignment]:
    """Distinct assignments to start from; some may exceed limits."""
    candidates = [*relaxation.assignments[:1], *_simple_starts(problem)]
    return list({a.device.tobytes(): a for a in candidates}.values())


solver = CpSat
