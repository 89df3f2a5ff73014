"""Keras 3 models on TensorFlow whose `fit`, `evaluate` and `predict` run by plan; see docs/keras.md."""

from placer.keras.optimized import optimize

__all__ = ["optimize"]
