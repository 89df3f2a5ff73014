"""Ops that TensorFlow makes one of on a CPU, beside the graphs that it runs, and what that one takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pytest
import tensorflow as tf
from tensorflow.python.framework import test_util

import placer
from cost_models.base import OpSignature
from cost_models.measuring.chains import Bench, plain_graphs
from placer.problem.fusion import chains
from placer.tf._private.runtime import recorded_partitions

pytestmark = pytest.mark.skipif(not test_util.IsMklEnabled(), reason="oneDNN is off here, so TensorFlow makes one op of fewer")

Case: TypeAlias = Callable[[Any, Any, Any], Any]


def add_bias(x: Any, w: Any, b: Any, **options: Any) -> Any:
    return tf.nn.bias_add(tf.matmul(x, w, **options), b)


def conv(x: Any, w: Any, b: Any, **options: Any) -> Any:
    return tf.nn.bias_add(tf.nn.conv2d(x, w, **{"strides": 1, "padding": "SAME"} | options), b)


def in_a_loop(x: Any, w: Any, b: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.nn.relu(add_bias(y, w, b))), (0, x))


def into_a_loop(x: Any, w: Any, b: Any) -> Any:
    product = x @ w
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * tf.nn.bias_add(product, b)), (0, x))


def used_twice(x: Any, w: Any, b: Any) -> Any:
    product = x @ w
    return tf.nn.bias_add(product, b), tf.exp(product)


def a_result(x: Any, w: Any, b: Any) -> Any:
    y = add_bias(x, w, b)
    return y, tf.nn.relu(y)


def waited_for(x: Any, w: Any, b: Any) -> Any:
    y = add_bias(x, w, b)
    with tf.control_dependencies([y]):
        return tf.exp(x), tf.tanh(y)


def trained(x: Any, w: Any, b: Any, activation: Callable[[Any], Any]) -> Any:
    with tf.GradientTape() as tape:
        tape.watch((w, b))
        loss = tf.reduce_sum(activation(x @ w + b) ** 2)
    return tape.gradient(loss, (w, b))


ACTIVATIONS = (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.leaky_relu, tf.tanh, tf.sigmoid, tf.nn.selu, tf.nn.softmax, tf.exp)
PRODUCTS: dict[str, Case] = {
    **{f.__name__: (lambda x, w, b, f=f: f(add_bias(x, w, b))) for f in ACTIVATIONS},
    "added": lambda x, w, b: x @ w + b,
    "added_first": lambda x, w, b: tf.nn.relu(b + x @ w),
    "added_as_a_row": lambda x, w, b: x @ w + tf.reshape(b, [1, 8]),
    "one_number": lambda x, w, b: x @ w + b[:1],
    "transposed": lambda x, w, b: add_bias(x, w, b, transpose_a=True),
    "slope": lambda x, w, b: tf.nn.leaky_relu(add_bias(x, w, b, transpose_b=True), 0.3),
    "no_bias": lambda x, w, b: tf.nn.relu(x @ w),
    "one_more": lambda x, w, b: tf.tanh(add_bias(x, w, b) + tf.exp(x)),
    "one_before": lambda x, w, b: tf.add_n([tf.exp(x), add_bias(x, w, b)]),
    "two": lambda x, w, b: add_bias(x, w, b) + add_bias(tf.exp(x), w, b),
    "a_row_more": lambda x, w, b: add_bias(x, w, b) + x[:1],
    "sum_of_three": lambda x, w, b: x @ w + b + tf.exp(x),
    "sum_of_three_after": lambda x, w, b: add_bias(x, w, b) + (tf.exp(x) + x),
    "sum_then_bias": lambda x, w, b: tf.nn.bias_add(x @ w + tf.exp(x) @ w, b),
    "used_twice": used_twice,
    "a_result": a_result,
    "doubles": lambda x, w, b: add_bias(*(tf.cast(t, tf.float64) for t in (x, w, b))),
    "in_a_loop": in_a_loop,
    "into_a_loop": into_a_loop,
    "in_a_branch": lambda x, w, b: tf.cond(x[0, 0] > 0, lambda: tf.nn.relu(add_bias(x, w, b)), lambda: x),
    "waited_for": waited_for,
    "trained": lambda x, w, b: trained(x, w, b, tf.nn.relu),
    "trained_by_what_goes_in": lambda x, w, b: trained(x, w, b, tf.nn.leaky_relu),
}
CONVOLUTIONS: dict[str, Case] = {
    **{f"conv_{f.__name__}": (lambda x, w, b, f=f: f(conv(x, w, b))) for f in ACTIVATIONS},
    "conv_added": lambda x, w, b: tf.nn.relu(tf.nn.conv2d(x, w, 2, "VALID") + tf.reshape(b, [1, 1, 1, 4])),
    "conv_one_more": lambda x, w, b: tf.nn.leaky_relu(conv(x, w, b, dilations=2) + x),
    "conv_sum": lambda x, w, b: tf.tanh(x + conv(x, w, b, padding=[[0, 0], [1, 1], [1, 1], [0, 0]])),
}
BREAKING: dict[str, Case] = {
    "broken": lambda x, w, b: (tf.nn.relu(add_bias(x, w, b) + tf.exp(x)), tf.sin(add_bias(tf.cos(x), w, b)))
}


def test_chains_are_the_ops_that_tensorflow_runs_and_a_measurement_too() -> None:
    found, ran = found_and_ran(PRODUCTS | CONVOLUTIONS)
    assert {last: signature.attr("fused_ops") for last, signature in found.items()} == {
        last: ops for last, (ops, _) in ran.items()
    }
    kernels = {signature: kernel for last, signature in found.items() for _, kernel in [ran[last]]}
    with plain_graphs():
        for signature, kernel in kernels.items():
            with recorded_partitions() as recorded:
                Bench(signature, "CPU:0")
            assert [node.op for node in fused(recorded)] == [kernel], signature


def test_nothing_is_one_op_in_a_function_that_tensorflow_fails_to_optimise() -> None:
    assert found_and_ran(BREAKING) == ({}, {})


def found_and_ran(
    cases: Mapping[str, Case],
) -> tuple[dict[tuple[str, str], OpSignature], dict[tuple[str, str], tuple[tuple[str, ...], str]]]:
    """The chains of a function of all cases, read from its saved graph, and the parts and types of ops that are several.

    By the case and the last op's own name.
    """

    def shapes(name: str) -> tuple[tuple[int, ...], ...]:
        return ((1, 8, 8, 4), (3, 3, 4, 4), (4,)) if name in CONVOLUTIONS else ((8, 8), (8, 8), (8,))

    def step(given: Any) -> Any:
        results = {}
        for name, case in cases.items():
            with tf.name_scope(name):
                results[name] = case(*given[name])
        return results

    def key(name: str) -> tuple[str, str]:
        return name.partition("/")[0], name.rpartition("/")[2]

    given, function = {name: [tf.random.normal(shape) for shape in shapes(name)] for name in cases}, tf.function(step)
    graph = placer.OpGraph.from_json(json.loads(json.dumps(placer.build_graph(function, given).to_json())))
    with recorded_partitions() as recorded:
        function(given)
    return (
        {key(chain.ops[-1].name): chain.signature for chain in chains(graph)},
        {key(node.name): (tuple(part.decode() for part in node.attr["fused_ops"].list.s), node.op) for node in fused(recorded)},
    )


def fused(recorded: list[Any]) -> list[Any]:
    """Nodes that TensorFlow made of several."""
    return [node for each in recorded for part in each.partition_graphs for node in part.node if "Fused" in node.op]
