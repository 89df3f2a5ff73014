"""What ran is told apart from what TensorFlow adds around it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import tensorflow as tf

import placer
from placer.tf._private.runtime import recorded_partitions
from placer.tf.run.observing import Mismatch
from tests.helpers.machines import two_cpus


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
    assert told[1:] == ["each op ran on its planned device"]
    elsewhere = replace(seen, mismatches=(Mismatch("f", "CPU:0", "CPU:1"),))
    assert str(elsewhere).splitlines()[1:] == ["f: planned for CPU:0, ran on CPU:1"]


def test_tf_default_keeps_loop_values_where_tensorflow_does() -> None:
    """What is carried round a loop stays on the device that its first value asks for, wherever the loop's own ops are."""

    def carried(here: Any, there: Any) -> Any:
        with tf.device("CPU:1"):
            pinned, other = tf.sqrt(there), tf.constant(0.5)
        free = tf.exp(there)
        for _ in tf.range(4):
            pinned, free, here, other = pinned * 1.5, free + pinned, here - 0.5, other * here[0]
        return pinned, free, here, other

    with tf.device("CPU:0"):
        here = tf.constant([1.0, 2.0])
    with tf.device("CPU:1"):
        there = tf.constant([3.0, 4.0])
    function = tf.function(carried).get_concrete_function(here, there)
    with recorded_partitions() as functions:
        function(here, there)
    nodes = [node for run in functions for graph in run.partition_graphs for node in graph.node]
    rounds = [node for node in nodes if node.op == "NextIteration" and node.attr["T"].type == tf.float32]
    rounds = [node for node in rounds if not node.name.startswith("_cloop")]  # loops that partitioning adds to keep in step
    ran = Counter(node.device[-5:] for node in rounds)

    placement = placer.solve(placer.build_graph(function, here, there), solver="tf_default")
    planned = Counter(
        plan.device
        for op, plan in zip(placement.graph, placement.ops.values(), strict=True)
        if op.op_type == "NextIteration" and op.signature.inputs[0].dtype == "float32"
    )
    assert planned == ran == {"CPU:0": 2, "CPU:1": 2}
