"""Training steps as they are written with Keras: models, layers with state, optimizers with slots, averages and scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.helpers.harness import Builder, Program, RandomLegal, check

X = tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4])
Y = tf.constant([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
SPLIT = [RandomLegal(0)]

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def error(found: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean((found - wanted) ** 2)


def values(*owners: Any) -> list[tf.Tensor]:
    """What the variables of models and optimizers hold, but for the state of generators."""
    return [tf.identity(v.value) for owner in owners for v in owner.variables if "seed" not in v.path]


def steps(model: Any, optimizer: Any, x: tf.Tensor = X, loss: Loss = error) -> Program:
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            total = loss(model(x, training=True), y)
        optimizer.apply_gradients(zip(tape.gradient(total, model.trainable_variables), model.trainable_variables, strict=True))
        return total

    return Program(fn=step, args=(x, Y), state=lambda: values(model, optimizer), gradients=False)


def network(layers: Sequence[Any] = ()) -> Any:
    keras.utils.set_random_seed(1)
    hidden = layers or [keras.layers.Dense(5, "relu"), keras.layers.BatchNormalization()]
    return keras.Sequential([keras.Input([4]), *hidden, keras.layers.Dense(2)])


# -- optimizers --------------------------------------------------------------------------------------------------------


def scaled(start: float, by: float = 1.0) -> Program:
    """The scale grows after two good steps; where the loss times the scale is no number, it is halved and nothing else done."""
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=start, dynamic_growth_steps=2)
    return steps(network(), optimizer, loss=lambda found, wanted: optimizer.scale_loss(error(found, wanted) * by))


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "averaged": lambda: keras.optimizers.SGD(0.01, 0.9, True, global_clipnorm=0.5, use_ema=True, ema_overwrite_frequency=2),
    "accumulated": lambda: keras.optimizers.AdamW(0.01, gradient_accumulation_steps=2),
    "scheduled": lambda: keras.optimizers.Ftrl(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5, staircase=True)),
    "centred": lambda: keras.optimizers.RMSprop(0.01, centered=True, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_are_as_plain_after_three_steps(name: str) -> None:
    check(lambda: steps(network(), OPTIMIZERS[name]()), SPLIT)


@pytest.mark.parametrize("by", [1.0, 1e20])
def test_a_loss_is_scaled_and_a_step_without_numbers_skipped(by: float) -> None:
    check(lambda: scaled(1e30 if by > 1 else 64.0, by), SPLIT)


# -- models ------------------------------------------------------------------------------------------------------------


def a_recurrent_model_with_a_mask() -> Program:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Embedding(11, 4, mask_zero=True), keras.layers.GRU(3), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([4], dtype="int32"), *layers])
    return steps(model, keras.optimizers.Nadam(0.01), tf.constant([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9]]))


def attention_in_half_precision() -> Program:
    keras.utils.set_random_seed(1)
    inputs = keras.Input([3, 4])
    mixed = keras.layers.MultiHeadAttention(2, 2, dtype="mixed_bfloat16")(inputs, inputs)
    outputs = keras.layers.Dense(2, dtype="float32")(keras.layers.GlobalAveragePooling1D()(mixed))
    training = steps(keras.Model(inputs, outputs), keras.optimizers.SGD(0.01), tf.stack([X] * 3))
    return replace(training, tolerance=1e-2)  # most of it is computed in half precision


class Counting(keras.layers.Layer):  # type: ignore[misc]
    """It counts its calls, adds to the loss, and has noise from a generator of its own."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), dtype="int32", trainable=False)
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones")
        self.noise = keras.random.SeedGenerator(7)

    def call(self, x: Any, training: bool | None = None) -> Any:
        self.calls.assign_add(1)
        if training:
            x += 0.1 * keras.random.normal(keras.ops.shape(x), seed=self.noise)
        self.add_loss(0.1 * keras.ops.sum(self.gain**2))
        return x * self.gain


def a_layer_with_state_and_a_loss() -> Program:
    model = network([keras.layers.Dense(4, "swish"), Counting()])
    return steps(model, keras.optimizers.Lion(0.01), loss=lambda found, wanted: error(found, wanted) + sum(model.losses))


def the_step_that_keras_has() -> Program:
    model = network()
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    model.train_step((X, Y))
    return Program(fn=lambda x, y: model.train_step((x, y)), args=(X, Y), state=lambda: values(model), gradients=False)


def two_models_that_train_against_each_other() -> Program:
    """Gradients from a called function, a penalty on a gradient, and a step that is taken only sometimes."""
    keras.utils.set_random_seed(1)
    makes = keras.Sequential([keras.Input([4]), keras.layers.Dense(4, "tanh")])
    tells = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
    optimizers = keras.optimizers.Adam(0.01), keras.optimizers.Adagrad(0.01)
    for model, optimizer in zip((makes, tells), optimizers, strict=True):
        optimizer.build(model.trainable_variables)

    @tf.function
    def gradients(x: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            fake, real = tells(makes(x)), tells(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                told = tells(x)
            steepness = tf.norm(inner.gradient(told, x), axis=1)
            first = tf.reduce_mean(tf.nn.softplus(-fake))
            second = tf.reduce_mean(tf.nn.softplus(fake) + tf.nn.softplus(-real) + (steepness - 1.0) ** 2)
        return second, tape.gradient(first, makes.trainable_variables), tape.gradient(second, tells.trainable_variables)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        loss, ofs, tos = gradients(x)
        optimizers[0].apply(ofs, makes.trainable_variables)
        if loss > 1.4:
            optimizers[1].apply(tos, tells.trainable_variables)
        return loss

    return Program(fn=step, args=(X,), state=lambda: values(makes, tells, *optimizers), gradients=False)


MODELS: list[Builder] = [
    a_recurrent_model_with_a_mask,
    attention_in_half_precision,
    a_layer_with_state_and_a_loss,
    the_step_that_keras_has,
    two_models_that_train_against_each_other,
]


@pytest.mark.parametrize("build", MODELS)
def test_placed_is_plain(build: Builder) -> None:
    check(build, SPLIT)
