"""What ran is told apart from what TensorFlow adds around it."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

import placer
from placer.tf.observing import Mismatch
from tests.machines import two_cpus


def test_a_wait_that_tensorflow_adds_for_another_device_is_not_the_op_that_waits() -> None:
    with tf.device("CPU:1"):
        first, second = tf.Variable(1.0), tf.Variable(2.0)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            with tf.control_dependencies([first.assign(x).op, second.assign(x).op]):
                x = tf.sin(x, name="afterwards")
        return x

    placed = placer.place(f, tf.constant(3.0), devices=two_cpus(), pins={"*/afterwards": "CPU:0"})
    seen = placed.observe(tf.constant(3.0))
    assert seen.ran["while/body/afterwards"] == "CPU:0"
    assert seen.mismatches == ()
    told = str(seen).splitlines()
    assert told[0].startswith(f"{len(seen.ran)} ops ran, ")
    assert told[1:] == ["each where its plan says"]
    elsewhere = replace(seen, mismatches=(Mismatch("f", "CPU:0", "CPU:1"),))
    assert str(elsewhere).splitlines()[1:] == ["f: planned for CPU:0, ran on CPU:1"]
