"""Workloads in which users reported slow steps: kinds of ops and of loops that the other workloads lack.

Each docstring names the reports.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from examples.workloads import Size, Workload
from tests.benchmarks.more_workloads import descent, normal


def graph_network_training(size: Size = "full") -> Workload:
    """Messages along the edges of a graph, three rounds, and a step of descent (google-deepmind/graph_nets#16, #38)."""
    nodes, edges, width = (4096, 16_384, 64) if size == "full" else (32, 64, 8)
    weights = [normal(fan_in, width, seed=k) / fan_in**0.5 for k, fan_in in enumerate((2 * width, 2 * width, width))]
    message, update, head = variables = [tf.Variable(w) for w in weights]

    def loss(h: Any, senders: Any, receivers: Any, wanted: Any) -> Any:
        for _ in range(3):
            sent = tf.nn.relu(tf.concat([tf.gather(h, senders), tf.gather(h, receivers)], 1) @ message)
            h += tf.nn.relu(tf.concat([h, tf.math.unsorted_segment_sum(sent, receivers, nodes)], 1) @ update)
        return tf.reduce_mean(tf.square(h @ head - wanted))

    ends = [tf.constant(_rng().integers(0, nodes, edges), tf.int32) for _ in range(2)]
    return descent(loss, variables, (normal(nodes, width), *ends, normal(nodes, width, seed=9)))


def gaussian_process_training(size: Size = "full") -> Workload:
    """A step of descent on the likelihood of a Gaussian process, 512 points (GPflow/GPflow#616)."""
    points = 512 if size == "full" else 16
    length, noise, scale = variables = [tf.Variable(value) for value in (1.0, 0.1, 1.0)]

    def loss(x: Any, y: Any) -> Any:
        squares = tf.reduce_sum(x * x, 1)
        distance = squares[:, None] + squares[None] - 2.0 * tf.matmul(x, x, transpose_b=True)
        covariance = tf.square(scale) * tf.exp(-0.5 * distance / tf.square(length))
        factor = tf.linalg.cholesky(covariance + (tf.square(noise) + 1e-3) * tf.eye(points))
        fitted = tf.linalg.triangular_solve(factor, y)
        return tf.reduce_sum(tf.square(fitted)) / 2 + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))

    return descent(loss, variables, (normal(points, 8), normal(points, 1, seed=1)))


def k_means(size: Size = "full") -> Workload:
    """Ten rounds of Lloyd's algorithm for 64 centres of 100,000 points (tensorflow/tensorflow#20942)."""
    points, width, clusters = (100_000, 16, 64) if size == "full" else (200, 4, 5)

    def cluster(x: Any) -> Any:
        centres = x[:clusters]
        for _ in tf.range(10):
            distance = tf.reduce_sum(tf.square(centres), 1) - 2.0 * tf.matmul(x, centres, transpose_b=True)
            nearest = tf.argmin(distance, 1, tf.int32)
            count = tf.math.unsorted_segment_sum(tf.ones(points), nearest, clusters)
            centres = tf.math.divide_no_nan(tf.math.unsorted_segment_sum(x, nearest, clusters), count[:, None])
        return centres

    return Workload(tf.function(cluster), (normal(points, width),), (), trains=False)


def policy_rollout(size: Size = "full") -> Workload:
    """A cart and pole balanced by a small policy, then a step of descent on it (keon/deep-q-learning#28)."""
    steps, width = (100, 32) if size == "full" else (5, 4)
    variables = [tf.Variable(normal(*shape, seed=k) / 2.0) for k, shape in enumerate(((4, width), (width, 2)))]

    def loss(start: Any) -> Any:
        state, total, alive = start, 0.0, 1.0
        for t in tf.range(steps):
            logits = tf.tanh(state @ variables[0]) @ variables[1]
            action = tf.random.stateless_uniform([], [1, t]) < tf.nn.softmax(logits)[0, 1]
            place, speed, angle, turn = tf.unstack(state[0])
            push = (tf.where(action, 10.0, -10.0) + 0.05 * turn**2 * tf.sin(angle)) / 1.1
            twist = (9.8 * tf.sin(angle) - tf.cos(angle) * push) / (0.5 * (4.0 / 3.0 - 0.1 * tf.cos(angle) ** 2 / 1.1))
            drift = push - 0.05 * twist * tf.cos(angle) / 1.1
            state = tf.stack([place + 0.02 * speed, speed + 0.02 * drift, angle + 0.02 * turn, turn + 0.02 * twist])[None]
            chosen = tf.nn.log_softmax(logits)[0, tf.cast(action, tf.int32)]
            alive = tf.where(tf.abs(angle) < 0.2, alive, 0.0)
            total += alive * chosen
            state = tf.stop_gradient(state)
        return -total

    return descent(loss, variables, (0.01 * normal(1, 4),))


