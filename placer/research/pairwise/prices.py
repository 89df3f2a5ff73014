"""Prices of memory: the volume algorithm."""

from __future__ import annotations

import numpy as np

from placer.problem.arrays import Floats

LEAST_STEP, LONGEST_STEP, FIRST_STEP = 1e-4, 1.0, 0.1
"""Shares of the way to the target that a step aims at."""
GROWTH, DECAY, PATIENCE = 1.05, 0.7, 20
"""Of steps, after a better bound, and after so many rounds without."""
WORTH = 1e-7
"""Of a bound, by which it is called better."""
WEIGHT = 0.1
"""Of the latest excess in the mean."""


class Prices:
    """Prices that make a Lagrangian bound large: steps from the best ones so far, along a running mean of what is held in excess.

    F. Barahona, R. Anbil, The volume algorithm: producing primal solutions with a subgradient method, Mathematical Programming
    87, 2000.
    """

    def __init__(self, moments: int) -> None:
        self.price = self.best = np.zeros(moments)
        self.bound = -np.inf
        self._mean: Floats | None = None
        self._step = FIRST_STEP
        self._waited = 0

    @property
    def settled(self) -> bool:
        """Whether steps have become too short to be worth more."""
        return self._step <= LEAST_STEP

    def learn(self, bound: float, excess: Floats, target: float) -> None:
        """New prices, from the bound at the present ones, what is held there above the room, and the cost to come close to."""
        self._mean = excess if self._mean is None else (1 - WEIGHT) * self._mean + WEIGHT * excess
        gained = bound - self.bound
        if gained > 0:
            self.bound, self.best = bound, self.price
        if gained > WORTH * abs(bound):
            self._step, self._waited = min(self._step * GROWTH, LONGEST_STEP), 0
        else:
            self._waited += 1
            if self._waited == PATIENCE:
                self._step, self._waited = max(self._step * DECAY, LEAST_STEP), 0
        way = np.where((self.best > 0) | (self._mean > 0), self._mean, 0.0)
        length = float(way @ way)
        if length > 0:
            # A target far away is no guide.
            ahead = min(target - self.bound, max(0.5 * abs(self.bound), 1.0))
            self.price = np.maximum(0.0, self.best + self._step * ahead / length * way)
