"""A user's function as a solver."""

from __future__ import annotations

from functools import partial

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import checked
from placer.solvers.heuristic import Heuristic, Rule


def heuristic_of(function: Rule) -> Heuristic:
    """A heuristic with the function's name, whose source is the first line of its docstring. Its assignments are checked."""
    name = getattr(function, "__name__", type(function).__name__)
    source = (function.__doc__ or "").strip().partition("\n")[0]
    return Heuristic(name, partial(_checked, function, name), source or "A function of the user's.")


def _checked(function: Rule, name: str, problem: PlacementProblem) -> Assignment:
    return checked(function(problem), problem, name)
