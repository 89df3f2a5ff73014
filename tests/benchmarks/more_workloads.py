"""Workloads for the benchmarks beside those of `examples.workloads`: other shapes and other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from examples.workloads import Size, Workload


def wide_mlp_training(size: Size = "full") -> Workload:
    """A training step of four layers of 4096 units at batch 512."""
    batch, width = (512, 4096) if size == "full" else (32, 64)
    weights = [tf.Variable(normal(width, width, seed=i) / width**0.5) for i in range(4)]

    def predict(x: Any) -> Any:
        for w in weights:
            x = tf.nn.relu(x @ w)
        return x

    return descent(_squared_error(predict), weights, (normal(batch, width), normal(batch, width, seed=9)))


def attention_forward(size: Size = "full") -> Workload:
    """An attention block with its feed-forward half, batch 8, 512 tokens, width 512."""
    attend, weights, x = _attention(size)
    return Workload(tf.function(lambda x: tf.reduce_mean(attend(x), axis=[1, 2])), (x,), tuple(weights), trains=False)


def attention_training(size: Size = "full") -> Workload:
    """A training step of the same block."""
    attend, weights, x = _attention(size)
    return descent(_squared_error(attend), weights, (x, x))


def augmented_convolutions(size: Size = "full") -> Workload:
    """Images resized, cropped, flipped and coloured, then a small convolutional net."""
    batch, pixels, widths = (64, 224, (32, 64, 128)) if size == "full" else (4, 32, (4, 8))
    channels = (3, *widths)
    filters = [tf.Variable(0.1 * normal(3, 3, *channels[i : i + 2], seed=i)) for i in range(len(widths))]

    def infer(images: Any, boxes: Any) -> Any:
        x = tf.image.convert_image_dtype(images, tf.float32)
        x = tf.image.crop_and_resize(x, boxes, tf.range(batch), [pixels, pixels])
        x = tf.image.random_brightness(tf.image.flip_left_right(x), 0.2, seed=1)
        x = tf.image.adjust_contrast(tf.image.rgb_to_grayscale(x) + x, 1.2)
        for w in filters:
            x = tf.nn.relu(tf.nn.conv2d(x, w, 2, "SAME"))
        return tf.reduce_mean(x, axis=[1, 2, 3])

    rng = np.random.default_rng(0)
    images = tf.constant(rng.integers(0, 256, (batch, pixels + 32, pixels + 32, 3), dtype=np.uint8))
    corners = rng.uniform(0, 0.2, (batch, 2)).astype(np.float32)
    boxes = tf.constant(np.concatenate([corners, corners + 0.8], axis=1))
    return Workload(tf.function(infer), (images, boxes), tuple(filters), trains=False)


def sort_unique_segment(size: Size = "full") -> Workload:
    """Keys sorted, made distinct, counted and summed by: many passes over memory, little arithmetic."""
    count, width = (200_000, 16) if size == "full" else (500, 4)

    def run(keys: Any, rows: Any) -> Any:
        order = tf.argsort(keys)
        values, ids = tf.unique(tf.gather(keys, order))
        sums = tf.math.unsorted_segment_sum(tf.gather(rows, order), ids, count)
        best, _ = tf.math.top_k(tf.reduce_sum(sums, axis=1), 100)
        return tf.reduce_sum(values), best

    keys = tf.constant(np.random.default_rng(0).integers(0, count // 10, count))
    return Workload(tf.function(run), (keys, normal(count, width)), (), trains=False)


def decoding(size: Size = "full") -> Workload:
    """Batch 1, token by token: four attention layers over a cache that grows in place."""
    layers, steps, width, vocabulary = (4, 32, 512, 32_000) if size == "full" else (1, 4, 16, 50)
    embedding = tf.Variable(0.1 * normal(vocabulary, width))
    weights = [tf.Variable(normal(width, 3 * width, seed=i) / width**0.5) for i in range(layers)]

    def decode(token: Any) -> Any:
        cache = tf.zeros([layers, 2, steps, width])
        for t in tf.range(steps):
            x = tf.gather(embedding, token)
            for layer, w in enumerate(weights):
                query, key, value = tf.split(x @ w, 3, axis=-1)
                cache = tf.tensor_scatter_nd_update(cache, [[layer, 0, t], [layer, 1, t]], tf.concat([key, value], axis=0))
                scores = tf.linalg.matvec(cache[layer, 0], query[0]) / width**0.5
                scores = tf.where(tf.range(steps) <= t, scores, -1e9)
                x += tf.linalg.matvec(cache[layer, 1], tf.nn.softmax(scores), transpose_a=True)[tf.newaxis]
            token = tf.argmax(tf.matmul(x, embedding, transpose_b=True), axis=-1, output_type=tf.int32)
        return token

    return Workload(tf.function(decode), (tf.constant([1]),), (embedding, *weights), trains=False)


MORE: dict[str, Callable[[Size], Workload]] = {
    "wide_mlp_training": wide_mlp_training,
    "attention_forward": attention_forward,
    "attention_training": attention_training,
    "augmented_convolutions": augmented_convolutions,
    "sort_unique_segment": sort_unique_segment,
    "decoding": decoding,
}


def _attention(size: Size) -> tuple[Callable[[Any], Any], list[Any], Any]:
    batch, length, width, heads = (8, 512, 512, 8) if size == "full" else (2, 8, 16, 2)
    sides = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    weights = [tf.Variable(normal(*shape, seed=i) / shape[0] ** 0.5) for i, shape in enumerate(sides)]

    def attend(x: Any) -> Any:
        project, join, widen, narrow = weights
        parts = tf.reshape(x @ project, [batch, length, 3, heads, width // heads])
        query, key, value = tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))
        scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / (width / heads) ** 0.5)
        x += tf.reshape(tf.transpose(scores @ value, [0, 2, 1, 3]), [batch, length, width]) @ join
        return x + tf.nn.gelu(x @ widen) @ narrow

    return attend, weights, normal(batch, length, width)


def descent(loss: Callable[..., Any], weights: list[Any], args: tuple[Any, ...]) -> Workload:
    """A step of gradient descent; gives the loss."""

    def step(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*args)
        for w, gradient in zip(weights, tape.gradient(value, weights), strict=True):
            w.assign_sub(0.01 * tf.convert_to_tensor(gradient))
        return value

    return Workload(tf.function(step), args, tuple(weights), trains=True)


def _squared_error(predict: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, wanted: tf.reduce_mean(tf.square(predict(x) - wanted))


def normal(*shape: int, seed: int = 0) -> Any:
    """Random numbers of a standard normal distribution."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))
