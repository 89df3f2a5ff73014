"""Functions to place, with arguments for a call. Tests, benchmarks and examples share them.

Each builder makes new variables in the current `tf.device` scope and returns a `Workload`. ``size="full"`` is for a GPU.
``size="small"`` has the same ops in fewer and narrower layers and runs within seconds on two CPU cores. The results are small,
so that fetching them to wait for the end of a step takes little time.

    from examples.workloads import detector
    work = detector("full")
    boxes, scores = work.fn(*work.args)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import keras
import numpy as np
import tensorflow as tf

Size: TypeAlias = Literal["full", "small"]


@dataclass(frozen=True)
class Workload:
    """A function and a call of it.

    ``fn`` is a `tf.function` to call with ``args``. ``state`` has the variables that a step reads and writes, including those of
    Keras and of the optimizer. If ``trains`` is True, a step ends with an update of these variables; otherwise it only reads
    them.
    """

    fn: Any
    args: tuple[Any, ...]
    state: tuple[Any, ...]
    trains: bool


def resnet50_training(size: Size = "full", batch: int = 8) -> Workload:
    """A training step of an image classifier: ResNet50 at 224x224, or three of its blocks at 32x32."""
    if size == "full":
        pixels, classes = 224, 1000
        model = keras.applications.ResNet50(weights=None)
    else:
        pixels, classes = 32, 10
        model = _residual_net(pixels, classes)
    images = _normal(batch, pixels, pixels, 3)
    labels = _integers(classes, batch)
    return _training_step(
        lambda images: model(images, training=True),
        model.variables,
        model.trainable_variables,
        keras.losses.SparseCategoricalCrossentropy(),
        keras.optimizers.SGD(0.01, momentum=0.9),
        (images, labels),
    )


def encoder_training(size: Size = "full", layers: int | None = None) -> Workload:
    """A training step with Adam of a text encoder of width 128. By default it has 12 layers, or 2 if small."""
    layers, batch, length, vocabulary = (layers or 12, 8, 64, 1000) if size == "full" else (layers or 2, 2, 16, 50)
    width = 128
    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, width)(tokens)
    for _ in range(layers):
        attention = keras.layers.MultiHeadAttention(num_heads=4, key_dim=width // 4)(x, x)
        x = keras.layers.LayerNormalization()(x + attention)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(hidden))
    model = keras.Model(tokens, keras.layers.Dense(vocabulary)(x))
    return _training_step(
        lambda tokens: model(tokens, training=True),
        model.variables,
        model.trainable_variables,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.optimizers.Adam(1e-3),
        (_integers(vocabulary, batch, length), _integers(vocabulary, batch, length)),
    )


def lstm_then_wide(size: Size = "full", by_hand: bool = False) -> Workload:
    """An LSTM cell in a loop at batch 1. Its last state is added to the input of four wide layers.

    The loop has thousands of tiny ops, the layers have four big ones. ``by_hand`` puts the loop on the CPU and the layers on the
    GPU.
    """
    steps, units, rows, width = (64, 64, 512, 4096) if size == "full" else (8, 16, 256, 256)
    on_cpu, on_gpu = _scopes(by_hand)
    with on_cpu():
        cell = keras.layers.LSTMCell(units)
        cell.build((1, units))
    with on_gpu():
        widen = keras.layers.Dense(width)
        widen.build((1, units))
        wide = [keras.layers.Dense(width, activation="relu") for _ in range(4)]
        for layer in wide:
            layer.build((rows, width))

    def infer(sequence: Any, rows: Any) -> Any:
        with on_cpu():
            h, c = tf.zeros([1, units]), tf.zeros([1, units])
            for t in tf.range(steps):
                _, (h, c) = cell(sequence[t], (h, c))
        with on_gpu():
            x = rows + widen(h)
            for layer in wide:
                x = layer(x)
            return tf.reduce_mean(x, axis=1)

    state = [v.value for layer in (cell, widen, *wide) for v in layer.weights]
    return Workload(tf.function(infer), (_normal(steps, 1, units), _normal(rows, width)), tuple(state), trains=False)


def detector(size: Size = "full", pixels: int = 256, by_hand: bool = False) -> Workload:
    """Convolutional features, a box and ten class scores per location, and a non-max suppression per class.

    The suppressions are slow on a GPU, and the convolutions are slow on a CPU. The feature map is much larger than the boxes and
    scores. ``by_hand`` puts the suppressions on the CPU and the other ops on the GPU. ``pixels`` is for the full size only.
    """
    classes, kept = 10, 100
    widths: tuple[int, ...] = (64, 128, 256, 256)
    if size == "small":
        pixels, kept, widths = 64, 10, (8, 16, 32, 32)
    cells = pixels // 4
    on_cpu, on_gpu = _scopes(by_hand)
    with on_gpu():
        features = keras.Sequential(
            [keras.Input((pixels, pixels, 3))]
            + [
                keras.layers.Conv2D(width, 3, strides=stride, padding="same", activation="relu")
                for width, stride in zip(widths, (2, 2, 1, 1), strict=True)
            ]
        )
        box_head = keras.layers.Conv2D(4, 1)
        score_head = keras.layers.Conv2D(classes, 1, activation="sigmoid")
        for head in (box_head, score_head):
            head.build((1, cells, cells, widths[-1]))
    at = 4.0 * np.arange(cells, dtype=np.float32) + 2.0
    centres = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1).reshape(-1, 2)

    def detect(image: Any) -> Any:
        with on_gpu():
            feature_map = features(image)
            offset, extent = tf.split(tf.reshape(box_head(feature_map), [-1, 4]), 2, axis=1)
            middle, half = centres + offset, 8.0 * tf.exp(extent)
            boxes = tf.concat([middle - half, middle + half], axis=1)
            scores = tf.unstack(tf.reshape(score_head(feature_map), [-1, classes]), axis=1)
        with on_cpu():
            best = [tf.image.non_max_suppression(boxes, score, kept) for score in scores]
            return (
                tf.concat([tf.gather(boxes, chosen) for chosen in best], axis=0),
                tf.concat([tf.gather(score, chosen) for score, chosen in zip(scores, best, strict=True)], axis=0),
            )

    state = [v.value for layer in (features, box_head, score_head) for v in layer.variables]
    return Workload(tf.function(detect), (_normal(1, pixels, pixels, 3),), tuple(state), trains=False)


def recommender_training(size: Size = "full") -> Workload:
    """A training step of a click predictor: an MLP on 13 dense features and on embeddings of 26 hashed string features."""
    batch, buckets, width, hidden = (8192, 100_000, 32, 512) if size == "full" else (64, 50, 8, 64)
    features, dense_features = 26, 13
    tables = [keras.Variable(0.05 * _normal(buckets, width, seed=i), name=f"table_{i}") for i in range(features)]
    mlp = keras.Sequential(
        [
            keras.Input((features * width + dense_features,)),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(hidden // 2, activation="relu"),
            keras.layers.Dense(1),
        ]
    )

    def predict(dense: Any, words: Any) -> Any:
        hashed = [tf.strings.to_hash_bucket_fast(column, buckets) for column in tf.unstack(words, axis=1)]
        embedded = [tf.nn.embedding_lookup(table.value, ids) for table, ids in zip(tables, hashed, strict=True)]
        return mlp(tf.concat([dense, *embedded], axis=1))

    words = np.random.default_rng(0).integers(0, 10 * buckets, (batch, features)).astype("U").astype("S")
    return _training_step(
        predict,
        [*tables, *mlp.variables],
        [*tables, *mlp.trainable_variables],
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.optimizers.SGD(0.1),
        (_normal(batch, dense_features), tf.constant(words), tf.cast(_integers(2, batch, 1), tf.float32)),
    )


def mlp_inference(size: Size = "full") -> Workload:
    """Three layers of 64 units on one row. Launching these ops on a GPU takes longer than running them on a CPU."""
    model = _mlp()
    fn = tf.function(lambda x: model(x, training=False))
    return Workload(fn, (_normal(1, 64),), tuple(v.value for v in model.variables), trains=False)


def mlp_training(size: Size = "full") -> Workload:
    """A training step of the same layers at batch 32."""
    model = _mlp()
    return _training_step(
        lambda x: model(x, training=True),
        model.variables,
        model.trainable_variables,
        keras.losses.MeanSquaredError(),
        keras.optimizers.SGD(0.01),
        (_normal(32, 64), _normal(32, 64, seed=1)),
    )


def unique_then_matmul(size: Size = "full") -> Workload:
    """Distinct values of an int64 vector, and a matrix product. Both are fast on a GPU; the product is slow on a CPU."""
    count, width = (100_000, 4096) if size == "full" else (1_000, 128)
    weights = tf.Variable(_normal(width, width))

    def run(keys: Any, x: Any) -> Any:
        values, _ = tf.unique(keys)
        return tf.reduce_sum(values), tf.reduce_mean(tf.matmul(x, weights), axis=1)

    return Workload(tf.function(run), (_integers(count, count, dtype=tf.int64), _normal(width, width)), (weights,), trains=False)


WORKLOADS: dict[str, Callable[[Size], Workload]] = {
    "resnet50": resnet50_training,
    "encoder": encoder_training,
    "lstm_then_wide": lstm_then_wide,
    "detector_256": partial(detector, pixels=256),
    "detector_512": partial(detector, pixels=512),
    "recommender": recommender_training,
    "mlp_inference": mlp_inference,
    "mlp_training": mlp_training,
    "unique_then_matmul": unique_then_matmul,
}
"""Builders by name. Their argument is a size."""


def _training_step(
    predict: Callable[..., Any], variables: list[Any], trainable: list[Any], loss: Any, optimizer: Any, batch: tuple[Any, ...]
) -> Workload:
    """One step on ``batch`` = (inputs..., labels): forward pass, gradients, update. The step returns the loss."""
    optimizer.build(trainable)

    def step(*batch: Any) -> Any:
        *inputs, labels = batch
        with tf.GradientTape() as tape:
            value = loss(labels, predict(*inputs))
        optimizer.apply_gradients(zip(tape.gradient(value, [v.value for v in trainable]), trainable, strict=True))
        return value

    state = tuple(v.value for v in [*variables, *optimizer.variables])
    return Workload(tf.function(step), batch, state, trains=True)


def _residual_net(pixels: int, classes: int) -> Any:
    layers = keras.layers
    image = keras.Input((pixels, pixels, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same")(image)))
    for width in (16, 32, 64):
        stride = width // 16 if width == 16 else 2
        y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, strides=stride, padding="same")(x)))
        y = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same")(y))
        x = layers.ReLU()(layers.Add()([layers.Conv2D(width, 1, strides=stride)(x), y]))
    return keras.Model(image, layers.Dense(classes, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def _mlp() -> Any:
    return keras.Sequential([keras.Input((64,))] + [keras.layers.Dense(64, activation="relu") for _ in range(3)])


def _scopes(by_hand: bool) -> tuple[Callable[[], AbstractContextManager[Any]], Callable[[], AbstractContextManager[Any]]]:
    """Functions that make the scopes for the CPU and for the GPU. Without ``by_hand`` the scopes do nothing."""
    if by_hand:
        return partial(tf.device, "/CPU:0"), partial(tf.device, "/GPU:0")
    return nullcontext, nullcontext


def _normal(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))


def _integers(end: int, *shape: int, dtype: Any = tf.int32) -> Any:
    return tf.constant(np.random.default_rng(0).integers(0, end, shape), dtype)
