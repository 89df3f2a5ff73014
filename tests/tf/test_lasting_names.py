"""A plan made before fits the function when it is traced again, here or in another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus


def nested() -> Any:
    w = tf.Variable(tf.ones([4, 4]), name="w")
    inner = tf.function(lambda x: x @ w)
    return lambda x: tf.sin(inner(x))


def module() -> Any:
    class Layer(tf.Module):
        def __init__(self) -> None:
            self.first, self.second = tf.Variable(tf.ones([4, 4])), tf.Variable(tf.ones([4, 4]))

        @tf.function
        def __call__(self, x: Any) -> Any:
            return (x @ self.first) @ self.second

    return Layer()


def captured_value() -> Any:
    value = tf.ones([4, 4])
    inner = tf.function(lambda x: x @ value)
    return lambda x: inner(x) + inner(2 * x)


def callback() -> Any:
    return lambda x: tf.numpy_function(np.square, [x], tf.float32)


def concrete() -> Any:
    w = tf.Variable(tf.ones([4, 4]))
    fn = tf.function(lambda x: x @ w).get_concrete_function(tf.ones([2, 4]))
    fn.keeps = w
    return fn


def scoped() -> Any:
    table, value = tf.Variable(tf.ones([4, 4]), name="table"), tf.ones([4])

    def f(x: Any) -> Any:
        rows = tf.nn.embedding_lookup(table, [0, 1], name="rows")
        with tf.name_scope("block"):
            return x + rows + tf.function(lambda: table * value)()[:2]

    return f


@pytest.mark.parametrize("build", [nested, module, captured_value, callback, concrete, scoped])
def test_a_saved_plan_fits_the_function_traced_anew(build: Callable[[], Any], tmp_path: Any) -> None:
    x = tf.ones([2, 4])
    plan = placer.solve(placer.build_graph(build(), x), two_cpus())
    plan.save(tmp_path / "plan.json")
    tf.function(lambda y: tf.function(lambda: y * 2.0)())(x)  # TensorFlow's counters go on
    fn = build()
    placed = placer.apply(fn, placer.Placement.load(tmp_path / "plan.json"))
    np.testing.assert_allclose(placed(x), fn(x), rtol=1e-6)
    assert placed.placement.ops.keys() == plan.ops.keys()


def test_a_function_that_outlived_its_variables_is_refused() -> None:
    fn = concrete()
    del fn.keeps
    with pytest.raises(placer.TraceError, match="deleted"):
        placer.place(fn, devices=two_cpus())


def test_a_concrete_function_is_placed_as_it_is() -> None:
    fn = concrete()
    x = tf.ones([2, 4])
    placed = placer.place(fn, devices=two_cpus())
    assert len(placed.placements) == 1  # it has one signature: planned at once
    assert list(placed.placement.ops) == [op.name for op in placer.build_graph(fn)]
    np.testing.assert_allclose(placed(x), fn(x))
