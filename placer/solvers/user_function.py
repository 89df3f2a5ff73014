"""A user's function as a solver."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.answer import checked
from placer.solvers.heuristic import Heuristic, RandomHeuristic, Rule


def heuristic_of(function: Rule) -> Heuristic | RandomHeuristic:
    """A heuristic with the function's name, whose source is the first line of its docstring. Its assignments are checked.

    A function that needs two arguments gets the problem and a `numpy.random.Generator` with the seed of the run.
    """
    name = getattr(function, "__name__", type(function).__name__)
    source = (function.__doc__ or "").strip().partition("\n")[0] or "A function of the user's."
    kind = RandomHeuristic if needed_arguments(function) == 2 else Heuristic
    return kind(name, partial(_checked, function, name), source)


def needed_arguments(function: Rule) -> int:
    """The number of positional arguments that a function cannot do without; 1 if that is not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def _checked(function: Callable[..., Assignment], name: str, problem: PlacementProblem, *rng: Any) -> Assignment:
    return checked(function(problem, *rng), problem, name)
