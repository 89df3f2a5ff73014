"""What optima and bounds must be, whoever finds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.solvers.base import Status
from placer.solvers.exact.cp_sat import CpSat
from placer.solvers.exact.min_cut import MinCut
from placer.solvers.registry import solver
from placer.solvers.search.step_time import StepTime
from tests.helpers.brute_force import every_assignment, optimum_ns, peak_bytes, total_costs_ns
from tests.helpers.changed import changed
from tests.helpers.random_problems import assignments, problems, random_problem

quickly = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
HURRIED_S = 0.02
"""A time limit that ends a search on its way: what it says then must hold too."""


@st.composite
def larger(draw: st.DrawFn) -> PlacementProblem:
    """12 units of 14 ops on two devices or three."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    devices = draw(st.sampled_from([2, 2, 3]))
    return random_problem(rng, devices=devices, ops=14, units=12, limits=draw(st.booleans()), forced=0.2 if devices == 3 else 0.0)


@quickly
@given(problems())
def test_brute_force_is_what_the_definitions_say(problem: PlacementProblem) -> None:
    device = every_assignment(problem)
    costs, peaks = total_costs_ns(problem, device), peak_bytes(problem, device)
    for k in range(0, len(device), max(1, len(device) // 20)):
        report = validate(problem, Assignment(device[k]))
        assert (report.total_cost_ns, report.peak_bytes) == (costs[k], tuple(peaks[k]))


@settings(quickly, max_examples=8)
@given(larger())
def test_exact_solvers_find_what_brute_force_finds(problem: PlacementProblem) -> None:
    best = optimum_ns(problem)
    exact = CpSat().solve(problem, "total_cost", time_limit_s=60.0)
    if best is None:
        assert exact.status is Status.INFEASIBLE
        return
    assert (exact.status, exact.objective_ns) == (Status.OPTIMAL, best)
    if not MinCut().unsupported(problem, "total_cost"):
        cut = MinCut().solve(problem, "total_cost")
        assert cut.lower_bound_ns <= best <= cut.objective_ns
        assert (cut.status is Status.OPTIMAL) == (cut.objective_ns == cut.lower_bound_ns)


@pytest.mark.parametrize("name", ["auto", "min_cut", "lagrangian", "cp_sat"])
@quickly
@given(problem=problems(), seed=st.integers(0, 2))
def test_no_bound_on_the_total_cost_exceeds_the_optimum(name: str, problem: PlacementProblem, seed: int) -> None:
    chosen, best = solver(name), optimum_ns(problem)
    if chosen.unsupported(problem, "total_cost"):
        return
    for limit in (HURRIED_S, 5.0):
        found = chosen.solve(problem, "total_cost", time_limit_s=limit, seed=seed)
        if best is None:
            assert found.status in {Status.INFEASIBLE, Status.UNKNOWN}
        else:
            assert found.status is not Status.INFEASIBLE
            assert found.lower_bound_ns <= best
            assert found.status is not Status.OPTIMAL or found.objective_ns == best


@quickly
@given(problem=problems(), seed=st.integers(0, 2))
def test_no_bound_on_the_step_time_exceeds_the_optimum(problem: PlacementProblem, seed: int) -> None:
    best = min((Simulator(problem).step_ns(a) for a in assignments(problem) if validate(problem, a).ok), default=None)
    for limit in (HURRIED_S, None):
        found = StepTime().solve(problem, "step_time", time_limit_s=limit, seed=seed)
        if best is None:
            assert found.assignment is None or found.status is Status.UNKNOWN
        else:
            assert found.lower_bound_ns <= best
            assert found.status is not Status.OPTIMAL or found.objective_ns == best


def with_another(problem: PlacementProblem) -> PlacementProblem:
    """The same machine with a second device like its last, linked to others as that is, and to that as slowly as to any."""
    d = problem.num_devices
    of = [*range(d), d - 1]
    place = [*of, *(d + k for k in of)]

    def linked(cost: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        wide = cost[np.ix_(place, place)]
        for a, b in ((d - 1, d), (2 * d, 2 * d + 1)):  # places of the two, in their own memory and in the host's
            wide[a, b] = wide[b, a] = cost.max()
        return wide

    wider = problem.on_devices(np.array(of))
    return changed(
        wider,
        devices_names=(*problem.devices.names, "another"),
        links_latency_ns=linked(problem.links.latency_ns),
        links_ns_per_byte=linked(problem.links.ns_per_byte),
        links_interval_ns=linked(problem.links.interval_ns),
    )


@quickly
@given(problems(devices=2))
def test_another_device_never_makes_the_optimum_worse(problem: PlacementProblem) -> None:
    before, after = optimum_ns(problem), CpSat().solve(with_another(problem), "total_cost", time_limit_s=60.0)
    if before is not None:
        assert after.status is Status.OPTIMAL
        assert after.objective_ns <= before


@quickly
@given(problems(), st.integers(2, 9))
def test_costs_that_are_so_many_times_as_high_make_the_optimum_so(problem: PlacementProblem, times: int) -> None:
    whole = changed(
        problem,
        links_ns_per_byte=np.rint(problem.links.ns_per_byte),
        tensors_count=np.ceil(problem.tensors.count),
        ops_count=np.ceil(problem.ops.count),
    )
    scaled = changed(
        whole,
        ops_time_ns=times * whole.ops.time_ns,
        links_latency_ns=times * whole.links.latency_ns,
        links_ns_per_byte=times * whole.links.ns_per_byte,
    )
    ours, theirs = (CpSat().solve(p, "total_cost", time_limit_s=60.0) for p in (whole, scaled))
    assert (theirs.status, theirs.objective_ns) == (ours.status, times * ours.objective_ns)
