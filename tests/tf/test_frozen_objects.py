"""Objects that `gc.freeze()` hides may hold a variable that moves.

A file of its own, late in the run: afterwards, collections go through what tests/conftest.py froze.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import MoveError
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4])


def test_frozen_objects_are_noticed() -> None:
    with tf.device("CPU:0"):
        w = tf.Variable(tf.reshape(tf.range(16.0), [4, 4]) / 16, name="w")
    f = tf.function(lambda x: x @ w)
    f(X)
    placed = placer.place(lambda x: 2 * x @ w, devices=two_cpus(), variables="move", pins={"w": "CPU:1"})
    gc.freeze()
    try:
        with pytest.raises(MoveError, match="objects after gc"):
            placed(X)
    finally:
        gc.unfreeze()
    placed(X)
    w.assign(tf.eye(4))
    np.testing.assert_allclose(f(X), X)
