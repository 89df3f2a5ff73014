"""Exact solvers under memory limits, and on more than two devices, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.problem.memory import excess, holdings, peaks, usage
from placer.problem.price import total_cost_ns
from placer.problem.problem import PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.solvers.base import Status
from placer.solvers.bounds.branch_and_bound import branch_and_bound
from placer.solvers.bounds.lagrangian_relaxation import lagrangian_relaxation
from placer.solvers.bounds.step_bound import step_bound_ns
from placer.solvers.exact.cp_sat import CpSat, cannot_fit
from placer.solvers.primitives import symmetry
from placer.solvers.primitives.cp_model import Model
from placer.solvers.primitives.local_search import local_search
from placer.solvers.primitives.neighbourhoods import search_neighbourhoods
from placer.solvers.primitives.repair import repair
from tests.helpers.changed import changed
from tests.helpers.random_problems import alike, assignments, interchangeable, problems, random_assignment, relabelled
from tests.problem.test_price import chain


def cheapest_that_fits(problem: PlacementProblem) -> int | None:
    return min((total_cost_ns(problem, a) for a in assignments(problem) if validate(problem, a).ok), default=None)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(problems() | interchangeable())
def test_cp_sat_finds_the_optimum_or_proves_that_nothing_fits(problem: PlacementProblem) -> None:
    solution = CpSat().solve(problem, "total_cost")
    best = cheapest_that_fits(problem)
    if best is None:
        assert solution.status is Status.INFEASIBLE
        assert solution.assignment is None
    else:
        assert solution.status is Status.OPTIMAL
        assert solution.objective_ns == solution.lower_bound_ns == best
        assert solution.assignment is not None
        assert validate(problem, solution.assignment, best).ok


@settings(deadline=None, max_examples=40)
@given(problems(limits=True) | interchangeable(), st.sampled_from([0, 2, 4]), st.integers(0, 3))
def test_by_how_few_bytes_limits_can_be_missed(problem: PlacementProblem, divisor: int, seed: int) -> None:
    """Within a percent of what devices hold that are too full."""
    limits = np.where(problem.devices.memory_limit_bytes < 0, -1, problem.devices.memory_limit_bytes // divisor if divisor else 0)
    problem = changed(problem, devices_memory_limit_bytes=limits)
    least = min(int(excess(problem, a).sum()) for a in assignments(problem))
    found, bound = Model(problem).least_excess(random_assignment(problem, seed), 5.0, seed)
    over = excess(problem, found)
    assert bound <= least <= over.sum()
    assert (bound > 0) == (least > 0)
    assert over.sum() - least <= 0.01 * peaks(problem, found)[over > 0].sum()


@settings(deadline=None, max_examples=40)
@given(problems(devices=3))
def test_the_order_of_devices_changes_no_optimum(problem: PlacementProblem) -> None:
    swapped = relabelled(problem, [0, 2, 1])
    ours, theirs = (CpSat().solve(p, "total_cost") for p in (problem, swapped))
    assert (ours.status, ours.objective_ns) == (theirs.status, theirs.objective_ns)
    assert step_bound_ns(Simulator(problem)) == pytest.approx(step_bound_ns(Simulator(swapped)), abs=1)


@settings(deadline=None, max_examples=100)
@given(problems() | alike(), st.integers(0, 3))
def test_the_relaxation_bounds_every_assignment_that_fits(problem: PlacementProblem, seed: int) -> None:
    relaxed = lagrangian_relaxation(problem, seed=seed)
    best = cheapest_that_fits(problem)
    if relaxed.assignments:
        assert best is not None
        assert all(validate(problem, assignment).ok for assignment in relaxed.assignments)
        assert best <= total_cost_ns(problem, relaxed.assignments[0])
    if best is not None:
        assert relaxed.bound_ns <= best
    again = lagrangian_relaxation(problem, seed=seed)
    assert again.bound_ns == relaxed.bound_ns
    assert [a.device.tolist() for a in again.assignments] == [a.device.tolist() for a in relaxed.assignments]


@settings(deadline=None, max_examples=60)
@given(interchangeable(), st.integers(0, 2**32 - 1))
def test_devices_that_can_trade_places_are_told(problem: PlacementProblem, seed: int) -> None:
    groups = symmetry.interchangeable(problem)
    assert groups == [[1, 2]]
    assignment = random_assignment(problem, seed)
    named = symmetry.canonical(assignment, groups)
    assert total_cost_ns(problem, named) == total_cost_ns(problem, assignment)
    assert Simulator(problem).step_ns(named) == Simulator(problem).step_ns(assignment)
    assert sorted(usage(problem, named).max(axis=1)) == sorted(usage(problem, assignment).max(axis=1))
    both = [int(np.argmax(named.device == d)) for d in (1, 2) if (named.device == d).any()]
    assert both == sorted(both)
    assert len(both) != 1 or (named.device == 1).any()


@settings(deadline=None, max_examples=30)
@given(problems(limits=True), st.integers(0, 3))
def test_neighbourhoods_never_cost_more_and_fit(problem: PlacementProblem, seed: int) -> None:
    fitting = repair(problem, random_assignment(problem, seed))
    if fitting is not None:
        relaxed = lagrangian_relaxation(problem)
        better = search_neighbourhoods(problem, fitting, relaxed.assignments, relaxed.moments, seconds=5.0, seed=seed)
        assert validate(problem, better).ok
        assert total_cost_ns(problem, better) <= total_cost_ns(problem, fitting)


@settings(deadline=None, max_examples=60)
@given(problems(devices=2, limits=True))
def test_branching_raises_the_bound_and_never_over_the_optimum(problem: PlacementProblem) -> None:
    relaxed = lagrangian_relaxation(problem)
    if relaxed.assignments:
        best, bound = branch_and_bound(relaxed.prices, relaxed.assignments[-1], time_limit_s=5.0)
        assert validate(problem, best).ok
        optimum = cheapest_that_fits(problem)
        assert optimum is not None
        assert relaxed.bound_ns <= bound <= optimum <= total_cost_ns(problem, best)
        assert total_cost_ns(problem, best) <= total_cost_ns(problem, relaxed.assignments[-1])


@settings(deadline=None, max_examples=30)
@given(problems(limits=True), st.integers(0, 200))
def test_higher_limits_never_cost_more(problem: PlacementProblem, more: int) -> None:
    tight = CpSat().solve(problem, "total_cost")
    looser = changed(problem, devices_memory_limit_bytes=problem.devices.memory_limit_bytes + more)
    solution = CpSat().solve(looser, "total_cost")
    if tight.status is Status.OPTIMAL:
        assert solution.status is Status.OPTIMAL
        assert solution.objective_ns <= tight.objective_ns


@settings(deadline=None, max_examples=100)
@given(problems(limits=True), st.integers(0, 2**32 - 1))
def test_holdings_sum_up_to_usage(problem: PlacementProblem, seed: int) -> None:
    assignment = random_assignment(problem, seed)
    held = usage(problem, assignment)
    for device in range(problem.num_devices):
        for moment in range(problem.num_ops):
            parts = holdings(problem, device, moment)
            true = assignment.device[parts.unit] == parts.on_device
            there = np.array([true[a:b].any() for a, b in zip(parts.start[:-1], parts.start[1:], strict=True)], np.bool_)
            assert parts.nbytes[there].sum() == held[device, moment]


@settings(deadline=None, max_examples=100)
@given(problems(limits=True), st.integers(0, 2**32 - 1))
def test_what_is_repaired_and_improved_fits(problem: PlacementProblem, seed: int) -> None:
    fitting = repair(problem, random_assignment(problem, seed))
    if fitting is not None:
        assert validate(problem, fitting).ok
        better = local_search(problem, fitting, max_passes=20)
        assert validate(problem, better).ok
        assert total_cost_ns(problem, better) <= total_cost_ns(problem, fitting)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {
                "units_allowed": np.array([[True, True], [False, True], [True, True]]),
                "devices_memory_limit_bytes": np.array([-1, 900]),
            },
            "100 over",
        ),
        ({"devices_memory_limit_bytes": np.array([900, 950])}, "work takes 1000 bytes, 50 more"),
        ({"devices_memory_limit_bytes": np.array([1150, -1]), "units_allowed": np.array([[True, False]] * 3)}, "50 bytes higher"),
    ],
)
def test_infeasible_by_how_many_bytes(changes: dict[str, object], told: str) -> None:
    solution = CpSat().solve(chain(**changes), "total_cost")
    assert solution.status is Status.INFEASIBLE
    assert told in solution.stop_detail
    assert cannot_fit(chain()) == ""


def test_limits_change_the_plan_only_where_they_bind() -> None:
    free = CpSat().solve(chain(), "total_cost")
    assert free.assignment is not None
    loose = CpSat().solve(chain(devices_memory_limit_bytes=np.array([10**6, 1207])), "total_cost")
    assert loose.objective_ns == free.objective_ns
    tight = CpSat().solve(changed(chain(), devices_memory_limit_bytes=np.array([-1, 1206])), "total_cost")
    assert tight.assignment is not None
    assert tight.assignment.device[1] == 0


@settings(deadline=None, max_examples=40)
@given(problems(devices=2))
@pytest.mark.filterwarnings("error")
def test_where_nothing_fits_at_any_price_no_price_overflows(problem: PlacementProblem) -> None:
    """Prices double until the limits hold, which they never do here."""
    kept = problem.units.persistent_bytes + 2**33
    crowded = changed(problem, devices_memory_limit_bytes=np.array([1, 1]), units_persistent_bytes=kept)
    assert not any(validate(crowded, assignment).ok for assignment in lagrangian_relaxation(crowded).assignments)
