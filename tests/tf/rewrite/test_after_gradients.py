"""TensorFlow edits a function's graphs when its gradient is taken; what placer reads is the function all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus

X = tf.constant(np.linspace(-0.5, 1.0, 16, dtype=np.float32).reshape(4, 4))
W = tf.Variable(tf.fill([4, 4], 0.1), name="w")


@tf.function
def inner(x: Any) -> Any:
    return tf.tanh(x @ W) * 2.0


@tf.function(jit_compile=True)
def compiled(x: Any) -> Any:
    return tf.tanh(x) * x


@tf.custom_gradient
def doubled(x: Any) -> Any:
    return 2.0 * tf.exp(x), lambda upstream: upstream * x * 3.0


def straight(x: Any) -> Any:
    return tf.tanh(x @ W) * x


def calls(x: Any) -> Any:
    return inner(x) + inner(2.0 * x)


def calls_compiled(x: Any) -> Any:
    for _ in tf.range(2):
        x = compiled(x)
    return x


def looped(x: Any) -> Any:
    for _ in tf.range(3):
        x = tf.tanh(x @ W)
    return x


def branched(x: Any) -> Any:
    return tf.exp(x @ W) if tf.reduce_sum(x) > 0 else tf.sin(x)


def switched(x: Any) -> Any:
    branches = [lambda: tf.exp(x), lambda: tf.sin(x @ W), lambda: x * x]
    return tf.switch_case(tf.cast(tf.reduce_sum(x), tf.int32) % 3, branches)


def all_nested(x: Any) -> Any:
    for _ in tf.range(2):
        x = inner(x) if tf.reduce_sum(x) > 0 else x * x
        for _ in tf.range(2):
            x = tf.tanh(x) * x
    return x


def mapped(x: Any) -> Any:
    return tf.map_fn(lambda row: tf.tanh(row) * tf.reduce_sum(row), x)


def custom(x: Any) -> Any:
    for _ in tf.range(2):
        x = doubled(tf.tanh(x))
    return x


def gradient(fn: Callable[[Any], Any], persistent: bool = False) -> Any:
    with tf.GradientTape(persistent=persistent) as tape:
        tape.watch(X)
        total = tf.reduce_sum(fn(X) ** 2)
    return tape.gradient(total, X)


def second_gradient(fn: Callable[[Any], Any]) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        first = gradient(fn)
    tape.gradient(first, X)


def tangent(fn: Callable[[Any], Any]) -> None:
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as accumulator:
        result = fn(X)
    accumulator.jvp(result)


def inside(fn: Callable[[Any], Any]) -> None:
    tf.function(lambda: gradient(fn))()


TAKEN = (tangent, gradient, lambda fn: gradient(fn, persistent=True), second_gradient, inside)
"""Forward mode first: TensorFlow itself cannot take it of a loop whose gradient was taken."""


@pytest.mark.parametrize("body", [straight, calls, calls_compiled, looped, branched, switched, all_nested, mapped, custom])
def test_a_function_reads_the_same_whichever_gradients_were_taken(body: Callable[[Any], Any]) -> None:
    fn = tf.function(body)
    plan = placer.place(fn, X, devices=two_cpus(), seed=1).placement
    expected, slope = fn(X), gradient(tf.function(body))
    for take in TAKEN:
        take(fn)
        assert placer.build_graph(fn, X).fingerprint == plan.fingerprint
    placed = placer.apply(fn, plan)
    np.testing.assert_allclose(placed(X), expected, rtol=1e-5)
    again = placer.place(fn, devices=two_cpus())
    for found in (gradient(again), gradient(fn)):
        np.testing.assert_allclose(found, slope, rtol=1e-4)
