"""Solvers of split and pairwise problems, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from placer.problem.arrays import Ints
from placer.research.instances.instance import Instance, InstanceObjective
from placer.research.pairwise import minimise
from placer.research.pairwise.solution import PairwiseSolution
from placer.research.splits import latency_model, model
from placer.research.splits.chain import chain_split
from placer.research.splits.latency import minimise_latency
from placer.research.splits.max_load import minimise_max_load
from placer.research.splits.problem import SplitProblem, excess_bytes, latency_ns, max_load_ns
from placer.research.splits.solution import SplitSolution
from placer.solvers.base import Status
from placer.solvers.primitives.coarsening import KARYPIS
from placer.solvers.primitives.cp_model import PERRON
from placer.solvers.primitives.neighbourhoods import SHAW
from placer.solvers.sources import references

TARNAWSKI = (
    "J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, Efficient algorithms for device placement of DNN "
    "graph operators, NeurIPS 2020, arXiv:2006.16423"
)
KIRKPATRICK = (
    "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, Science 220(4598), 1983, "
    "doi:10.1126/science.220.4598.671"
)


@dataclass(frozen=True, slots=True, eq=False)
class InstanceSolution:
    """The answer of a solver of instances."""

    answer: Ints | None
    """[U] or [N]: a device for each unit, or a choice for each node; None if none was found."""
    status: Status
    objective_ns: int
    """The value of the objective; the cost of a pairwise problem has no unit."""
    lower_bound_ns: int
    stop_text: str


@dataclass(frozen=True, slots=True)
class InstanceSolver:
    """A method for the instances of one objective."""

    name: str
    objective: InstanceObjective
    method: Callable[[Any, float, int], InstanceSolution]
    """A function of a problem, a time limit in seconds and a seed."""
    source: str

    def unsupported(self, instance: object) -> str:
        """Why it cannot solve a problem, as text; empty if it can."""
        if isinstance(instance, Instance) and instance.objective == self.objective:
            return ""
        return f"it solves {KINDS[self.objective]} only"

    def solve(self, instance: Instance, *, time_limit_s: float = 10.0, seed: int = 0) -> InstanceSolution:
        """Searches for an answer of least value."""
        return self.method(instance.problem, time_limit_s, seed)

    def cite(self) -> str:
        """The source of the algorithm, as of a `Solver`."""
        return self.source


KINDS: Mapping[InstanceObjective, str] = MappingProxyType(
    {
        "max_load": "split problems for the max load",
        "latency": "split problems for the latency",
        "cost": "pairwise problems",
    }
)
"""By objective: the problems that have it, in words."""


def _split(found: SplitSolution) -> InstanceSolution:
    return InstanceSolution(found.device, found.status, found.objective_ns, found.lower_bound_ns, found.stop_reason)


def _pairwise(found: PairwiseSolution) -> InstanceSolution:
    return InstanceSolution(found.choice, found.status, found.cost, found.lower_bound, found.stop_reason)


def _contiguous(problem: SplitProblem, time_limit_s: float, seed: int) -> InstanceSolution:
    device = chain_split(problem)
    status = Status.UNKNOWN if excess_bytes(problem, device) else Status.FEASIBLE
    return InstanceSolution(device, status, max_load_ns(problem, device), 0, "the method ran to its end")


def _plain(objective: InstanceObjective) -> Callable[[SplitProblem, float, int], InstanceSolution]:
    """One constraint program of the whole problem, which starts from everything on the CPUs."""

    def solve(problem: SplitProblem, time_limit_s: float, seed: int) -> InstanceSolution:
        device, free = np.full(problem.units, problem.accelerators), np.ones(problem.units, np.bool_)
        if objective == "latency":
            found = latency_model.decide_anew(problem, device, free, seconds=time_limit_s, seed=seed)
        else:
            devices = list(range(problem.devices))
            found = model.decide_anew(problem, device, free, devices, seconds=time_limit_s, seed=seed)
        device = device if found.device is None else found.device
        value = latency_ns(problem, device) if objective == "latency" else max_load_ns(problem, device)
        assert value is not None
        status = Status.OPTIMAL if value <= found.bound_ns else Status.FEASIBLE
        stop_text = "optimal" if status is Status.OPTIMAL else "time limit"
        return InstanceSolution(device, status, value, min(value, found.bound_ns), stop_text)

    return solve


INSTANCE_SOLVERS: Mapping[str, InstanceSolver] = MappingProxyType(
    {
        solver.name: solver
        for solver in (
            InstanceSolver(
                "max_load",
                "max_load",
                lambda problem, limit, seed: _split(minimise_max_load(problem, time_limit_s=limit, seed=seed)),
                references(TARNAWSKI, KARYPIS, KIRKPATRICK, SHAW, PERRON),
            ),
            InstanceSolver("contiguous_split", "max_load", _contiguous, TARNAWSKI),
            InstanceSolver("max_load_cp_sat", "max_load", _plain("max_load"), PERRON),
            InstanceSolver(
                "latency",
                "latency",
                lambda problem, limit, seed: _split(minimise_latency(problem, time_limit_s=limit, seed=seed)),
                references(TARNAWSKI, KIRKPATRICK, SHAW, PERRON),
            ),
            InstanceSolver("latency_cp_sat", "latency", _plain("latency"), PERRON),
            InstanceSolver(
                "pairwise",
                "cost",
                lambda problem, limit, seed: _pairwise(minimise.minimise_pairwise(problem, time_limit_s=limit, seed=seed)),
                minimise.cite(),
            ),
        )
    }
)
"""The solvers of instances by name."""


def instance_solver(given: object) -> InstanceSolver | None:
    """The solver of instances that has this name or is this object; None if there is none."""
    return given if isinstance(given, InstanceSolver) else INSTANCE_SOLVERS.get(given) if isinstance(given, str) else None
