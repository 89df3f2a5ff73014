"""Every registered solver on graphs of every shape, with and without limits: the answer is checked, not how it came about."""

from __future__ import annotations

import itertools
from functools import cache

import pytest

from placer.problem.validate import validate
from placer.research.instances.families import SHAPES
from placer.solvers.base import Objective, Solution, Status
from placer.solvers.registry import solver, solvers
from placer.solvers.run import run
from tests.helpers import forked
from tests.helpers.shapes import shaped, tasks

OBJECTIVES: tuple[Objective, ...] = ("total_cost", "step_time")
EFFORT = {"annealing": 400, "genetic": 400, "brute_force": 400, "step_time": None, "auto": None}
"""These use up what they are given; the others end by themselves."""
KNOW_LIMITS = {"auto", "lagrangian", "cp_sat", "m_topo", "m_etf", "m_sct", "earliest_finish", "greedy_benefit", "step_time"}
KNOW_LIMITS |= {"chain_dp", "dfs_fill", "in_order_fill", "annealing", "genetic"}
KNOW_LIMITS |= {"bil", "dps", "duplex", "fastest_node", "fcp", "flb", "gdl", "hbmct", "max_min", "mct", "met", "min_min"}
KNOW_LIMITS |= {"msbc", "mst", "olb", "sufferage", "wba"}
"""With a CPU that has no limit, these find something that fits, where they support the problem at all."""

KINDS_OF_PROBLEM = {"min_cut", "lagrangian", "cp_sat", "chain_dp", "step_time", "brute_force"}
"""These do not take every objective and number of devices."""

problem_of = cache(shaped)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", solvers())
def test_every_answer_is_valid(name: str, shape: str) -> None:
    for devices, limited, objective in itertools.product((2, 3), (False, True), OBJECTIVES):
        problem, chosen = problem_of(shape, devices=devices, limited=limited), solver(name)
        if chosen.unsupported(problem, objective):
            assert limited or name in KINDS_OF_PROBLEM
            continue
        solution = run(chosen, problem, objective, effort=EFFORT.get(name, 500_000))
        assert isinstance(solution, Solution)
        if solution.status is Status.UNKNOWN:
            assert limited
            assert name not in KNOW_LIMITS
            continue
        assert solution.assignment is not None
        report = validate(problem, solution.assignment, solution.objective_ns if objective == "total_cost" else None)
        assert report.violations == ()
        again = run(chosen, problem, objective, effort=EFFORT.get(name, 500_000))
        assert isinstance(again, Solution)
        assert again.assignment is not None
        assert (again.assignment.device == solution.assignment.device).all()


@pytest.mark.parametrize("name", solvers())
def test_nothing_to_place_is_placed(name: str) -> None:
    for objective in OBJECTIVES:
        problem, chosen = tasks([], [], devices=2), solver(name)
        if not chosen.unsupported(problem, objective):
            assert chosen.solve(problem, objective).status is Status.OPTIMAL


WITHOUT_END = """
import itertools
import placer
from placer.problem.validate import validate
from placer.solvers.registry import solver, solvers
from tests.helpers.graphs import towers
from tests.helpers.shapes import shaped
for name in solvers():
    for devices, limited, objective in itertools.product((2, 3), (False, True), ("total_cost", "step_time")):
        ops = 9 if name == "brute_force" else 12
        problem, chosen = shaped("layered", devices=devices, limited=limited, ops=ops), solver(name)
        if not chosen.unsupported(problem, objective):
            solution = chosen.solve(problem, objective, time_limit_s=1e300)
            assert solution.assignment is None or validate(problem, solution.assignment).violations == () or limited
placer.solve(towers(), "h100", time_limit_s=1.7e308)
"""


def test_a_search_ends_where_the_time_does_not() -> None:
    done = forked.run("-c", WITHOUT_END, timeout_s=600)
    assert done.returncode == 0, done.stderr
