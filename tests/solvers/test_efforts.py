"""Searches end by their limits; with an effort limit no clock decides anything."""

from __future__ import annotations

import itertools
import time

import pytest

import placer
from placer.common.clock import OP_RUNS_PER_S, TimeUpError, counted, limit, now, remaining_s, spend, unlimited
from placer.errors import OptionError
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.validate import validate
from placer.research.instances.families import synthetic
from placer.solvers.base import Objective, Solution, StopReason
from placer.solvers.exact.chain_dp import ChainDp
from placer.solvers.heuristic import Heuristic, RandomHeuristic
from placer.solvers.registry import solver, solvers
from placer.solvers.run import effort_s, run, why_unsupported
from tests.helpers.graphs import layers

PROBLEMS = {
    "two GPUs": synthetic("layered", ops=40, gpus=2),
    "two GPUs, limits": synthetic("towers", ops=40, gpus=2, memory=0.5),
    "one GPU, limits": synthetic("series_parallel", ops=60, memory=0.4),
}
SEARCHES = ("auto", "step_time", "annealing", "genetic", "cp_sat", "lagrangian", "chain_dp")
RULES = [name for name in solvers() if isinstance(solver(name), Heuristic | RandomHeuristic | ChainDp)]
EFFORT = 200


def searched(name: str, problem: PlacementProblem, objective: Objective, effort: int) -> Solution | None:
    chosen = solver(name)
    if chosen.unsupported(problem, objective):
        return None
    solution = run(chosen, problem, objective, seed=3, effort=effort)
    assert isinstance(solution, Solution)
    return solution


@pytest.mark.parametrize("name", SEARCHES)
def test_an_effort_gives_the_same_plan_and_bound_whatever_the_clocks_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[object]] = []
    leaps = itertools.cycle([0.0, 1e-9, 0.3, 50.0, 1e6])
    times = itertools.accumulate(leaps)
    for clock in (None, lambda: next(times)):
        if clock is not None:
            for source in ("perf_counter", "monotonic", "time"):
                monkeypatch.setattr(time, source, clock)
        found.append([])
        for problem in PROBLEMS.values():
            for objective in ("step_time", "total_cost"):
                if (solution := searched(name, problem, objective, EFFORT)) is not None:
                    device = None if solution.assignment is None else solution.assignment.device.tolist()
                    found[-1].append((device, solution.objective_ns, solution.lower_bound_ns, solution.status))
    monkeypatch.undo()
    assert found[0] == found[1]


@pytest.mark.parametrize("name", list(solvers()))
def test_no_search_counts_more_work_than_its_limit(name: str) -> None:
    """A tenth of a second, or a fifth of the limit."""
    for problem in PROBLEMS.values():
        for objective in ("step_time", "total_cost"):
            chosen, given = solver(name), problem.copy()
            if not chosen.unsupported(given, objective):
                allowed_s = effort_s(problem, 4 * EFFORT)
                with counted():
                    chosen.solve(given, objective, time_limit_s=allowed_s, seed=1)
                    assert now() <= max(1.2 * allowed_s, allowed_s + 0.1)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_ends_with_its_time_and_says_so(name: str) -> None:
    """A schedule of 1,000 ops counts at least 0.03 s."""
    problem, chosen = synthetic("layered", ops=1_000, gpus=2), solver(name)
    objective: Objective = "step_time" if isinstance(chosen, Heuristic | RandomHeuristic) else "total_cost"
    with counted():
        solution = chosen.solve(problem.copy(), objective, time_limit_s=0.001)
        assert now() < 0.03
    assert isinstance(solution, Solution)
    assert solution.assignment is not None
    assert validate(problem, solution.assignment).ok
    if solution.stop_reason is not StopReason.TIME_LIMIT:
        whole = chosen.solve(problem.copy(), objective)
        assert whole.assignment is not None
        assert (solution.assignment.device == whole.assignment.device).all()


def test_asking_whether_the_plan_of_a_rule_fits_ends_with_the_limit() -> None:
    def endless(problem: PlacementProblem) -> Assignment:
        while True:
            spend(1)

    rule, problem = Heuristic("endless", endless, source="none"), synthetic("chain", ops=8, memory=0.5)
    for given in ({"effort": 10}, {"time_limit_s": 0.01}):
        assert why_unsupported(rule, problem, "step_time", **given) == ""  # type: ignore[arg-type]


def test_a_plan_by_effort_is_the_same_again_and_the_options_say_what_is_none() -> None:
    graph = layers()
    first, again = (placer.solve(graph, "2xh100", effort=200, seed=1, memory_limits={"GPU": "4MiB"}) for _ in range(2))
    assert (first.ops, first.lower_bound_ns) == (again.ops, again.lower_bound_ns)
    assert first.options["effort"] == 200
    for given, message in (({"effort": 0}, "from 1 to"), ({"effort": 1.5}, "whole number"), ({"effort": True}, "whole number")):
        with pytest.raises(OptionError, match=message):
            placer.solve(graph, "h100", **given)
    with pytest.raises(OptionError, match="give one of them"):
        placer.solve(graph, "h100", effort=5, time_limit_s=1.0)


def test_limits_hold_within_limits_and_work_is_time_only_where_it_is_counted() -> None:
    with counted():
        with limit(1.0), limit(5.0):
            assert remaining_s() == pytest.approx(1.0, abs=0.01)
            spend(OP_RUNS_PER_S / 2)
            assert now() == pytest.approx(0.5, abs=0.01)
            with pytest.raises(TimeUpError):
                spend(OP_RUNS_PER_S)
            with unlimited():
                spend(OP_RUNS_PER_S)
        spend(OP_RUNS_PER_S)
    with limit(1e6):
        spend(1e18)
