"""The door that every solver comes through, built in or from another package.

A package adds one by the entry point group "placer.solvers": a name, and a callable without arguments that gives the solver.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.solvers.base import Solver
from placer.solvers.heuristic import Rule
from placer.solvers.heuristics.user_function import own

GROUP = "placer.solvers"

_BUILT_IN = {
    "auto": "auto:Auto",
    "min_cut": "exact.min_cut:MinCut",
    "lagrangian": "bounds.lagrangian:Lagrangian",
    "cp_sat": "exact.cp_sat:CpSat",
    "chain_dp": "exact.chain_dp:ChainDp",
    "step_time": "search.step_time:StepTime",
    "m_topo": "heuristics.m_topo:m_topo",
    "m_etf": "heuristics.m_etf:m_etf",
    "m_sct": "heuristics.m_sct:m_sct",
    "heft": "heuristics.heft:heft",
    "cpop": "heuristics.cpop:cpop",
    "peft": "heuristics.peft:peft",
    "earliest_finish": "heuristics.earliest_finish:earliest_finish",
    "greedy": "heuristics.greedy:greedy",
    "greedy_benefit": "heuristics.greedy_benefit:greedy_benefit",
    "dfs_fill": "heuristics.dfs_fill:dfs_fill",
    "in_order_fill": "heuristics.in_order_fill:in_order_fill",
    "cpu_preferred": "heuristics.cpu_preferred:cpu_preferred",
    "annealing": "search.annealing:Annealing",
    "genetic": "search.genetic:Genetic",
    "random": "heuristics.random_placement:RandomPlacement",
    "tf_default": "heuristics.tf_default:tf_default",
    "all_cpu": "heuristics.fixed:all_cpu",
    "all_gpu": "heuristics.fixed:all_gpu",
}
"""By name, where in `placer.solvers` it is: the exact and bounded ones, then the heuristics."""


@cache
def solvers() -> Mapping[str, EntryPoint]:
    """The registered solvers by name, none imported yet. A built-in keeps its name, whatever is installed."""
    built_in = {name: EntryPoint(name, f"placer.solvers.{where}", GROUP) for name, where in _BUILT_IN.items()}
    others = {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in built_in}
    return MappingProxyType(built_in | dict(sorted(others.items())))


def solver(named_or_own: str | Solver | Rule) -> Solver:
    """The registered solver of that name with its default options, a solver itself, or a function as one.

    Raises:
        OptionError: no such name, or an object that cannot solve.
    """
    if isinstance(named_or_own, str):
        entry = solvers().get(named_or_own)
        if entry is None:
            near = did_you_mean(named_or_own, solvers())
            raise OptionError(f"no solver {named_or_own!r}{near} There are {', '.join(solvers())}, or pass a Solver.")
        return cast(Solver, entry.load()())
    if not isinstance(named_or_own, type):
        if isinstance(named_or_own, Solver):
            return named_or_own
        if callable(named_or_own):
            return own(named_or_own)
    raise OptionError(
        f"{named_or_own!r} is no solver: it needs name, unsupported, solve and cite, or to be a function from a PlacementProblem "
        f"to an Assignment; or name a registered one: {', '.join(solvers())}."
    )