def spectrogram_net(size: Size = "full") -> Workload:
    """Spectrograms of eight clips of four seconds, then convolutions (keunwoochoi/kapre#98, deezer/spleeter#348)."""
    clips, samples, frame, bands, width = (8, 64_000, 1024, 80, 256) if size == "full" else (2, 2000, 256, 20, 8)
    mel = tf.signal.linear_to_mel_weight_matrix(bands, frame // 2 + 1, 16_000)
    filters = [tf.Variable(0.05 * normal(5, fan_in, width, seed=k)) for k, fan_in in enumerate((bands, width))]

    def classify(audio: Any) -> Any:
        spectrum = tf.abs(tf.signal.stft(audio, frame, frame // 4))
        x = tf.math.log(tf.square(spectrum) @ mel + 1e-6)
        for w in filters:
            x = tf.nn.relu(tf.nn.conv1d(x, w, 2, "SAME"))
        return tf.reduce_mean(x, 1)

    return Workload(tf.function(classify), (normal(clips, samples),), tuple(filters), trains=False)


def tabular_transformer(size: Size = "full") -> Workload:
    """Columns of words looked up, attention between columns, a step of descent (keras-team/keras-io#1946)."""
    rows, columns, words, width = (2048, 8, 1000, 64) if size == "full" else (16, 3, 10, 8)
    names = [f"{column}:{word}" for column in range(columns) for word in range(words)]
    numbers = tf.range(len(names))
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(names, numbers), 0)
    shapes = [(len(names), width), (width, 3 * width), (width, 3 * width), (columns * width, 128), (128, 1)]
    variables = [tf.Variable(normal(*shape, seed=k) / shape[0] ** 0.5) for k, shape in enumerate(shapes)]

    def loss(cells: Any, wanted: Any) -> Any:
        x = tf.gather(variables[0], table.lookup(cells))
        for w in variables[1:3]:
            query, key, value = tf.split(x @ w, 3, axis=-1)
            x += tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / width**0.5) @ value
        score = tf.nn.relu(tf.reshape(x, [rows, columns * width]) @ variables[3]) @ variables[4]
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(wanted, score))

    words_of_rows = _rng().integers(0, words, (rows, columns))
    cells = tf.constant([[f"{column}:{word}" for column, word in enumerate(row)] for row in words_of_rows])
    return descent(loss, variables, (cells, tf.cast(normal(rows, 1) > 0, tf.float32)))


def augmented_autoencoder(size: Size = "full") -> Workload:
    """Images flipped, cropped and coloured, then transposed convolutions in training (keras-team/keras#23245)."""
    batch, pixels, widths = (32, 96, (3, 32, 64, 128)) if size == "full" else (2, 16, (3, 4, 8))
    pairs = [*itertools.pairwise(widths)]
    down = [tf.Variable(0.05 * normal(3, 3, *pair, seed=k)) for k, pair in enumerate(pairs)]
    up = [tf.Variable(0.05 * normal(3, 3, *pair, seed=k)) for k, pair in enumerate(reversed(pairs))]

    def loss(images: Any) -> Any:
        with tf.name_scope("augment"):
            x = tf.image.convert_image_dtype(images, tf.float32)
            x = tf.image.stateless_random_crop(x, [batch, pixels, pixels, 3], [1, 2])
            x = tf.image.stateless_random_flip_left_right(x, [3, 4])
            x = tf.image.stateless_random_hue(tf.image.stateless_random_contrast(x, 0.8, 1.2, [5, 6]), 0.1, [7, 8])
            wanted = x = tf.clip_by_value(x, 0.0, 1.0)
        for w in down:
            x = tf.nn.relu(tf.nn.conv2d(x, w, 2, "SAME"))
        for w in up:
            side = 2 * x.shape[1]
            x = tf.nn.relu(tf.nn.conv2d_transpose(x, w, [batch, side, side, w.shape[2]], 2))
        return tf.reduce_mean(tf.square(x - wanted))

    images = tf.constant(_rng().integers(0, 256, (batch, pixels + 16, pixels + 16, 3), dtype=np.uint8))
    return descent(loss, [*down, *up], (images,))


def lstm_language_model(size: Size = "full") -> Workload:
    """A training step of a language model of two LSTM layers, 35 words of 10,000 (keras-team/keras#1067)."""
    batch, length, words, width = (20, 35, 10_000, 200) if size == "full" else (2, 4, 20, 8)
    layers = [keras.layers.Embedding(words, width)]
    layers += [keras.layers.LSTM(width, return_sequences=True, seed=k) for k in range(2)]
    model = keras.Sequential([keras.Input((length,), dtype="int32"), *layers, keras.layers.Dense(words)])
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ids = tf.constant(_rng().integers(0, words, (batch, length + 1)), tf.int32)
    return _by_adam(lambda x, y: crossentropy(y, model(x, training=True)), model, (ids[:, :-1], ids[:, 1:]))


