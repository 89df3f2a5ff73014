"""REINFORCE: the weights of a policy follow the gradient of the expected score."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.research.env import PlacementEnv
from placer.research.learning.policy import Episode, Policy, play

SOURCE = (
    "R. J. Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning, Machine Learning "
    "8(3), 1992, doi:10.1007/BF00992696"
)
BATCH = 10
"""Episodes with the same problem before the weights change."""
RATE, MOMENTUM, SQUARES, MIN_SCALE = 0.2, 0.9, 0.99, 1e-8
"""The step size, the decay of both means, and the smallest divisor of Adam (D. P. Kingma, J. Ba, 2015, arXiv:1412.6980)."""


def reinforce(env: PlacementEnv, rng: np.random.Generator) -> Iterator[tuple[Episode, Policy]]:
    """Draws episodes with the policy, and makes what was better than the mean of the batch more probable.

    This is REINFORCE with the mean of a batch as baseline (Williams 1992): the gradient is the mean of (score - mean) / deviation
    times the gradient of the logarithm of the probability of the actions. Adam makes steps of it.
    """
    policy = Policy()
    mean, square = np.zeros_like(policy.weights), np.zeros_like(policy.weights)
    step = 0
    while True:
        problem_seed = int(rng.integers(2**31))
        batch = []
        for _ in range(BATCH):
            batch.append(play(env, policy, rng, seed=problem_seed))
            yield batch[-1], policy
        scores = np.array([episode.score for episode in batch])
        advantage = (scores - scores.mean()) / max(MIN_SCALE, scores.std())
        gradient = advantage @ np.array([episode.gradient for episode in batch]) / BATCH
        step += 1
        mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
        square = SQUARES * square + (1 - SQUARES) * gradient**2
        scaled = mean / (1 - MOMENTUM**step) / (np.sqrt(square / (1 - SQUARES**step)) + MIN_SCALE)
        policy = Policy(policy.weights + RATE * scaled)
