"""Cross-entropy: the distribution that weights are drawn from moves to the best of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.research.env import PlacementEnv
from placer.research.learning.policy import Episode, Policy, play

SOURCE = (
    "I. Szita, A. Lorincz, Learning Tetris using the noisy cross-entropy method, Neural Computation 18(12), 2006, "
    "doi:10.1162/neco.2006.18.12.2936"
)
POPULATION, ELITE = 20, 5
"""The number of weights that are drawn, and of those that the next distribution is made of."""
FIRST_DEVIATION, NOISE = 2.0, 0.2
"""The first standard deviation, and what is added to those of the elite, so that the search does not end too early."""


def cross_entropy(env: PlacementEnv, rng: np.random.Generator) -> Iterator[tuple[Episode, Policy]]:
    """Draws weights from a normal distribution, plays an episode with each, and fits the distribution to the best.

    All weights of a population are tried on the same problem, with the most probable devices. The policy so far has the mean.
    """
    mean = Policy().weights
    deviation = np.full_like(mean, FIRST_DEVIATION)
    while True:
        problem_seed = int(rng.integers(2**31))
        population = rng.normal(mean, deviation, (POPULATION, len(mean)))
        scores = []
        for weights in population:
            episode = play(env, Policy(weights), seed=problem_seed)
            scores.append(episode.score)
            yield episode, Policy(mean)
        elite = population[np.argsort(scores, kind="stable")[-ELITE:]]
        mean, deviation = elite.mean(axis=0), elite.std(axis=0) + NOISE
