"""Costs and peaks of pairwise problems are what plain loops find, and what is wrong is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem, pairwise_cost, peak_usage
from placer.research.pairwise.validate import validate_pairwise
from tests.helpers.pairwise import limited, random_pairwise, vars_of


@given(seed=st.integers(0, 10_000), room=st.sampled_from([0.0, 0.5, 1.0]))
def test_cost_and_peak_are_those_of_plain_loops(seed: int, room: float) -> None:
    problem = random_pairwise(seed, room=room)
    choice = np.random.default_rng(seed).integers(0, problem.choices)
    report, cost, peak = validate_pairwise(problem, choice), pairwise_cost(problem, choice), peak_usage(problem, choice)
    assert report.peak_usage == peak
    assert any("forbid" in violation for violation in report.violations) == (cost >= FORBIDDEN)
    assert any("over the limit" in violation for violation in report.violations) == (peak > problem.usage_limit)
    if report.ok:
        assert report.cost == cost


def test_a_peak_at_the_limit_is_within_it_and_one_above_is_not() -> None:
    problem = random_pairwise(3)
    choice = np.zeros(problem.nodes, np.int64)
    peak = peak_usage(problem, choice)
    assert peak > 0
    for limit, over in ((peak, False), (peak - 1, True)):
        violations = validate_pairwise(limited(problem, limit), choice).violations
        assert any("1 over the limit" in violation for violation in violations) == over


def test_what_is_no_choice_and_a_wrong_claim_are_said() -> None:
    problem = random_pairwise(3)
    choice = np.zeros(problem.nodes, np.int64)
    assert "6 nodes have a choice where the problem has 7" in validate_pairwise(problem, choice[1:]).violations[0]
    assert "node 2 takes choice" in validate_pairwise(problem, np.where(np.arange(7) == 2, 9, 0)).violations[0]
    cost = validate_pairwise(problem, choice).cost
    assert any(f"said to be {cost + 1}" in violation for violation in validate_pairwise(problem, choice, cost + 1).violations)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"choice_usage": np.zeros(3, np.int64)}, "choice_usage has shape"),
        ({"edge_nodes": np.full((10, 2), 1)}, "joins a node with itself"),
        ({"edge_cost": np.full(1, 5), "edge_start": np.array([0, 1]), "edge_nodes": np.array([[0, 1]])}, "as many costs"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairwiseProblem(**{**vars_of(random_pairwise(3)), **changed})


def test_a_cost_below_zero_is_refused() -> None:
    problem = random_pairwise(3)
    with pytest.raises(ValueError, match="below 0"):
        PairwiseProblem(**{**vars_of(problem), "choice_cost": problem.choice_cost - FORBIDDEN})
