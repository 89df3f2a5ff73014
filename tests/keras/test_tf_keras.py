"""`placer.keras.optimize` of models of tf_keras: they give what the plain model gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.keras import step_race
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus
from tests.helpers.racing import RandomTest, random_races
from tests.helpers.replicas import mirrored

keras = pytest.importorskip("tf_keras", reason="it is in the group of dependencies `dev`")

SAMPLES, BATCH = 52, 16
X = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, SAMPLES)


def dense(**compiled: Any) -> Any:
    model = keras.Sequential([keras.layers.Dense(8, "relu", input_shape=(6,)), keras.layers.Dropout(0.3), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "metrics": ["accuracy"], **compiled})
    return model


def own_step() -> Any:
    class OwnStep(keras.Model):
        """AutoGraph converts its call, and no code of its step. It reports a metric of its own."""

        def __init__(self) -> None:
            super().__init__()
            self.dense, self.head = keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)
            self.seen = keras.metrics.Mean(name="size_of_gradient")

        def call(self, x: Any) -> Any:
            if tf.reduce_mean(x) > 0.1:
                x = 2 * x
            return self.head(self.dense(x))

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compiled_loss(y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            self.seen.update_state(tf.linalg.global_norm(gradients))
            return {"loss": loss, "size_of_gradient": self.seen.result()}

    model = OwnStep()
    model.compile(keras.optimizers.legacy.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def two_inputs() -> Any:
    numbers, ids = keras.Input((6,), name="numbers"), keras.Input((), dtype="int32", name="ids")
    joined = keras.layers.Concatenate()([numbers, keras.layers.Embedding(3, 4, name="embed")(ids)])
    head = keras.layers.Dense(3, "softmax", name="head", dtype=keras.mixed_precision.Policy("mixed_float16"))(joined)
    model = keras.Model({"numbers": numbers, "ids": ids}, keras.layers.Activation("linear", dtype="float32")(head))
    model.compile("rmsprop", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
    return model


NAMED = {"numbers": X, "ids": Y.astype("int32")}


def generator() -> Iterator[tuple[Any, Any]]:
    for k in range(1000):
        yield X[k % 40 : k % 40 + 8], Y[k % 40 : k % 40 + 8]


def halved(epoch: int, rate: float) -> float:
    return rate / 2 if epoch else rate


ROWS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "dense": (
        lambda: dense(steps_per_execution=3),
        lambda: {"x": X, "y": Y, "validation_split": 0.2, "callbacks": [keras.callbacks.LearningRateScheduler(halved)]},
    ),
    "subclassed train_step": (own_step, lambda: {"x": generator(), "steps_per_epoch": 4}),
    "inputs by name": (two_inputs, lambda: {"x": NAMED, "y": Y, "batch_size": BATCH, "class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}),
}


def trained(row: str, **options: Any) -> tuple[Any, list[Any]]:
    """A model after three epochs, and what its training gave. With options, it runs by plan."""
    keras.utils.set_random_seed(0)
    build, arguments = ROWS[row]
    model = build()
    if options:
        assert placer.keras.optimize(model, **options) is model
    history = model.fit(**{"epochs": 3, "verbose": 0, **arguments()}).history
    variables = [*model.weights, *of_optimizer(model), model._train_counter]
    return model, [sorted(history.items()), [variable.numpy() for variable in variables]]


def of_optimizer(model: Any) -> Any:
    variables = model.optimizer.variables
    return variables() if callable(variables) else variables


def used(model: Any, data: Any, folder: Path) -> list[Any]:
    """What other methods of a trained model give, and the files that it writes."""
    first = {name: values[:5] for name, values in data.items()} if isinstance(data, dict) else data[:5]
    found: list[Any] = [model.evaluate(data, Y, BATCH, verbose=0), model.predict(data, BATCH, verbose=0)]
    found += [model.test_on_batch(first, Y[:5]), model.predict_on_batch(first)]
    for file in ("model.keras", "model.h5"):
        model.save(folder / file)
        found.append(keras.models.load_model(folder / file).get_weights())
    return found


def assert_equal(found: Any, expected: Any) -> None:
    tf.nest.assert_same_structure(found, expected)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        if isinstance(other, str):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row", ROWS)
def test_a_placed_model_trains_as_the_plain_one(row: str) -> None:
    _, expected = trained(row)
    model, found = trained(row, race="off")
    assert_equal(found, expected)
    assert len(model.placement.function("train").placements) == 1


def test_whatever_runs_each_call_a_model_gives_and_saves_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_race, "SequentialTest", lambda names: RandomTest(names, seed=0))
    monkeypatch.setattr(step_race, "FAR_SLOWER", np.inf)  # no clock decides which calls count
    plain, expected = trained("inputs by name")
    with random_races(seed=0):
        raced, found = trained("inputs by name", race="force")
        assert_equal(found, expected)
        assert_equal(used(raced, NAMED, tmp_path), used(plain, NAMED, tmp_path))
    assert raced.placement.verdict("train") is not None


def test_batches_of_other_sizes_run_by_one_plan_and_tensorboard_finds_no_graph_of_a_function_that_never_ran(
    tmp_path: Path,
) -> None:
    model = placer.keras.optimize(dense(), race="off")
    for size in (5, 3):
        model.train_on_batch(X[:size], Y[:size])
    model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path, histogram_freq=1)])
    assert len(model.placement.function("train").placements) == 1


def test_a_step_whose_code_needs_the_size_of_a_batch_races() -> None:
    class Noisy(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y = data
            return super().train_step((x + tf.random.stateless_normal([x.shape[0], 1], seed=[1, 2]), y))

    losses = []
    for options in ({}, {"race": "force"}):
        keras.utils.set_random_seed(0)
        model = Noisy([keras.layers.Dense(3, "softmax", input_shape=(6,))])
        model.compile("sgd", "sparse_categorical_crossentropy")
        if options:
            placer.keras.optimize(model, **options)
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True)
        losses.append(model.fit(data, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_a_pin_by_layer_takes_its_variables_and_its_ops_in_both_passes_and_in_the_optimizer() -> None:
    model = placer.keras.optimize(two_inputs(), pins={"embed": "CPU:1"})
    model.optimizer.jit_compile = True  # as where there is a GPU
    model.fit(NAMED, Y, batch_size=BATCH, verbose=0)
    plan = model.placement.train
    of_layer = {name for name, layer in plan.graph.layers.items() if layer.endswith("/embed")}
    assert {plan.device_of(name) for name in of_layer} == {"CPU:1"}
    types = {plan.graph.op(name).op_type for name in of_layer}
    assert {"ResourceGather", "Placeholder", "ResourceScatterAdd"} <= types
    assert any(name.startswith("gradient_tape/") for name in of_layer)
    states = {plan.graph.resources[key].name for name in of_layer if (key := plan.graph.op(name).resource)}
    assert states == {"embed/embeddings", "RMSprop/velocity/embed/embeddings"}
    (weights,) = model.get_layer("embed").weights
    assert weights.device.endswith("CPU:1")


def test_what_cannot_be_optimized_is_refused_or_left_alone() -> None:
    with pytest.raises(placer.OptionError, match="run_eagerly=False"):
        placer.keras.optimize(dense(run_eagerly=True))
    with pytest.raises(placer.OptionError, match="no Keras model"):
        placer.keras.optimize(keras.layers.Dense(3))


def test_replicas_of_a_strategy_train_as_without_placer() -> None:
    def run(optimized: bool) -> Any:
        keras.utils.set_random_seed(0)
        with mirrored("CPU:1", "CPU:0").scope():
            model = dense()
        if optimized:
            placer.keras.optimize(model, devices=two_cpus(), solver=RandomLegal(1))
        losses = model.fit(X[:BATCH], Y[:BATCH], batch_size=BATCH, epochs=3, shuffle=False, verbose=0).history["loss"]
        return [np.asarray(part) for part in [losses, *model.get_weights()]], model

    (plain, _), (placed, model) = run(False), run(True)
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)
    assert "one of 2 replicas (CPU:1, CPU:0)" in model.placement.train.notes[0]
