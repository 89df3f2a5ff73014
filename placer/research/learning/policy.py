"""A policy: a probability for each device that the next unit may use, by the features of the devices; and episodes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Floats
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.choices import FEATURES
from placer.research.env import Observation, PlacementEnv
from placer.solvers.heuristic import Heuristic
from placer.solvers.primitives.repair import repair
from placer.solvers.sources import own_work

DECISION_OP_RUNS = 40
"""The work of a decision, see `placer.common.clock.spend`."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Chooses a device with probability proportional to exp(features · weights).

    The weights are the same for all units, devices and problems. So a policy can place a problem on which it was not trained.
    """

    weights: Floats = field(default_factory=lambda: np.zeros(len(FEATURES)))
    """[F], by `FEATURES`. With zeros, all devices that the mask has are equally probable."""

    def probabilities(self, observation: Observation) -> Floats:
        """[D]; 0 for the devices that the mask excludes."""
        score = np.where(observation["mask"], observation["features"] @ self.weights, -np.inf)
        odds = np.exp(score - score.max())
        share: Floats = odds / odds.sum()
        return share

    def assign(self, problem: PlacementProblem) -> Assignment:
        """The most probable device for each unit; repaired, where that succeeds, if no device has memory for a unit."""
        episode = play(PlacementEnv(problem), self)
        return episode.assignment if episode.fits else repair(problem, episode.assignment) or episode.assignment

    def solver(self, name: str) -> Heuristic:
        """A solver that gives the assignment of `assign`."""
        return Heuristic(name, self.assign, own_work("a trained policy"))


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of an environment."""

    score: float
    """The logarithm of 1 / step time in ns: equal differences are equal ratios of step times."""
    assignment: Assignment
    fits: bool
    """Whether there was memory for every unit. If not, the units without a device are on the first that they may use."""
    gradient: Floats
    """[F]: the gradient of the logarithm of the probability of the episode's actions, by the weights."""


def play(
    env: PlacementEnv,
    policy: Policy,
    rng: np.random.Generator | None = None,
    *,
    seed: int | None = None,
) -> Episode:
    """Plays an episode.

    Args:
        env: the environment.
        policy: chooses the devices.
        rng: draws devices by their probabilities; without it, the most probable device is chosen, the first of equals.
        seed: of the problem, see `PlacementEnv.reset`.

    Raises:
        OptionError: there is nothing to decide, see `PlacementEnv.reset`.
        TimeUpError: the time of a `placer.common.clock.limit` is over.
    """
    observation, _ = env.reset(seed=seed)
    gradient, over, reward = np.zeros(len(policy.weights)), False, 0.0
    while not over:
        spend(DECISION_OP_RUNS)
        share = policy.probabilities(observation)
        action = int(share.argmax() if rng is None else rng.choice(len(share), p=share))
        gradient += observation["features"][action] - share @ observation["features"]
        observation, reward, over, _, _ = env.step(action)
    device = observation["device"]
    fits = bool((device >= 0).all())
    assignment = Assignment(np.where(device >= 0, device, env.problem.units.allowed.argmax(axis=1)))
    return Episode(-math.log(max(1.0, -reward)), assignment, fits, gradient)
