"""Learners learn: what they choose after training is better than random devices, on new problems too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import placer
from placer.problem.problem import PlacementProblem
from placer.research.env import PlacementEnv
from placer.research.instances.families import synthetic
from placer.research.learning.policy import Policy, play
from placer.research.learning.solver import TRAINERS, Learner
from placer.research.learning.training import train
from placer.solvers.base import Solution, Status
from placer.solvers.run import run as solve_within

SMALL = synthetic("layered", ops=24, gpus=2, memory=0.5, seed=1)


def random_score(problem: PlacementProblem, episodes: int = 40) -> float:
    """The mean score of random devices."""
    rng = np.random.default_rng(0)
    return float(np.mean([play(PlacementEnv(problem), Policy(), rng).score for _ in range(episodes)]))


def step_ns(problem: PlacementProblem, policy: Policy) -> int:
    evaluation = placer.evaluate(problem, policy.assign(problem))
    assert evaluation.feasible
    return evaluation.step_time_ns


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trained_policy_is_better_than_random_devices(name: str) -> None:
    training = train(TRAINERS[name][0], PlacementEnv(SMALL), episodes=120, seed=0)
    assert training.best is not None
    assert -np.log(step_ns(SMALL, training.policy)) > random_score(SMALL) + 0.2
    assert training.scores[-40:].mean() > training.scores[:20].mean()
    assert training.best.score == training.scores.max() == -np.log(placer.evaluate(SMALL, training.best.assignment).step_time_ns)


@pytest.mark.parametrize("name", TRAINERS)
def test_what_was_learned_on_some_problems_holds_on_others(name: str) -> None:
    """Steps are shorter than those of random devices on problems that were not drawn, of another size."""
    pool = [synthetic("layered", ops=20, seed=seed) for seed in range(20)]
    training = train(TRAINERS[name][0], PlacementEnv(lambda rng: pool[int(rng.integers(20))]), episodes=200, seed=0)
    held_out = [synthetic("layered", ops=40, seed=seed) for seed in range(100, 106)]
    gains = [-np.log(step_ns(problem, training.policy)) - random_score(problem, 8) for problem in held_out]
    assert np.mean(gains) > 0.15


@pytest.mark.parametrize("name", TRAINERS)
def test_a_learner_is_a_solver(name: str) -> None:
    learner = Learner(name, episodes=30)  # type: ignore[arg-type]
    first, again, other = (learner.solve(SMALL, "step_time", seed=seed) for seed in (3, 3, 4))
    assert first.assignment is not None
    evaluation = placer.evaluate(SMALL, first.assignment)
    assert (evaluation.feasible, evaluation.step_time_ns, first.status) == (True, first.objective_ns, Status.FEASIBLE)
    assert first.objective_ns == again.objective_ns
    assert "30 episodes" in first.stop_text
    assert other.assignment is not None
    assert learner.unsupported(SMALL, "total_cost")
    assert learner.cite()
    assert learner.solve(SMALL, "step_time", time_limit_s=1e-9).status is Status.UNKNOWN
    by_effort = [solve_within(learner, SMALL, "step_time", effort=300) for _ in range(2)]
    assert all(isinstance(solution, Solution) and "time limit" in solution.stop_text for solution in by_effort)
    assert by_effort[0].stop_text == by_effort[1].stop_text
    nothing = SMALL.with_allowed(SMALL.units.allowed & [True, False, False])
    assert learner.solve(nothing, "step_time").status is Status.OPTIMAL


def test_policies_are_compared_like_any_solver_and_known_by_their_weights(tmp_path: Path) -> None:
    for policy in (Policy(), train(TRAINERS["reinforce"][0], PlacementEnv(SMALL), episodes=20).policy):
        results = tmp_path / "results.jsonl"
        (record,) = placer.arena({"small": SMALL}, [policy.solver("mine")], time_limits_s=[1], results=results).records
        assert (record["outcome"], record["solver"]) == ("answered", "mine")
        assert record["step_time_ns"] == step_ns(SMALL, policy)
