"""The door that every solver comes through, built in or from another package.

A package adds one by the entry point group "placer.solvers": a name, and a callable without arguments that gives the solver.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from placer.errors import OptionError
from placer.solvers.base import Solver

GROUP = "placer.solvers"

_BUILT_IN = (
    EntryPoint("auto", "placer.solvers.auto:Auto", GROUP),
    EntryPoint("min_cut", "placer.solvers.min_cut:MinCut", GROUP),
    EntryPoint("priced_cut", "placer.solvers.priced_cut:PricedCut", GROUP),
    EntryPoint("cp_sat", "placer.solvers.cp_sat:CpSat", GROUP),
    EntryPoint("step_time", "placer.solvers.step_time:StepTime", GROUP),
    EntryPoint("greedy", "placer.solvers.greedy:greedy", GROUP),
    EntryPoint("tf_default", "placer.solvers.tf_default:tf_default", GROUP),
    EntryPoint("all_cpu", "placer.solvers.fixed:all_cpu", GROUP),
    EntryPoint("all_gpu", "placer.solvers.fixed:all_gpu", GROUP),
)


@cache
def solvers() -> Mapping[str, EntryPoint]:
    """The registered solvers by name, none imported yet. A built-in keeps its name, whatever is installed."""
    built_in = {entry.name: entry for entry in _BUILT_IN}
    others = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in built_in}
    return MappingProxyType(built_in | dict(sorted(others.items())))


def solver(name_or_object: str | Solver) -> Solver:
    """The registered solver of that name with its default options, or the object itself if it is one.

    Raises:
        OptionError: no such name, or an object that cannot solve.
    """
    if isinstance(name_or_object, str):
        entry = solvers().get(name_or_object)
        if entry is None:
            raise OptionError(f"no solver {name_or_object!r}; there are {', '.join(solvers())}, or pass a Solver.")
        return cast(Solver, entry.load()())
    if isinstance(name_or_object, type) or not callable(getattr(name_or_object, "solve", None)):
        raise OptionError(
            f"{name_or_object!r} is no solver: it needs name, unsupported, solve and cite; "
            f"or name a registered one: {', '.join(solvers())}."
        )
    return name_or_object
