"""Solvers by name: the solvers of this package and of packages that register some.

A built-in solver is a module of `exact`, `search` or `heuristics`. Its name is the module's name, and `solver` in the module is a
callable without arguments that gives the solver. Another package registers such a callable as an entry point.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placer.common.plugins import load
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.solvers.base import Solver
from placer.solvers.heuristic import Rule
from placer.solvers.user_function import heuristic_of

GROUP = "placer.solvers"
ROOMS = ("exact", "search", "heuristics")


@cache
def solvers() -> Mapping[str, EntryPoint]:
    """The registered solvers by name: `auto`, then those of each room in alphabetical order, then those of other packages.

    No solver is imported. A built-in solver keeps its name, whatever is installed.
    """
    modules = {"auto": "placer.solvers.auto"}
    for room in ROOMS:
        names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / room)]))
        modules |= {name: f"placer.solvers.{room}.{name}" for name in names}
    built_in = {name: EntryPoint(name, f"{module}:solver", GROUP) for name, module in modules.items()}
    others = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in built_in}
    return MappingProxyType(built_in | dict(sorted(others.items())))


def solver(choice: str | Solver | Rule) -> Solver:
    """The solver that a user chose.

    Args:
        choice: the name of a registered solver, which then has its default options; a solver; a function from a
            `PlacementProblem` to an `Assignment`; or ``MODULE:NAME`` of one of these, see `named_object`.

    Raises:
        OptionError: no solver has this name, it cannot be loaded, or the object cannot solve.
    """
    if isinstance(choice, str) and ":" in choice:
        choice = named_object(choice)
    if isinstance(choice, str):
        entry = solvers().get(choice)
        if entry is None:
            suggestion = did_you_mean(choice, solvers())
            raise OptionError(f"no solver {choice!r}{suggestion} There are {', '.join(solvers())}, or pass a Solver.")
        made = load(entry, "solver", make=True)
        if not isinstance(made, Solver):
            raise OptionError(f"the solver {choice!r} is none: {entry.value} returns {made!r}; it must return a Solver.")
        return made
    if not isinstance(choice, type):
        if isinstance(choice, Solver):
            return choice
        if callable(choice):
            return heuristic_of(choice)
    raise OptionError(
        f"solver={choice!r} is no solver: it needs name, unsupported, solve and cite, or to be a function from a "
        f"PlacementProblem to an Assignment; or name a registered one: {', '.join(solvers())}."
    )


def named_object(choice: str) -> Solver | Rule:
    """The solver or the function that ``MODULE:NAME`` names; modules of the working directory are found, too.

    A function without arguments is called, and returns the solver.

    Raises:
        OptionError: it cannot be imported.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    entry = EntryPoint(choice, choice, GROUP)
    named: Any = load(entry, "solver")
    is_maker = callable(named) and not isinstance(named, Solver) and not inspect.signature(named).parameters
    made: Solver | Rule = load(entry, "solver", make=True) if is_maker or isinstance(named, type) else named
    return made
