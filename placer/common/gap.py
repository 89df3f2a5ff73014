"""The relative gap of a value to a lower bound, the same for every solver and every kind of problem."""

from __future__ import annotations


def relative_gap(value: float, bound: float) -> float:
    """(value - bound) / value: the share of the value that a better one can save at most. 0 if the value is not above the bound.

    Args:
        value: what a solver minimised.
        bound: a proven lower bound on it.
    """
    return max(0.0, (value - bound) / value) if value > 0 else 0.0
