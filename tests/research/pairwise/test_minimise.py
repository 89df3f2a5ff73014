"""Answers to pairwise problems are checked against all there are, bounds against the optimum."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.research.instances.iopddl import load_pairwise
from placer.research.pairwise.core import core
from placer.research.pairwise.memory import Memory
from placer.research.pairwise.messages import Messages
from placer.research.pairwise.minimise import cite, minimise_pairwise
from placer.research.pairwise.problem import peak_usage
from placer.research.pairwise.validate import validate_pairwise
from placer.solvers.base import Status
from tests.helpers import published
from tests.helpers.pairwise import limited, optimum, random_pairwise


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000), edges=st.sampled_from([None, 0, 1]), room=st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_small_problems_are_solved_to_the_optimum(seed: int, edges: int | None, room: float) -> None:
    problem = random_pairwise(seed, edges=edges, room=room)
    best = optimum(problem)
    solution = minimise_pairwise(problem, time_limit_s=20.0, seed=seed)
    if best is None:
        assert solution.status == Status.INFEASIBLE
        assert solution.choice is None
        assert solution.gap == 1
        return
    assert solution.choice is not None
    assert (solution.status, solution.cost, solution.lower_bound, solution.gap) == (Status.OPTIMAL, best, best, 0)
    assert validate_pairwise(problem, solution.choice, solution.cost).ok


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 100_000), room=st.sampled_from([0.0, 0.5, 1.0]), sweeps=st.integers(0, 6))
def test_no_price_of_memory_gives_a_bound_above_the_optimum(seed: int, room: float, sweeps: int) -> None:
    problem = random_pairwise(seed, room=room)
    best, merged = optimum(problem), core(problem)
    if best is None or merged is None or not len(merged.cost):
        return
    messages, memory, rng = Messages(merged), Memory(merged), np.random.default_rng(seed)
    price = np.zeros(len(merged.room))
    for k in range(sweeps + 1):
        bound, values = messages.sweep(merged.value_cost + memory.cost_at(price), forward=k % 2 == 0)
        assert merged.constant + bound - price @ merged.room <= best + 1e-6
        assert len(merged.choices(values)) == problem.nodes
        price = rng.integers(0, 3, len(price)) * rng.random(len(price))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100_000), sweeps=st.integers(0, 4))
def test_no_value_is_said_to_cost_more_than_the_least_with_it(seed: int, sweeps: int) -> None:
    merged = core(random_pairwise(seed, nodes=6))
    if merged is None or not len(merged.cost):
        return
    messages = Messages(merged)
    for k in range(sweeps):
        messages.sweep(merged.value_cost, forward=k % 2 == 0)
    said = messages.least(merged.value_cost) + merged.constant
    for values in itertools.product(*(range(len(cost)) for cost in merged.cost)):
        assert (said[merged.start[:-1] + np.array(values)] <= merged.total(np.array(values)) + 1e-6).all()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 100_000), edges=st.sampled_from([None, 0, 1]), room=st.sampled_from([0.0, 0.5, 1.0]))
def test_what_is_left_costs_and_holds_what_the_problem_does(seed: int, edges: int | None, room: float) -> None:
    problem = random_pairwise(seed, edges=edges, room=room)
    merged = core(problem)
    if merged is None:
        assert optimum(problem) is None
        return
    values = np.random.default_rng(seed).integers(0, np.diff(merged.start))
    report = validate_pairwise(problem, merged.choices(values))
    fits = bool((Memory(merged).held(values) <= merged.room).all())
    assert fits == (report.peak_usage <= problem.usage_limit)
    if not any("forbid" in violation for violation in report.violations):
        assert merged.total(values) == report.cost


def test_the_limit_may_be_used_up_and_one_less_costs_more() -> None:
    problem = random_pairwise(1, room=1.0)
    free = minimise_pairwise(problem)
    assert free.choice is not None
    peak = peak_usage(problem, free.choice)
    assert minimise_pairwise(limited(problem, peak)).cost == free.cost
    assert minimise_pairwise(limited(problem, peak - 1)).cost == optimum(limited(problem, peak - 1))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_a_higher_limit_never_costs_more(seed: int) -> None:
    problem = random_pairwise(seed, room=0.0)
    solutions = [minimise_pairwise(limited(problem, problem.usage_limit + more)) for more in range(0, 12, 3)]
    costs = [float("inf") if solution.choice is None else solution.cost for solution in solutions]
    assert costs == sorted(costs, reverse=True)


def test_sources_are_given() -> None:
    assert all("doi" in line for line in cite().splitlines())


@pytest.mark.parametrize("path", [p for p in published.INTRA_OPERATOR if p.name[-9] in "BG"], ids=lambda path: path.name)
def test_published_instances_get_choices_that_fit_and_a_bound_below_the_best_known(path: Path) -> None:
    problem = load_pairwise(path)
    solution = minimise_pairwise(problem, time_limit_s=1.5)
    assert solution.choice is not None
    assert validate_pairwise(problem, solution.choice, solution.cost).ok
    assert solution.lower_bound <= {"B": 532843, "G": 217039}[path.name[-9]] <= solution.cost
