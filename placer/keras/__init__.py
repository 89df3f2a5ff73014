"""Keras models whose `fit`, `evaluate` and `predict` run by plan; see docs/keras.md."""

from placer.keras.optimized import optimize

__all__ = ["optimize"]
