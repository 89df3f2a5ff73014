"""What a rewritten function must not do otherwise than the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.machines import two_cpus


@pytest.mark.parametrize("writer", ["callback", "dataset"])
def test_a_variable_that_unseen_code_writes_is_read_in_each_iteration(writer: str) -> None:
    with tf.device("CPU:1"):
        v = tf.Variable(1.0)
    numbers = iter(tf.data.Dataset.range(100).map(lambda i: v.assign_add(1.0))) if writer == "dataset" else None

    @tf.function
    def fn(x: Any) -> Any:
        for _ in tf.range(3):
            t = tf.py_function(lambda _: v.assign_add(1.0), [x], tf.float32) if numbers is None else next(numbers)
            with tf.control_dependencies([t]):
                x = x + v.read_value()
        return x

    placed = placer.place(fn, devices=two_cpus())
    # The callback runs before each read: 2 + 3 + 4. A dataset may be ahead, never behind.
    assert float(placed(tf.constant(0.0))) >= 9.0


def test_a_loop_over_an_old_style_function_is_kept_whole() -> None:
    def fn(x: Any) -> Any:  # its loop's body is a Defun, which has no graph to read
        labels, lengths = tf.constant([[1, 2]]), (tf.constant([2]), tf.constant([4]))
        return tf.nn.ctc_loss(labels, x, *lengths, logits_time_major=False, blank_index=0)

    x = tf.ones([1, 4, 3])
    placer.place(fn, devices="h100").plan(x)
    np.testing.assert_allclose(placer.place(fn, devices=two_cpus())(x), fn(x), rtol=1e-5)
