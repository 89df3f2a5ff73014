"""Training: an algorithm improves a policy from episode to episode, until there were enough or the time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np

from placer.common.clock import TimeUpError, limit
from placer.problem.arrays import Floats
from placer.research.env import PlacementEnv
from placer.research.learning.policy import Episode, Policy

Trainer: TypeAlias = Callable[[PlacementEnv, np.random.Generator], Iterator[tuple[Episode, Policy]]]
"""A function from an environment and a generator to episodes without end, each with the policy so far."""

EPISODES = 400


@dataclass(frozen=True, eq=False)
class Training:
    """The result of a training of E episodes."""

    policy: Policy
    """The policy after the last episode."""
    scores: Floats
    """[E], see `Episode.score`."""
    best: Episode | None
    """The episode with the best score; None if none ended in time."""


def train(
    trainer: Trainer, env: PlacementEnv, *, episodes: int = EPISODES, seed: int = 0, time_limit_s: float | None = None
) -> Training:
    """Trains a policy whose weights are 0 at first.

    Args:
        trainer: `reinforce` or `cross_entropy` of this package, or another.
        env: the environment, of one problem or of problems that are drawn.
        episodes: the number of episodes.
        seed: of all that is drawn.
        time_limit_s: ends the training before, also within an episode; by `placer.common.clock`. None for no limit.

    Raises OptionError if there is nothing to decide, see `PlacementEnv.reset`.
    """
    policy, played = Policy(), list[Episode]()
    with limit(time_limit_s), suppress(TimeUpError):
        for episode, learned in islice(trainer(env, np.random.default_rng(seed)), episodes):
            played.append(episode)
            policy = learned
    scores = np.array([episode.score for episode in played])
    return Training(policy, scores, max(played, key=lambda episode: episode.score, default=None))
