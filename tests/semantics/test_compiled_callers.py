"""A placed function that a function compiled by XLA calls: left as it is, with a warning, and observed as that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.errors import PlacementWarning, PlanError
from placer.placed.function import PlacedFunction
from tests.helpers.machines import two_cpus

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


def step(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(x @ x)


def placed() -> PlacedFunction:
    return placer.place(step, devices=two_cpus(), pins={"MatMul": "CPU:1"})


def compiled(function: Callable[..., Any]) -> Any:
    def outer(x: tf.Tensor) -> tf.Tensor:
        return function(x) + 1.0

    return tf.function(outer, jit_compile=True)


def in_a_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    def loop(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, x: i < 1, lambda i, x: (i + 1, function(x)), [0, x])[1]

    return loop


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function, in_a_loop], ids=["itself", "a function", "a loop"])
@pytest.mark.parametrize("trace_only", [False, True], ids=["called", "traced"])
def test_a_compiled_caller_is_named_once(wrap: Callable[..., Any], trace_only: bool) -> None:
    fn = placed()
    outer = compiled(wrap(fn))
    with pytest.warns(PlacementWarning, match=r"step is left as it is: 'outer' calls it, .*pins are ignored.*jit_compile=False"):
        (outer.get_concrete_function if trace_only else outer)(X)
    tf.debugging.assert_near(outer(X), step(X) + 1.0)
    with pytest.raises(PlanError):
        _ = fn.placement
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outer(tf.ones([3, 3]))
        observation = fn.observe(X)
    assert observation.compiled_callers == ("'outer'",)
    assert observation.ran["matmul"] == "CPU:1"
    assert "in 'outer' the ops are in one compiled unit" in str(observation)
    assert "each op ran" not in str(observation)


def test_a_caller_between_that_was_traced_before_is_seen_by_observe() -> None:
    fn = placed()
    between = tf.function(fn)
    between(X)
    outer = compiled(between)
    assert fn.observe(X).compiled_callers == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tf.debugging.assert_near(outer(X), step(X) + 1.0)
    assert fn.observe(X).compiled_callers == ("'outer'",)
    assert placed().observe(X).compiled_callers == ()


def test_a_step_of_keras_is_compiled_unless_it_is_told_not_to_be() -> None:
    import keras

    def fitted(fn: PlacedFunction, jit_compile: bool) -> None:
        class Layer(keras.layers.Layer):
            def call(self, x: tf.Tensor) -> tf.Tensor:
                return fn(x)

        model = keras.Sequential([keras.Input((2,), batch_size=2), Layer(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=jit_compile)
        model.fit(X, tf.ones([2, 1]), batch_size=2, verbose=0)

    fn = placed()
    with pytest.warns(PlacementWarning, match=r"'one_step_on_data' of Keras calls it"):
        fitted(fn, True)
    assert fn.observe(X).compiled_callers == ("'one_step_on_data' of Keras",)
    by_plan = placed()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlacementWarning)
        fitted(by_plan, False)
    assert by_plan.observe(X).compiled_callers == ()
    assert str(by_plan.observe(X)).endswith("each op ran on its planned device")
