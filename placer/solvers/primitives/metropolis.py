"""The Metropolis rule of simulated annealing, and geometric cooling."""

from __future__ import annotations

import math
from collections.abc import Callable


def temperature_at(progress: float, first: float, end_share: float) -> float:
    """The temperature after a share of the moves, 0 to 1: it falls geometrically from `first` to `end_share` of that."""
    return float(first * end_share**progress)


def is_accepted(rise: float, temperature: float, draw: Callable[[], float]) -> bool:
    """Whether a move that raises the objective is kept: with probability ``exp(-rise / temperature)``, always if it does not.

    N. Metropolis, A. W. Rosenbluth, M. N. Rosenbluth, A. H. Teller, E. Teller, Equation of state calculations by fast computing
    machines, 1953; S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, 1983.

    Args:
        rise: by how much the move raises the objective.
        temperature: in the unit of the objective, above 0.
        draw: gives a random number from 0 to 1. It is called only if the objective rises.
    """
    return rise <= 0 or draw() < math.exp(-rise / temperature)
