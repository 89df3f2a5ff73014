"""What a rewritten function must not do otherwise than the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.copies import copies
from tests.helpers.machines import two_cpus


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


def partitions(fn: Any, pins: Any, *args: Any) -> list[Any]:
    """What TensorFlow runs of a placed function, a GraphDef a device."""
    placed = placer.place(fn, devices=two_cpus(), pins=pins)
    with recorded_partitions() as recorded:
        np.testing.assert_allclose(placed(*args), fn(*args), rtol=1e-5)
    return [graph for function in recorded for graph in function.partition_graphs]


def test_an_op_on_the_host_sends_what_it_makes_by_itself() -> None:
    """Only what goes straight from op to send is in pinned memory on the way to a GPU."""

    def fn(x: Any) -> Any:
        return tf.matmul(tf.sort(x, name="sorted"), tf.exp(x, name="exp"))

    x = tf.random.stateless_uniform([8, 8], [1, 2])
    graphs = partitions(fn, {"*sorted*": "CPU:0", "*exp": "CPU:0", "MatMul": "CPU:1", "Identity": "CPU:0"}, x)
    makers = {node.name: node for graph in graphs for node in graph.node}
    sends = [node for graph in graphs for node in graph.node if node.op == "_Send" and node.device.endswith("CPU:0")]
    assert {makers[send.input[0].partition(":")[0]].op for send in sends} == {"Neg", "Exp"}
    assert {"CPU:0", "CPU:1"} == {dst for *_, dst in copies(graphs)}


def test_what_nothing_needs_does_not_run_where_it_crosses() -> None:
    def fn(x: Any) -> Any:
        tf.matmul(tf.exp(x, name="before"), x, name="unused")
        return tf.sin(tf.matmul(x, x, name="used"), name="result")

    graphs = partitions(fn, {"before": "CPU:0", "unused": "CPU:1", "used": "CPU:0", "result": "CPU:1"}, tf.eye(4))
    ran = {node.name for graph in graphs for node in graph.node}
    assert {"used", "result"} <= ran
    assert not {"unused", "before"} & ran
