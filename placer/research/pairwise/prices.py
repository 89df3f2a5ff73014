"""Memory prices at each moment, by the volume algorithm."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats

MIN_STEP, MAX_STEP, FIRST_STEP = 1e-4, 1.0, 0.1
"""Step lengths, as shares of the distance from the bound to the target."""
STEP_GROWTH, STEP_DECAY, DECAY_ROUNDS = 1.05, 0.7, 20
"""A step grows by the first factor after a better bound, and by the second after so many rounds without one."""
REL_GAIN_TOL = 1e-7
"""A bound is better if it gains more than this share of itself."""
MEAN_WEIGHT = 0.1
"""Weight of the latest excess in the running mean."""


class Prices:
    """Memory prices that raise a Lagrangian bound: steps from the best prices along a running mean of the excess memory.

    F. Barahona, R. Anbil, The volume algorithm: producing primal solutions with a subgradient method, Mathematical Programming
    87, 2000.
    """

    def __init__(self, moments: int) -> None:
        self.price = self.best = np.zeros(moments)
        self.bound = -np.inf
        self._mean: Floats | None = None
        self._step = FIRST_STEP
        self._rounds_without_gain = 0

    @property
    def settled(self) -> bool:
        """Whether the step has reached its minimum."""
        return self._step <= MIN_STEP

    def learn(self, bound: float, excess: Floats, target: float) -> None:
        """Makes new prices.

        Args:
            bound: the bound at the present prices.
            excess: [T]: memory in use above the room, at the present prices.
            target: the cost that the bound should come close to.
        """
        self._mean = excess if self._mean is None else (1 - MEAN_WEIGHT) * self._mean + MEAN_WEIGHT * excess
        gain = bound - self.bound
        if gain > 0:
            self.bound, self.best = bound, self.price
        if gain > REL_GAIN_TOL * abs(bound):
            self._step, self._rounds_without_gain = min(self._step * STEP_GROWTH, MAX_STEP), 0
        else:
            self._rounds_without_gain += 1
            if self._rounds_without_gain == DECAY_ROUNDS:
                self._step, self._rounds_without_gain = max(self._step * STEP_DECAY, MIN_STEP), 0
        direction = np.where((self.best > 0) | (self._mean > 0), self._mean, 0.0)
        length = float(direction @ direction)
        if length > 0:
            # A target far above the bound would make the step too long.
            distance = min(target - self.bound, max(0.5 * abs(self.bound), 1.0))
            self.price = np.maximum(0.0, self.best + self._step * distance / length * direction)
