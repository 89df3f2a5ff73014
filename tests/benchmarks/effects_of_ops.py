"""Functions on one device, each of which shows one effect on the time of a step; see `effects`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from examples.workloads import Workload

HOST, DEVICE = "host", "device"
"""CPU:0; and the first GPU, or a second logical CPU where there is none."""


def on(where: str) -> Any:
    """A `tf.device` scope for `HOST` or `DEVICE`."""
    return tf.device("/CPU:0" if where == HOST else "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:1")


def steps(x: Any, length: int) -> Any:
    """A chain of so many ops that Grappler neither folds nor fuses."""
    other = x
    for _ in range(length):
        x = tf.raw_ops.Maximum(x=x, y=other)
    return x


def workload(run: Callable[..., Any], where: str, *args: Any, state: Any = ()) -> Workload:
    """A function with its arguments at ``where``."""
    with on(where):
        return Workload(tf.function(run), tuple(tf.identity(x) for x in args), tuple(state), trains=False)


def floats(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))


def chain(where: str, length: int, *, elements: int = 64, parallel: int = 1) -> Workload:
    """Chains of ops, each of which needs the one before."""

    def run(*starts: Any) -> Any:
        with on(where):
            return [steps(x, length) for x in starts]

    return workload(run, where, *[floats(elements, seed=i) for i in range(parallel)])


def fan(where: str, width: int) -> Workload:
    """One op whose result many ops use, and one op that adds up their results."""

    def run(x: Any, *others: Any) -> Any:
        with on(where):
            return tf.add_n([tf.raw_ops.Maximum(x=x, y=other) for other in tf.unstack(others[0])])

    return workload(run, where, floats(64), floats(width, 64))


def many_arguments(where: str, count: int, *, made: str | None = None) -> Workload:
    """One op that takes many arguments, which are at ``made`` or, by default, at ``where``."""

    def run(*args: Any) -> Any:
        with on(where):
            return tf.raw_ops.AddN(inputs=args)

    return workload(run, made or where, *[floats(64, seed=i) for i in range(count)])


def many_variables(where: str, count: int, *, assigned: bool, made: str | None = None) -> Workload:
    """Many variables that are read or assigned at ``where``; they are at ``made`` or, by default, there too."""
    with on(made or where):
        variables = [tf.Variable(floats(64, seed=i)) for i in range(count)]

    def run(x: Any) -> Any:
        with on(where):
            if not assigned:
                return tf.raw_ops.AddN(inputs=[x, *variables])
            for variable in variables:
                variable.assign_add(x)
            return tf.identity(x)

    return workload(run, where, floats(64), state=variables)


def shapes(where: str, length: int) -> Workload:
    """A chain of ops on int32 scalars, which stay in host memory."""

    def run(x: Any) -> Any:
        with on(where):
            for _ in range(length):
                x = tf.raw_ops.Maximum(x=x, y=x)
            return x

    return workload(run, where, tf.constant(3))


def products(where: str, side: int, length: int, *, parallel: int = 1) -> Workload:
    """Chains of matrix products."""

    def run(*starts: Any) -> Any:
        with on(where):
            ends = []
            for x in starts:
                y = x
                for _ in range(length):
                    y = x @ y
                ends.append(y[0, 0])
            return ends

    return workload(run, where, *[floats(side, side, seed=i) / side for i in range(parallel)])


def interrupted(where: str, count: int, pause: int) -> Workload:
    """Products that all cores compute, with a pause of tiny ops on one core before each."""

    def run(x: Any, tiny: Any) -> Any:
        with on(where):
            y = x
            for _ in range(count):
                with tf.control_dependencies([y]):
                    tiny = steps(tiny, pause)
                with tf.control_dependencies([tiny]):
                    y = x @ y
            return y[0, 0], tf.reduce_max(tiny)

    return workload(run, where, floats(256, 256) / 256, floats(64))


def vectors(where: str, count: int, *, own: bool) -> Workload:
    """Products of a vector and matrices of 4 MiB: an ``own`` matrix for each, as layers have, or one for all."""
    with on(where):
        matrices = [tf.Variable(floats(1024, 1024, seed=i) / 1024) for i in range(count if own else 1)]

    def run(x: Any) -> Any:
        with on(where):
            for i in range(count):
                x = x @ matrices[i % len(matrices)]
            return x

    return workload(run, where, floats(1, 1024), state=matrices)


def weighted(where: str, count: int) -> Workload:
    """Wide layers with nothing between them."""
    with on(where):
        matrices = [tf.Variable(floats(4096, 4096, seed=i) / 4096) for i in range(count)]

    def run(x: Any) -> Any:
        with on(where):
            for matrix in matrices:
                x = x @ matrix
            return tf.reduce_max(x)

    return workload(run, where, floats(512, 4096), state=matrices)


def distinct(where: str, count: int, parallel: int) -> Workload:
    """Ops that run on one core."""

    def run(*keys: Any) -> Any:
        with on(where):
            return [tf.unique(k).idx[0] for k in keys]

    rng = np.random.default_rng(0)
    return workload(run, where, *[tf.constant(rng.integers(0, count, count)) for _ in range(parallel)])


def kept_products(where: str, length: int) -> Workload:
    """Products with weights of their own, whose results are all kept to the end, as in a training step."""
    with on(where):
        weights = [tf.Variable(floats(512, 512, seed=i) / 512) for i in range(length)]

    def run(x: Any) -> Any:
        with on(where):
            results = [x]
            for w in weights:
                results.append(results[-1] @ w)
            return firsts(results)

    return workload(run, where, floats(4096, 512), state=weights)


def kept_passes(where: str, length: int, elements: int) -> Workload:
    """Passes over memory, whose results are all kept to the end."""

    def run(x: Any) -> Any:
        with on(where):
            results = [x]
            for _ in range(length):
                results.append(tf.raw_ops.Maximum(x=results[-1], y=x))
            return firsts(results)

    return workload(run, where, floats(elements))


def firsts(results: list[Any]) -> Any:
    """The sum of the first numbers of all results. It waits for the last result, so all are kept until then."""
    with tf.control_dependencies(results[-1:]):
        return tf.add_n([tf.reshape(y, [-1])[0] for y in results])


def suppressions(where: str, parallel: int, *, side: float) -> Workload:
    """Non-max suppressions of 4,096 boxes at random places; the larger their ``side``, the more of them overlap."""

    def run(boxes: Any, *scores: Any) -> Any:
        with on(where):
            return [tf.image.non_max_suppression(boxes, each, 100)[0] for each in scores]

    corners = np.random.default_rng(0).random((4096, 2), np.float32)
    boxes = tf.constant(np.concatenate([corners, corners + np.float32(side)], axis=1))
    return workload(run, where, boxes, *[floats(4096, seed=i) for i in range(parallel)])


def in_order(where: str, count: int, *, drawn: bool) -> Workload:
    """Sorting of numbers that are ``drawn`` at random, or sorted already."""

    def run(x: Any) -> Any:
        with on(where):
            return tf.math.top_k(x, count).indices[0]

    x = np.random.default_rng(0).random(count, np.float32)
    return workload(run, where, tf.constant(x if drawn else np.sort(x)[::-1].copy()))


def string_columns(rows: int, columns: int) -> Workload:
    """A matrix of strings, unstacked into columns that are hashed."""

    def run(table: Any) -> Any:
        with on(HOST):
            return [tf.strings.to_hash_bucket_fast(column, 1000)[0] for column in tf.unstack(table, axis=1)]

    words = np.array([f"word{i % 5000}" for i in range(rows * columns)]).reshape(rows, columns)
    return workload(run, HOST, tf.constant(words))


def dense(where: str, width: int, layers: int) -> Workload:
    """Dense layers, which Grappler fuses on a CPU."""
    with on(where):
        weights = [tf.Variable(floats(width, width, seed=i) / width) for i in range(layers)]
        biases = [tf.Variable(floats(width, seed=i)) for i in range(layers)]

    def run(x: Any) -> Any:
        with on(where):
            for w, b in zip(weights, biases, strict=True):
                x = tf.nn.relu(tf.nn.bias_add(x @ w, b))
            return tf.reduce_mean(x)

    return workload(run, where, floats(256, width), state=[*weights, *biases])


def convolutions(where: str, channels: int, layers: int, *, back: bool = False) -> Workload:
    """Convolutions with relu, and their gradient if ``back``."""
    with on(where):
        filters = [tf.Variable(0.05 * floats(3, 3, channels, channels, seed=i)) for i in range(layers)]

    def run(x: Any) -> Any:
        with on(where), tf.GradientTape() as tape:
            for w in filters:
                x = tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME"))
            x = tf.reduce_mean(x)
        with on(where):
            return [tf.reduce_sum(g) for g in tape.gradient(x, filters)] if back else x

    return workload(run, where, floats(16, 56, 56, channels), state=filters)


def loop(where: str, rounds: int, ops: int, *, through: str | None = None) -> Workload:
    """A while loop, with one op of its body at ``through`` if given."""

    def run(x: Any) -> Any:
        with on(where):
            for _ in tf.range(rounds):
                x = steps(x, ops)
                if through:
                    with on(through):
                        x = steps(x, 1)
            return x

    return workload(run, where, floats(64))