def many_small_variables(size: Size = "full") -> Workload:
    """A step of Adam for a chain of 100 narrow layers (keras-team/keras#17668)."""
    depth, batch, width = (100, 32, 16) if size == "full" else (5, 4, 4)
    model = keras.Sequential([keras.Input((width,)), *(keras.layers.Dense(width, "tanh") for _ in range(depth))])
    return _by_adam(lambda x, y: tf.reduce_mean(tf.square(model(x) - y)), model, (normal(batch, width), normal(batch, width)))


def frames_training(size: Size = "full") -> Workload:
    """A step of descent on a batch of images that lies in host memory (tensorflow/tensorflow#44836)."""
    batch, pixels, widths = (64, 224, (3, 32, 64, 128)) if size == "full" else (2, 16, (3, 4, 8))
    filters = [tf.Variable(0.1 * normal(3, 3, *pair, seed=k)) for k, pair in enumerate(itertools.pairwise(widths))]
    head = tf.Variable(0.1 * normal(widths[-1], 10))

    def loss(images: Any, labels: Any) -> Any:
        x = images
        for w in filters:
            x = tf.nn.relu(tf.nn.conv2d(x, w, 2, "SAME"))
        logits = tf.reduce_mean(x, [1, 2]) @ head
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    with tf.device("/CPU:0"):
        args = normal(batch, pixels, pixels, 3), tf.constant(_rng().integers(0, 10, batch), tf.int32)
    return descent(loss, [*filters, head], args)


def camera_frames(size: Size = "full") -> Workload:
    """Frames of eight cameras, as bytes in host memory, resized for a convolutional net (roboflow/rf-detr#1415)."""
    shape, pixels, widths = ((8, 1080, 1920, 3), 384, (3, 32, 64, 128)) if size == "full" else ((2, 24, 32, 3), 16, (3, 4, 8))
    filters = [tf.Variable(0.1 * normal(3, 3, *pair, seed=k)) for k, pair in enumerate(itertools.pairwise(widths))]

    def infer(images: Any) -> Any:
        x = tf.image.resize(tf.cast(images, tf.float32) / 255.0, [pixels, pixels])
        for w in filters:
            x = tf.nn.relu(tf.nn.conv2d(x, w, 2, "SAME"))
        return tf.reduce_mean(x, [1, 2])

    with tf.device("/CPU:0"):
        images = tf.constant(_rng().integers(0, 256, shape, dtype=np.uint8))
    return Workload(tf.function(infer), (images,), tuple(filters), trains=False)


def rows_of_a_dataset(size: Size = "full") -> Workload:
    """A step of descent on some rows of a whole dataset in host memory, an argument (tensorflow/tensorflow#838, #6019)."""
    rows, width, batch, hidden = (60_000, 784, 512, 512) if size == "full" else (50, 8, 4, 8)
    variables = [tf.Variable(normal(*shape, seed=k) / shape[0] ** 0.5) for k, shape in enumerate(((width, hidden), (hidden, 10)))]

    def loss(images: Any, labels: Any, chosen: Any) -> Any:
        x = tf.gather(images, chosen)
        logits = tf.nn.relu(x @ variables[0]) @ variables[1]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, chosen), logits))

    with tf.device("/CPU:0"):
        labels, chosen = (tf.constant(_rng().integers(0, most, n), tf.int32) for most, n in ((10, rows), (rows, batch)))
        args = normal(rows, width), labels, chosen
    return descent(loss, variables, args)


PUBLIC: dict[str, Callable[[Size], Workload]] = {
    "graph_network_training": graph_network_training,
    "gaussian_process_training": gaussian_process_training,
    "k_means": k_means,
    "policy_rollout": policy_rollout,
    "spectrogram_net": spectrogram_net,
    "tabular_transformer": tabular_transformer,
    "augmented_autoencoder": augmented_autoencoder,
    "lstm_language_model": lstm_language_model,
    "many_small_variables": many_small_variables,
    "frames_training": frames_training,
    "camera_frames": camera_frames,
    "rows_of_a_dataset": rows_of_a_dataset,
}


def _by_adam(loss: Callable[..., Any], model: Any, args: tuple[Any, ...]) -> Workload:
    """A step of Adam of Keras; gives the loss."""
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def step(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*args)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    return Workload(tf.function(step), args, (*model.variables, *optimizer.variables), trains=True)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)
