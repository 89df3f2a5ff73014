"""What holds for every registered solver."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.errors import OptionError
from placer.problem.price import total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import simulate
from placer.problem.validate import validate
from placer.solvers.base import Objective, Solution, Status, StopReason
from placer.solvers.primitives.incremental_cost import IncrementalCost
from placer.solvers.registry import solver, solvers
from tests.helpers.changed import changed
from tests.helpers.random_problems import problems, random_assignment
from tests.problem.test_price import chain

OBJECTIVES: tuple[Objective, ...] = ("total_cost", "step_time")


@pytest.mark.parametrize("name", list(solvers()))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(problem=problems(), seed=st.integers(0, 2))
def test_every_solver_answers_validly(name: str, problem: PlacementProblem, seed: int) -> None:
    for objective in OBJECTIVES:
        chosen = solver(name)
        if chosen.unsupported(problem, objective):
            continue
        solution = chosen.solve(problem, objective, seed=seed)
        assert solution.objective == objective
        assert isinstance(solution.stop_reason, StopReason)
        assert solution.stop_text.startswith(solution.stop_reason.value)
        if solution.status in {Status.INFEASIBLE, Status.UNKNOWN}:
            continue
        assert solution.assignment is not None
        assert validate(problem, solution.assignment).ok
        cost, step = total_cost_ns(problem, solution.assignment), simulate(problem, solution.assignment).step_ns
        assert solution.objective_ns == (cost if objective == "total_cost" else step)
        assert 0 <= solution.lower_bound_ns <= solution.objective_ns
        assert (solution.status is Status.OPTIMAL) == (solution.gap == 0)
        again = chosen.solve(problem, objective, seed=seed)
        assert again.assignment is not None
        assert (again.assignment.device == solution.assignment.device).all()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(problems())
def test_auto_finds_something_wherever_anything_does(problem: PlacementProblem) -> None:
    for objective in OBJECTIVES:
        found = solver("auto").solve(problem, objective)
        exact = solver("cp_sat").solve(problem, "total_cost")
        assert (found.assignment is None) == (exact.assignment is None)
        assert exact.assignment is not None or found.status is Status.INFEASIBLE


@settings(deadline=None, max_examples=100)
@given(problems(limits=False), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2)), max_size=8))
def test_incremental_cost_follows_every_move(problem: PlacementProblem, moves: list[tuple[int, int]]) -> None:
    incremental = IncrementalCost(problem, random_assignment(problem, 0))
    cost = total_cost_ns(problem, incremental.assignment)
    for unit, device in moves:
        cost += incremental.move(unit % problem.num_units, device % problem.num_devices)
        assert cost == total_cost_ns(problem, incremental.assignment)


def test_tf_default_moves_generators_and_metadata_beside_their_neighbours() -> None:
    allowed = np.array([[True, True], [True, False], [True, True]])
    problem = chain(units_allowed=allowed, ops_control_src=np.zeros(0, np.int64), ops_control_dst=np.zeros(0, np.int64))
    assert device_of(solver("tf_default").solve(problem, "total_cost")) == [0, 0, 1]
    reads_metadata = changed(problem, ops_follows_input=np.array([False, False, True]))
    assert device_of(solver("tf_default").solve(reads_metadata, "total_cost")) == [0, 0, 0]
    assert device_of(solver("all_gpu").solve(problem, "total_cost")) == [1, 0, 1]
    assert device_of(solver("all_cpu").solve(problem, "total_cost")) == [0, 0, 0]


def device_of(solution: Solution) -> list[int]:
    assert isinstance(solution.assignment, Assignment)
    return [int(d) for d in solution.assignment.device]


def test_fixed_placements_over_a_limit_are_shown_but_not_called_feasible() -> None:
    cramped = chain(devices_memory_limit_bytes=np.array([-1, 1000]))
    assert "207 B over its limit" in solver("all_gpu").unsupported(cramped, "step_time")
    solution = solver("all_gpu").solve(cramped, "step_time")
    assert solution.status is Status.UNKNOWN
    assert solution.assignment is not None


def test_unknown_solver_is_told_the_known_ones() -> None:
    with pytest.raises(OptionError, match="min_cut"):
        solver("magic")
    with pytest.raises(OptionError, match="no solver"):
        solver(42)  # type: ignore[arg-type]
    own = solver("greedy")
    assert solver(own) is own


@pytest.mark.parametrize("name", list(solvers()))
def test_every_solver_says_whom_to_cite(name: str) -> None:
    """Authors, title, year, and where to find it; or that it is this package's own."""
    for reference in solver(name).cite().splitlines():
        assert re.search(r"\b(19|20)\d\d\b", reference)
        assert re.search(r"doi:10\.\d{4,}/|arXiv:\d{4}\.\d{5}|https://", reference) or reference.startswith("placer ")


@pytest.mark.parametrize("name", list(solvers()))
def test_every_solver_has_the_name_it_is_registered_by(name: str) -> None:
    assert solver(name).name == name


def test_listing_solvers_imports_none() -> None:
    code = (
        "import sys, placer.solvers.registry as r; r.solvers(); r.solver('auto'); "
        "print('ortools' in sys.modules, 'tensorflow' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False"]
