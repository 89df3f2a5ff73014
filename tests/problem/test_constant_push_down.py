"""Ops wait for what they wait for in the graph that TensorFlow runs, beside that graph itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.tf._private.runtime import recorded_partitions
from tests.problem.test_formulate import formulated


def product(x: Any, y: Any, name: str = "inner") -> Any:
    return tf.multiply(x, y, name=name)


WAITS_FOR_LESS: dict[str, Callable[[Any, Any], Any]] = {
    "after": lambda x, y: product(x, y) * 0.5,
    "before": lambda x, y: 0.5 * product(x, y),
    "other_order": lambda x, y: product(y, x) * 0.5,
    "division": lambda x, y: product(x, y) / 8.0,
    "row": lambda x, y: product(x, y) * tf.constant([0.5, 2.0, 3.0, 4.0]),
    "column": lambda x, y: product(x, y) * tf.constant([[0.5], [2.0], [3.0]]),
}
WAITS_AS_WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "no_constant": lambda x, y: product(x, y) * tf.nn.elu(y),
    "another_kind": lambda x, y: product(x, y) - 0.5,
    "divisor": lambda x, y: 0.5 / product(x, y),
    "larger_constant": lambda x, y: product(x, y) * tf.fill([4, 3, 4], 0.5),
    "also_a_result": lambda x, y: (inner := product(x, y), inner * 0.5),
    "low_precision": lambda x, y: product(*(tf.cast(t, tf.bfloat16) for t in (x, y))) * 0.5,
}


def test_what_is_made_then_has_the_shape_of_both() -> None:
    def fn(x: Any) -> Any:
        late = tf.nn.softmax(tf.nn.softmax(tf.ones([64, 1]) * x[0, 0]), name="late")
        return tf.nn.elu(product(late, tf.nn.elu(x)) * tf.constant(0.5, shape=[64, 1]))

    problem = formulated(placer.build_graph(tf.function(fn), tf.ones([1, 256]))).problem
    inner = problem.ops.names.index("inner")
    (made,) = np.flatnonzero(problem.tensors.op == inner)
    assert problem.tensors.held_bytes[made] == 4 * 64 * 256


@pytest.mark.parametrize("name", [*WAITS_FOR_LESS, *WAITS_AS_WRITTEN])
def test_a_constant_is_pushed_down_where_tensorflow_does(name: str) -> None:
    def fn(x: Any) -> Any:
        late = tf.nn.softmax(tf.nn.softmax(tf.nn.softmax(x)), name="late")
        return tf.nest.map_structure(tf.nn.elu, (WAITS_FOR_LESS | WAITS_AS_WRITTEN)[name](late, tf.nn.elu(x)))

    x, placed = tf.ones([3, 4]), tf.function(fn)
    problem = formulated(placer.build_graph(placed, x)).problem
    inner, late = (problem.ops.moment[problem.ops.names.index(op)] for op in ("inner", "late"))
    with recorded_partitions() as recorded:
        placed(x)
    nodes = {node.name: node for function in recorded for graph in function.partition_graphs for node in graph.node}
    waits, todo = set(), ["inner"]
    while todo:
        waits.add(op := todo.pop())
        todo += [source.split(":")[0] for source in nodes[op].input if not source.startswith("^")]
    assert (inner < late) == ("late" not in waits) == (name in WAITS_FOR_LESS)
