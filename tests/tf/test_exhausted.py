"""Placed calls that run out of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import OutOfMemoryError, PlacementWarning
from tests.machines import two_cpus

THERE = "CPU:1"
HUGE = 2**46
"""More than any host has, which TensorFlow learns only when the step runs."""


def placed(fn: Any, **options: Any) -> placer.PlacedFunction:
    """The function where what it fills is planned for the second device."""
    return placer.place(fn, devices=two_cpus(), pins={"there*": THERE}, **options)


def filled(size: tf.Tensor) -> tf.Tensor:
    ones = tf.fill(tf.reshape(size, [1]), 1.0, name="there")
    return tf.reduce_sum(ones[:4]) + tf.reduce_sum(tf.ones([64, 64], name="there_too"))


def size(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)


def test_it_is_told_with_what_was_expected_and_the_way_out() -> None:
    f = placed(filled)
    assert f(size(8)) == 4.0 + 64 * 64
    expected = f.placement.totals[THERE].peak_bytes
    with pytest.raises(OutOfMemoryError, match="ran out of memory on CPU:1: TensorFlow refused 262144 GiB") as told:
        f(size(HUGE))
    assert isinstance(told.value, tf.errors.ResourceExhaustedError)
    assert "'there_too' (16.0 KiB)" in str(told.value)
    limit = int(str(told.value).partition("memory_limits={'CPU:1': ")[2].partition("}")[0])
    assert 0 < limit < expected
    assert f(size(8)) == 4.0 + 64 * 64


def work(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """Best on the second device, and on the first where that has less memory."""
    return tf.matmul(x, x, name="matmul") + filled(n)


X = tf.random.stateless_uniform([512, 512], [1, 2])


def test_a_call_that_changes_nothing_is_planned_and_made_again() -> None:
    f = placed(work, on_out_of_memory="replan")
    plain = work(X, size(8))
    np.testing.assert_allclose(f(X, size(8)), plain, rtol=1e-4)
    assert f.placement.device_of("matmul") == THERE
    with pytest.warns(PlacementWarning, match="The next call is planned with"), pytest.raises(OutOfMemoryError) as told:
        f(X, size(HUGE))  # in vain, so that the second time it is told
    assert "The next call" not in str(told.value)
    assert f.placement.device_of("matmul") == "CPU:0"
    np.testing.assert_allclose(f(X, size(8)), plain, rtol=1e-4)


def test_a_call_that_may_have_changed_something_is_not_made_again() -> None:
    count = tf.Variable(0)

    def step(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        count.assign_add(1)
        return work(x, n)

    f = placed(step, on_out_of_memory="replan")
    f(X, size(8))
    with pytest.raises(OutOfMemoryError, match=r"next call is planned with .*put them back"):
        f(X, size(HUGE))
    assert count.numpy() <= 2
    np.testing.assert_allclose(f(X, size(8)), work(X, size(8)), rtol=1e-4)
    assert f.placement.device_of("matmul") == "CPU:0"


def test_other_errors_are_as_they_are() -> None:
    f = placed(lambda x: tf.debugging.check_numerics(x, "bad") + tf.ones([2], name="there"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
        f(tf.constant([1.0, float("nan")]))
