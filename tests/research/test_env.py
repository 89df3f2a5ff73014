"""The environment: actions are devices of units, and the reward is minus the step time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placer
from placer.errors import OptionError
from placer.problem.problem import PlacementProblem
from placer.research.choices import FEATURES
from placer.research.env import PlacementEnv, dead_end_ns
from placer.research.instances.families import synthetic
from placer.solvers.heuristics.earliest_finish import earliest_finish_assignment
from tests.helpers.random_problems import problems


@given(problems(), st.integers(0, 2**32 - 1))
def test_an_episode_of_actions_from_the_mask_ends_with_minus_the_step_time(problem: PlacementProblem, seed: int) -> None:
    rng, env, decided, over = np.random.default_rng(seed), PlacementEnv(problem), [], False
    try:
        observation, info = env.reset(seed=seed)
    except OptionError:  # there is nothing to decide, or no memory for the first unit
        return
    while not over:
        unit, mask = observation["unit"], observation["mask"]
        assert observation["device"][unit] == -1
        assert (mask <= problem.units.allowed[unit]).all()
        assert mask.shape == (problem.num_devices,)
        assert observation["features"].shape == (problem.num_devices, len(FEATURES))
        assert np.isfinite(observation["features"]).all()
        action = int(rng.choice(np.flatnonzero(mask)))
        decided.append((unit, action))
        observation, reward, over, cut_off, info = env.step(action)
        assert cut_off is False
        assert over or reward == 0
        assert all(observation["device"][unit] == device for unit, device in decided)
    if info["assignment"] is None:
        assert reward == -dead_end_ns(problem)
        assert not observation["mask"].any()
        return
    found = placer.evaluate(problem, info["assignment"])
    assert found.feasible
    assert reward == -found.step_time_ns > -dead_end_ns(problem)
    assert observation["unit"] == -1
    assert info["assignment"].device.tolist() == observation["device"].tolist()


def test_a_seed_draws_the_same_problem_again_and_goes_on_from_there() -> None:
    def draw(rng: np.random.Generator) -> PlacementProblem:
        return synthetic("layered", ops=int(rng.integers(10, 60)))

    env, sizes = PlacementEnv(draw), []
    for seed in (1, None, None, 1, None, 2):
        env.reset(seed=seed)
        sizes.append(env.problem.num_ops)
    assert sizes[:2] == sizes[3:5]
    assert len({*sizes}) > 2


@pytest.mark.parametrize("shape", ["layered", "towers"])
def test_a_policy_that_follows_the_first_feature_does_as_earliest_finish_does(shape: str) -> None:
    """Where no unit has several ops, the ends of ops that a learner sees are those of that heuristic."""
    problem = synthetic(shape, ops=40, gpus=2, memory=0.6, cpu_only=0.0)
    problem = problem.with_units(np.arange(40), problem.units.take("U", problem.ops.unit))
    env, over = PlacementEnv(problem), False
    observation, info = env.reset()
    while not over:
        end = np.where(observation["mask"], observation["features"][:, FEATURES.index("end")], np.inf)
        observation, _, over, _, info = env.step(int(end.argmin()))
    assert (info["assignment"].device == earliest_finish_assignment(problem).device).all()


@pytest.mark.parametrize("wrong", [-1, 2, 1.0, 0.5, float("nan"), None, True, "0", [0], np.array([1])])
def test_a_wrong_action_is_refused_with_the_right_ones_and_changes_nothing(wrong: object) -> None:
    env = PlacementEnv(synthetic("chain", ops=12, cpu_only=0.0))
    observation, _ = env.reset()
    for part in ("mask", "device"):
        observation[part][:] = True  # what a learner does to its observation is its own affair
    with pytest.raises(OptionError, match=r"the mask has \[0, 1\]"):
        env.step(wrong)  # type: ignore[arg-type]
    observation, *_ = env.step(1)
    assert (observation["device"] == -1).sum() == len(observation["device"]) - 1


def test_an_episode_ends_once_and_the_next_begins_with_reset() -> None:
    env, over = PlacementEnv(synthetic("chain", ops=5, cpu_only=0.0)), False
    first, _ = env.reset(seed=3)
    while not over:
        *_, over, _, _ = env.step(0)
    with pytest.raises(OptionError, match="call reset first"):
        env.step(0)
    again, _ = env.reset(seed=3)
    assert all(np.array_equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_what_is_no_seed_or_no_problem_is_said(seed: Any) -> None:
    with pytest.raises(OptionError, match=f"seed={seed!r}"):
        PlacementEnv(synthetic("chain", ops=5)).reset(seed=seed)
    with pytest.raises(OptionError, match="no PlacementProblem"):
        PlacementEnv(seed)
    with pytest.raises(OptionError, match=f"returned {seed!r}, which is no PlacementProblem"):
        PlacementEnv(lambda rng: seed).reset()


def test_where_nothing_can_be_decided_that_is_said() -> None:
    problem = synthetic("chain", ops=12, cpu_only=0.0)
    env = PlacementEnv(problem)
    with pytest.raises(OptionError, match="call reset"):
        env.step(0)
    with pytest.raises(OptionError, match="no unit has a choice"):
        PlacementEnv(problem.with_allowed(problem.units.allowed & [True, False])).reset()
    tight = problem.with_memory_limits(np.array([0, 0]))
    with pytest.raises(OptionError, match="no device has memory"):
        PlacementEnv(tight).reset()
