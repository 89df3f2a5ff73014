"""Small functions, each of which shows one way in which a step uses memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from examples.workloads import Size, Workload

SIDE = {"full": 2048, "small": 64}
"""Side of a matrix; at full size, one of float32 takes 16 MiB."""


def effects(size: Size = "full") -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Effects by name, each with a function that builds its workload where TensorFlow puts it."""
    side = SIDE[size]
    for dtype in (tf.float32, tf.bfloat16):
        for n in (side // 8, side):
            yield f"product_{n}_{dtype.name}", partial(_product, n, dtype)
        yield f"convolution_{dtype.name}", partial(_convolution, side, dtype, back=False)
        yield f"convolution_back_{dtype.name}", partial(_convolution, side, dtype, back=True)
    yield "products_batched", partial(_of, lambda x: tf.einsum("abcd,abed->abce", x, x), (8, 8, side // 4, 64))
    yield "dense_relu", partial(_dense, side)
    yield "depthwise_back", partial(_depthwise, side)
    yield "normalised_back", partial(_normalised, side)
    unary: dict[str, Callable[[Any], Any]] = {
        "softmax": tf.nn.softmax,
        "sum": lambda x: tf.reduce_sum(x, axis=0),
        "sum_all": tf.reduce_sum,
        "transpose": lambda x: tf.transpose(x, [1, 0]),
        "cumsum": tf.cumsum,
        "top_k": lambda x: tf.math.top_k(x, 10).values,
        "sort": lambda x: tf.sort(tf.reshape(x, [-1])),
        "unique": lambda x: tf.unique(tf.cast(1000 * tf.reshape(x, [-1]), tf.int64)).y,
        "where": lambda x: tf.where(x > 0),
        "random": lambda x: x + tf.random.normal(tf.shape(x)),
        "halves": lambda x: tf.concat(tf.split(x, 2), axis=1),
        "adds_in_place": _adds,
        "kept_and_changed": lambda x: _bounded(x, 1.0) + _bounded(x, 2.0),
        "views": lambda x: _bounded(tf.reshape(_bounded(x, 1.0), [-1]), 2.0),
        "view_and_original": _view_and_original,
        "broadcast": lambda x: _bounded(x[0], 1.0) + _bounded(x, 2.0),
        "fan": partial(_fan, parallel=8),
        "towers": partial(_towers, parallel=4, length=4),
        "ladder": partial(_ladder, length=8),
    }
    for name, fn in unary.items():
        yield name, partial(_of, fn, (side, side))
    yield "loss", partial(_loss, side)
    yield "boxes", partial(_boxes, 16 * side)
    yield "resized", partial(_of, lambda x: tf.image.resize(x, [224, 224]), (8, side // 8, side // 8, 3))
    yield "segments", partial(_segments, side)
    yield "loop", partial(_loop, side, back=False)
    yield "loop_back", partial(_loop, side, back=True)
    yield "assigned", partial(_assigned, side)
    yield "momentum", partial(_optimizer, side, "momentum")
    yield "adam", partial(_optimizer, side, "adam")
    yield "adam_keras", partial(_keras_adam, side)
    yield "rows", partial(_rows, side)
    yield "argument_crossing", partial(_crossing, side)


def _normal(*shape: int, dtype: Any = tf.float32) -> Any:
    return tf.cast(tf.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32)), dtype)


def _small(result: Any) -> Any:
    """Something of all of it that is cheap to fetch, and that no graph optimiser pushes through."""
    return tf.cast(tf.reshape(result, [-1])[:1], tf.float32)


def _bounded(x: Any, least: float) -> Any:
    """An op that Grappler neither folds nor fuses."""
    return tf.maximum(x, tf.cast(least, x.dtype))


def _of(fn: Callable[[Any], Any], shape: tuple[int, ...]) -> Workload:
    return Workload(tf.function(lambda x: _small(fn(x))), (_normal(*shape),), (), trains=False)


def _product(n: int, dtype: Any) -> Workload:
    return Workload(tf.function(lambda x: _small(x @ x)), (_normal(n, n, dtype=dtype),), (), trains=False)


def _dense(n: int) -> Workload:
    x, b = _normal(n, n), _normal(n)
    return Workload(tf.function(lambda x: _small(tf.nn.relu(tf.nn.bias_add(x @ x, b)))), (x,), (), trains=False)


def _convolution(side: int, dtype: Any, *, back: bool) -> Workload:
    x, w = _normal(32, side // 32, side // 32, 64, dtype=dtype), _normal(3, 3, 64, 64, dtype=dtype)

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(x, w, 1, "SAME")
        return [_small(g) for g in (tape.gradient(y, [x, w]) if back else [y])]

    return Workload(tf.function(fn), (x,), (), trains=False)


def _depthwise(side: int) -> Workload:
    x, w = _normal(32, side // 32, side // 32, 64), _normal(3, 3, 64, 1)

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME")
        return [_small(g) for g in tape.gradient(y, [x, w])]

    return Workload(tf.function(fn), (x,), (), trains=False)


def _normalised(side: int) -> Workload:
    x, scale, offset = _normal(32, side // 32, side // 32, 64), tf.ones([64]), tf.zeros([64])

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, *_ = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
            y = tf.nn.relu(y)
        return _small(tape.gradient(y, x))

    return Workload(tf.function(fn), (x,), (), trains=False)


def _adds(x: Any) -> Any:
    for k in range(8):
        x = _bounded(x, 0.1 * k)
    return x


def _view_and_original(x: Any) -> Any:
    y = _bounded(x, 1.0)
    z = _bounded(tf.reshape(y, [-1]), 2.0)
    return _bounded(y, 3.0) + tf.reshape(z, tf.shape(y))


def _fan(x: Any, parallel: int) -> Any:
    """All are there before the first is used, if ops run breadth first."""
    return tf.add_n([tf.reduce_max(_bounded(x, 0.1 * k), axis=0) for k in range(parallel)])


def _towers(x: Any, parallel: int, length: int) -> Any:
    ends = []
    for k in range(parallel):
        y = tf.nn.softmax(x * (k + 1.5))
        for _ in range(length):
            y = tf.nn.softmax(y)
        ends.append(tf.reduce_max(y, axis=0))
    return tf.add_n(ends)


def _ladder(x: Any, length: int) -> Any:
    """What is made first is used last, as in a gradient."""
    made = [x]
    for _ in range(length):
        made.append(tf.nn.softmax(made[-1]))
    y = made.pop()
    while made:
        y = tf.nn.softmax(y * made.pop())
    return y


def _loss(side: int) -> Workload:
    logits, labels = _normal(side, side), tf.zeros([side], tf.int32)

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
        return _small(tape.gradient(loss, x))

    return Workload(tf.function(fn), (logits,), (), trains=False)


def _boxes(count: int) -> Workload:
    corners = np.random.default_rng(0).uniform(0, 1, (count, 2)).astype(np.float32)
    boxes = tf.constant(np.concatenate([corners, corners + 0.01], axis=1))
    fn = tf.function(lambda boxes: tf.image.non_max_suppression(boxes, boxes[:, 0], 100, 0.5))
    return Workload(fn, (boxes,), (), trains=False)


def _segments(side: int) -> Workload:
    ids = tf.constant(np.random.default_rng(0).integers(0, side // 4, side), tf.int32)
    return Workload(
        tf.function(lambda x: _small(tf.math.unsorted_segment_sum(x, ids, side // 4))), (_normal(side, side),), (), trains=False
    )


def _loop(side: int, *, back: bool) -> Workload:
    x, w = _normal(side // 4, side), tf.Variable(_normal(side, side) / side**0.5)

    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = x
            for _ in tf.range(8):
                y = tf.nn.relu(y @ w)
            loss = tf.reduce_sum(y)
        return _small(tape.gradient(loss, w) if back else y)

    return Workload(tf.function(fn), (x,), (w,), trains=False)


def _assigned(side: int) -> Workload:
    w = tf.Variable(_normal(side, side))

    def fn(x: Any) -> Any:
        w.assign_sub(_bounded(x, 1.0))
        w.assign(_bounded(w + x, 2.0))
        return x[0, 0]

    return Workload(tf.function(fn), (_normal(side, side),), (w,), trains=True)


def _optimizer(side: int, which: str) -> Workload:
    w, m, v = (tf.Variable(tf.ones([side, side])) for _ in range(3))

    def fn(x: Any) -> Any:
        gradient = _bounded(x, 1.0)
        handles = {"var": w.handle, "grad": gradient, "lr": 0.1}
        if which == "adam":
            tf.raw_ops.ResourceApplyAdam(
                **handles, m=m.handle, v=v.handle, beta1_power=0.9, beta2_power=0.9, beta1=0.9, beta2=0.9, epsilon=1e-7
            )
        else:
            tf.raw_ops.ResourceApplyKerasMomentum(**handles, accum=m.handle, momentum=0.9)
        return x[0, 0]

    return Workload(tf.function(fn), (_normal(side, side),), (w, m, v), trains=True)


def _keras_adam(side: int) -> Workload:
    import keras

    w = tf.Variable(_normal(side, side))
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build([w])

    def fn(x: Any) -> Any:
        optimizer.apply_gradients([(_bounded(x, 1.0), w)])
        return x[0, 0]

    return Workload(tf.function(fn), (_normal(side, side),), (w,), trains=True)


def _rows(side: int) -> Workload:
    table = tf.Variable(_normal(4 * side, side))
    ids = tf.constant(np.random.default_rng(0).integers(0, 4 * side, side), tf.int32)

    def fn(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        gradient = tape.gradient(loss, table)
        table.scatter_sub(tf.IndexedSlices(0.01 * gradient.values, gradient.indices))
        return loss

    return Workload(tf.function(fn), (ids,), (table,), trains=True)


def _crossing(side: int) -> Workload:
    with tf.device("/CPU:0"):
        x = tf.identity(_normal(side, side))
    return Workload(tf.function(lambda x: _small(_bounded(x, 1.0) @ x)), (x,), (), trains=False)
