"""Placing a function leaves it as it was, whatever was done with it before."""

from __future__ import annotations

import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import Builder, Program, RandomLegal, behaviour, compare, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


def nested() -> Program:
    w = tf.Variable(tf.fill([4, 4], 0.2))

    @tf.function
    def layer(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ w)

    return Program(fn=tf.function(lambda x: (layer(x), layer(layer(x)))), args=(X,), state=[w])


def loop() -> Program:
    w = tf.Variable(tf.fill([4, 4], 0.2))

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for _ in tf.range(n):
            x = tf.tanh(x @ w)
        return x, x + 1.0

    return Program(fn=f, args=(X, tf.constant(3)), state=[w])


def branch() -> Program:
    w = tf.Variable(tf.fill([4, 4], 0.2))

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0, 0] > 0.0, lambda: x, lambda: tf.sin(x @ w) * x)

    return Program(fn=f, args=(X,), state=[w])


@pytest.mark.parametrize("build", [nested, loop, branch])
def test_a_function_whose_gradient_was_taken_can_be_placed(build: Builder) -> None:
    reference, program = build(), build()
    expected = [behaviour(reference, reference.fn) for _ in range(3)]
    compare("plain", expected[0], behaviour(program, program.fn), program)
    placed = placer.place(program.fn, devices=two_cpus(), solver=RandomLegal(0))
    with soft_placement(False):
        compare("placed", expected[1], behaviour(program, placed), program)
    compare("plain again", expected[2], behaviour(program, program.fn), program)
