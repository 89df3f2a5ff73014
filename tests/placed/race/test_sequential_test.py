"""The sequential test of a race, with times that are made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placer.placed.race.sequential_test import MAX_CALLS, MAX_EXCESS_S, WARM_UP_CALLS, SequentialTest

NAMES = ["a", "b", "c", "d", "e"]


def race(means_s: dict[str, float], spread: float = 0.0, seed: int = 0, first_call_s: float = 0.0) -> SequentialTest:
    """A race whose candidates take times about their means; the first call of each takes longer."""
    rng, test = np.random.default_rng(seed), SequentialTest(list(means_s))
    while not test.end:
        name = test.next()
        first_s = 0.0 if test.entrants[name].seconds else first_call_s
        test.add(name, first_s + means_s[name] * float(np.exp(spread * rng.standard_normal())))
    return test


MEANS = st.lists(st.floats(1e-5, 5.0), min_size=2, max_size=5).map(lambda means: dict(zip(NAMES, means, strict=False)))


@given(means=MEANS, first_call_s=st.sampled_from([0.0, 0.01, 2.0]))
def test_every_race_ends_within_its_limits(means: dict[str, float], first_call_s: float) -> None:
    test = race(means, first_call_s=first_call_s)
    assert sum(len(entrant.seconds) for entrant in test.entrants.values()) <= MAX_CALLS
    assert test.fastest in test.racing()
    dearest_call = max(seconds for entrant in test.entrants.values() for seconds in entrant.seconds)
    assert test.excess_s <= MAX_EXCESS_S + dearest_call  # the last call may exceed the limit


@given(means=MEANS)
def test_without_noise_the_fastest_of_those_that_were_tried_wins(means: dict[str, float]) -> None:
    test = race(means)
    tried = {name: mean for name, mean in means.items() if test.entrants[name].seconds}
    assert means[test.fastest] == min(tried.values())
    assert {"a", "b"} <= set(tried)


@given(means=MEANS)
def test_the_baseline_is_kept_unless_another_gains_its_share(means: dict[str, float]) -> None:
    test = race(means)
    assert means[test.winner("b")] <= means["b"]
    assert test.winner("b") == "b" or means[test.winner("b")] < 0.98 * means["b"]


def test_the_fastest_rarely_leaves_a_race_of_noisy_candidates() -> None:
    lost = 0
    for seed in range(300):
        test = race({"a": 1.0e-3, "b": 1.1e-3, "c": 1.3e-3, "d": 2e-3}, spread=0.08, seed=seed)
        lost += "slower" in test.entrants["a"].outcome
    assert lost <= 0.05 * 300


def test_on_a_noisy_machine_a_slower_candidate_rarely_replaces_the_baseline() -> None:
    for spread in (0.05, 0.2, 0.4):
        chosen = [race({"a": 1.1e-3, "b": 1.0e-3, "c": 1.3e-3}, spread=spread, seed=seed).winner("b") for seed in range(300)]
        assert sum(name != "b" for name in chosen) <= 0.05 * 300, spread


def test_what_is_far_slower_costs_few_calls() -> None:
    test = race({"a": 27e-3, "b": 30e-3, "c": 350e-3}, spread=0.03)
    assert len(test.entrants["c"].seconds) == WARM_UP_CALLS
    assert test.fastest == "a"


def test_a_candidate_whose_first_call_would_cost_too_much_is_not_tried() -> None:
    test = race({"a": 0.1, "b": 0.2, "c": 0.01}, first_call_s=10.0)
    assert not test.entrants["c"].seconds
    assert test.fastest == "a"


def test_a_candidate_that_failed_is_not_chosen() -> None:
    test = SequentialTest(["a", "b"])
    for _ in range(4):
        test.add(test.next(), 1.0)
    test.drop("b", "failed: out of memory")
    assert test.end
    assert test.winner("b") == "a"


@given(means=MEANS, first_call_s=st.sampled_from([0.0, 0.01, 2.0]))
def test_the_cost_is_what_was_paid_beyond_calls_of_the_candidate_that_is_used(
    means: dict[str, float], first_call_s: float
) -> None:
    test = race(means, first_call_s=first_call_s)
    used = test.winner("b")
    assume(test.entrants[used].timed)
    calls = sum(len(entrant.seconds) for entrant in test.entrants.values())
    paid_s = sum(sum(entrant.seconds) for entrant in test.entrants.values())
    without_a_race_s = calls * means[used] + first_call_s
    assert test.cost_s(used) == pytest.approx(max(0.0, paid_s - without_a_race_s), abs=1e-9 + 1e-9 * paid_s)
