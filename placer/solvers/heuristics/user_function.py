"""A user's own function as a solver."""

from __future__ import annotations

from functools import partial

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import checked
from placer.solvers.heuristic import Heuristic, Rule


def own(function: Rule) -> Heuristic:
    """Calls itself what the function is called, and cites its docstring. What it returns is checked."""
    name = getattr(function, "__name__", type(function).__name__)
    source = (function.__doc__ or "").strip().partition("\n")[0]
    return Heuristic(name, partial(_checked, function, name), source or "A function of the user's.")


def _checked(function: Rule, name: str, problem: PlacementProblem) -> Assignment:
    return checked(function(problem), problem, name)
