"""Draws of random numbers, written so that XLA makes the numbers that TensorFlow's kernels make.

XLA and TensorFlow draw the same random integers by the same counter (Philox), but make other floats of them. A draw of floats is
replaced by a draw of integers and TensorFlow's own steps from there: `Uint32ToFloat` and `BoxMullerFloat` in
tensorflow/core/lib/random/random_distributions*.h. Box-Muller is from G. Box and M. Muller, A Note on the Generation of Random
Normal Deviates, Annals of Mathematical Statistics, 1958, doi:10.1214/aoms/1177706645.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from placer.tf._private.func_graphs import FuncGraph, unique_id
from placer.tf._private.functions import register_body

EQUAL_IN_XLA = frozenset({"StatelessRandomUniformIntV2", "StatelessRandomUniformFullIntV2"})
"""Draws that are the same compiled and not compiled."""
_MIN_UNIFORM = 1e-7
"""The least number that Box-Muller takes the logarithm of."""


def same_draws(operation: Any) -> Any:
    """The function that draws what `operation` draws, in XLA too; None for an op that draws nothing or cannot be replaced."""
    draw = _DRAWS.get(operation.type)
    if draw is None or operation.outputs[0].dtype != tf.float32 or not operation.outputs[0].shape.is_fully_defined():
        return None
    return _function(operation.type, tuple(operation.outputs[0].shape), tuple(t.dtype for t in operation.inputs))


def _uniform(shape: tuple[int, ...], key: Any, counter: Any, algorithm: Any) -> Any:
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(shape=shape, key=key, counter=counter, alg=algorithm, dtype=tf.uint32)
    mantissa = tf.bitwise.bitwise_and(bits, tf.constant(0x7FFFFF, tf.uint32))
    return tf.bitcast(tf.bitwise.bitwise_or(mantissa, tf.constant(0x3F800000, tf.uint32)), tf.float32) - 1.0


def _normal(shape: tuple[int, ...], key: Any, counter: Any, algorithm: Any) -> Any:
    count = math.prod(shape)
    pairs = tf.reshape(_uniform((count + count % 2,), key, counter, algorithm), (-1, 2))
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(pairs[:, 0], _MIN_UNIFORM)))
    angle = 2.0 * math.pi * pairs[:, 1]
    numbers = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.reshape(tf.reshape(numbers, (-1,))[:count], shape)


_DRAWS: dict[str, Callable[..., Any]] = {"StatelessRandomUniformV2": _uniform, "StatelessRandomNormalV2": _normal}


@functools.cache
def _function(op_type: str, shape: tuple[int, ...], input_types: tuple[tf.DType, ...]) -> Any:
    """A registered function from the inputs of a draw (shape, key, counter, algorithm) to its numbers."""
    graph = FuncGraph(f"draw_placed_{unique_id()}")
    with graph.as_default():
        graph.inputs = [tf.compat.v1.placeholder(dtype) for dtype in input_types]
        graph.outputs = [_DRAWS[op_type](shape, *graph.inputs[1:])]
    return register_body(graph.name, graph)
