"""Runs a solver on a copy of a problem, within seconds or within an effort."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from placer.common.clock import OP_RUNS_PER_S, TimeUpError, counted, limit
from placer.problem.problem import PlacementProblem
from placer.solvers.base import Objective, Solver
from placer.solvers.heuristic import Heuristic, RandomHeuristic
from placer.solvers.primitives import or_tools

MAX_TIME_LIMIT_S = 1e9
"""About 30 years. Solvers multiply time limits, and the products of much larger ones overflow."""


def why_unsupported(
    chosen: Solver,
    problem: PlacementProblem,
    objective: Objective,
    *,
    time_limit_s: float | None = None,
    effort: int | None = None,
) -> str:
    """Why the solver cannot solve a problem; empty if it can, or if the limit ends before that is known.

    A fixed rule is applied to learn whether its assignment fits. The arguments are those of `run`.
    """
    seconds = time_limit_s if effort is None else effort_s(problem, effort)
    with suppress(TimeUpError), counted() if time_limit_s is None else nullcontext(), limit(seconds):
        return chosen.unsupported(problem.copy(), objective)
    return ""


def run(
    chosen: Solver,
    problem: PlacementProblem,
    objective: Objective,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    effort: int | None = None,
) -> object:
    """What the solver returns for a copy of the problem, so that nothing that it writes changes the problem.

    Args:
        seed: of the solver.
        time_limit_s: seconds that the solver may search, without the time to load OR-Tools.
        effort: evaluations that the solver may make instead: work that takes as long as so many simulated steps. No clock is
            read, so the same problem, effort and seed give the same answer on every machine. If there is neither a time limit
            nor an effort, the solver chooses an effort, and no clock is read either.
    """
    given = problem.copy()
    if time_limit_s is not None:
        if not isinstance(chosen, Heuristic | RandomHeuristic):  # these do not search
            or_tools.load()
        return chosen.solve(given, objective, time_limit_s=min(time_limit_s, MAX_TIME_LIMIT_S), seed=seed)
    with counted():
        if effort is None:
            return chosen.solve(given, objective, seed=seed)
        return chosen.solve(given, objective, time_limit_s=effort_s(problem, effort), seed=seed)


def effort_s(problem: PlacementProblem, effort: int) -> float:
    """An effort as seconds of counted work."""
    return effort * max(1, problem.num_ops) / OP_RUNS_PER_S
