"""`placer.keras.optimize`: training, evaluating, predicting and saving give what they give in the plain model."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.common.escaping import markup
from placer.keras import step_race
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus
from tests.helpers.racing import RandomTest, random_races
from tests.helpers.replicas import mirrored, one_device

SAMPLES, BATCH = 52, 16
X = np.random.default_rng(0).normal(size=(SAMPLES, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, SAMPLES)
WEIGHTS = np.linspace(0.1, 2.0, SAMPLES).astype("float32")


def dense(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "adam", "loss": loss, "metrics": ["accuracy"], **compiled})
    return model


@keras.saving.register_keras_serializable("test_fit")
class OwnStep(keras.Model):
    """A subclassed model that is built at its first call and reports a metric of its own."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense, self.head = keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)
        self.seen = keras.metrics.Mean(name="size_of_gradient")

    def call(self, x: Any) -> Any:
        return self.head(self.dense(x))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, *_ = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.seen.update_state(tf.linalg.global_norm(gradients))
        return {"loss": loss, "size_of_gradient": self.seen.result()}


def own_step() -> Any:
    model = OwnStep(name="own_step")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Noisy(keras.Sequential):
    """Its training adds noise, by a shape that has to be known while it is traced."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, *_ = data
        noise = tf.random.stateless_normal([x.shape[0], 1], seed=[1, 2])
        return super().train_step((x + noise, y))  # type: ignore[no-any-return]


def noisy() -> Any:
    model = Noisy([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def mixed_precision() -> Any:
    policy = keras.dtype_policies.DTypePolicy("mixed_float16")
    layers = [keras.layers.Dense(8, "relu", dtype=policy), keras.layers.Dense(3, dtype=policy)]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Activation("softmax", dtype="float32")])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), "sparse_categorical_crossentropy")
    return model


def two_inputs() -> Any:
    numbers, ids = keras.Input((6,), name="numbers"), keras.Input((), dtype="int32", name="ids")
    joined = keras.layers.Concatenate()([numbers, keras.layers.Embedding(3, 4, name="embed")(ids)])
    model = keras.Model({"numbers": numbers, "ids": ids}, keras.layers.Dense(3, "softmax", name="head")(joined))
    model.compile("rmsprop", "sparse_categorical_crossentropy")
    return model


def generator() -> Iterator[tuple[Any, Any]]:
    for k in range(1000):
        yield X[k % 40 : k % 40 + 8], Y[k % 40 : k % 40 + 8]


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)


def halved(epoch: int, rate: float) -> float:
    return rate / 2 if epoch else rate


ROWS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "dense": (dense, lambda: {"x": X, "y": Y, "validation_split": 0.2}),
    "subclassed train_step": (own_step, lambda: {"x": X, "y": Y}),
    "mixed precision": (mixed_precision, lambda: {"x": X, "y": Y}),
    "class weights": (dense, lambda: {"x": X, "y": Y, "class_weight": {0: 1.0, 1: 3.0, 2: 0.5}}),
    "sample weights": (dense, lambda: {"x": X, "y": Y, "sample_weight": WEIGHTS}),
    "generator": (dense, lambda: {"x": generator(), "steps_per_epoch": 4, "batch_size": None}),
    "dataset": (dense, lambda: {"x": dataset(), "validation_data": dataset(), "batch_size": None}),
    "inputs by name": (two_inputs, lambda: {"x": {"numbers": X, "ids": Y.astype("int32")}, "y": Y}),
    "steps per execution": (lambda: dense(steps_per_execution=3), lambda: {"x": X, "y": Y}),
    "batches of one size": (
        noisy,
        lambda: {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True), "batch_size": None},
    ),
    "callbacks and metrics": (
        lambda: dense(weighted_metrics=["accuracy"], optimizer=keras.optimizers.SGD(0.1, momentum=0.9)),
        lambda: {"x": X, "y": Y, "callbacks": [keras.callbacks.LearningRateScheduler(halved)], "validation_split": 0.2},
    ),
}


def trained(build: Callable[[], Any], arguments: dict[str, Any], **options: Any) -> tuple[Any, dict[str, Any]]:
    """A model after three epochs, and what its training gave. With options, it runs by plan."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    model = build()
    if options:
        assert placer.keras.optimize(model, **options) is model
    history = model.fit(**{"batch_size": BATCH, "epochs": 3, "verbose": 0} | arguments).history
    weights = [*model.get_weights(), *(variable.numpy() for variable in model.optimizer.variables)]
    return model, {"history": history, "weights": weights}


def used(model: Any, data: Any, folder: Path) -> dict[str, Any]:
    """What other methods of a trained model give, and the files that it writes."""
    found = {"evaluated": model.evaluate(data, Y, BATCH, verbose=0, return_dict=True)}
    found["on a batch"] = model.train_on_batch(_first(data), Y[:5], return_dict=True)
    found["tested"] = model.test_on_batch(_first(data), Y[:5], return_dict=True)
    found["predicted"] = [model.predict(data, BATCH, verbose=0), model.predict_on_batch(_first(data))]
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    config = zipfile.ZipFile(folder / "model.keras").read("config.json").decode()
    found["config"] = json.loads(re.sub(r'"shared_object_id": \d+', '"shared_object_id": 0', config))  # an address in memory
    found["saved"] = keras.models.load_model(folder / "model.keras").get_weights()
    model.load_weights(folder / "model.weights.h5")
    found["loaded"] = model.get_weights()
    return found


def _first(data: Any) -> Any:
    return {name: values[:5] for name, values in data.items()} if isinstance(data, dict) else data[:5]


def _assert_equal(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key in expected:
            _assert_equal(found[key], expected[key], f"{path}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for k, (one, other) in enumerate(zip(found, expected, strict=True)):
            _assert_equal(one, other, f"{path}/{k}")
    elif isinstance(expected, float | np.ndarray | np.generic):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=path)
    else:
        assert found == expected, path


@pytest.mark.parametrize("row", ROWS)
def test_a_placed_model_trains_as_the_plain_one(row: str) -> None:
    build, arguments = ROWS[row]
    _, expected = trained(build, arguments())
    _, found = trained(build, arguments(), race="off")
    _assert_equal(found, expected)


def compiled_by_xla() -> Any:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=True)
    return model


@pytest.mark.parametrize("row", ["inputs by name", "steps per execution", "compiled by XLA"])
def test_whatever_runs_each_call_a_model_gives_and_saves_the_same(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, arguments = {**ROWS, "compiled by XLA": (compiled_by_xla, ROWS["dense"][1])}[row]
    monkeypatch.setattr(step_race, "SequentialTest", lambda names: RandomTest(names, seed=0))
    monkeypatch.setattr(step_race, "FAR_SLOWER", np.inf)  # no clock decides which calls count
    plain, expected = trained(build, arguments())
    with random_races(seed=0):
        raced, found = trained(build, arguments(), race="force")
        _assert_equal(found, expected)
        _assert_equal(used(raced, arguments()["x"], tmp_path), used(plain, arguments()["x"], tmp_path))
    ways = {row.name for row in raced.placement.verdict("train").candidates}
    assert ways == {step_race.KERAS, step_race.PLACED, *([step_race.UNCOMPILED] if plain.jit_compile else [])}


def test_the_second_start_of_a_program_begins_with_the_verdicts_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    verdicts = []
    for seed, size in enumerate((BATCH, BATCH, 2 * BATCH)):
        monkeypatch.setattr(step_race, "SequentialTest", lambda names, seed=seed: RandomTest(names, seed, max_calls=1))
        keras.utils.clear_session()
        with random_races(seed=0):
            model = placer.keras.optimize(dense(optimizer="sgd", metrics=[]), race="force")
            model.fit(X, Y, batch_size=size, epochs=3, verbose=0)
        verdicts.append(model.placement.verdict("train"))
    assert verdicts[0] is not None
    assert verdicts[0] == verdicts[1]
    assert verdicts[2] != verdicts[0]  # batches of another size


def test_a_call_for_which_xla_compiles_anew_does_not_end_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def timed(way: Any, *_: Any) -> tuple[None, float]:
        calls.append(way())
        is_new = calls[-1] == step_race.KERAS and calls.count(step_race.KERAS) % 4 == 0
        return None, 60.0 if is_new else {step_race.KERAS: 0.003, step_race.PLACED: 0.002}[calls[-1]]

    monkeypatch.setattr("placer.tf.run.timing.timed_call", timed)
    monkeypatch.setattr(step_race, "recall_verdict", lambda *_: None)
    monkeypatch.setattr(step_race, "remember_verdict", lambda *_: None)
    ways = {name: lambda *_, name=name: name for name in (step_race.KERAS, step_race.PLACED)}
    placed: Any = SimpleNamespace(is_racing=lambda: False)
    race = step_race.StepRace(ways, placed, lambda batches: ("", batches))
    for _ in range(80):
        race(None)
    assert race.verdict is not None
    assert (race.verdict.used, race.verdict.end) == (step_race.PLACED, "all others are slower")


def test_a_plan_is_made_for_the_size_of_the_first_batch_and_runs_smaller_ones() -> None:
    model = placer.keras.optimize(dense(), race="off")
    model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0)
    function = model.placement.function("train")
    assert len(function.placements) == 1
    assert f"sizes [{BATCH},6] of 'x' and sizes [{BATCH}] of 'y'" in model.placement.train.summary()
    product = next(op for op in model.placement.train.graph if op.op_type == "MatMul")
    assert product.signature.inputs[0].shape == (BATCH, 6)


def test_a_step_whose_code_needs_the_size_of_a_batch_is_planned_for_that_size() -> None:
    losses = []
    for optimized in (False, True):
        keras.utils.set_random_seed(0)
        model = placer.keras.optimize(noisy(), race="off") if optimized else noisy()
        losses.append([model.train_on_batch(X[:5], Y[:5]) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    model.train_on_batch(X[:3], Y[:3])
    assert list(model.placement.function("train").placements) == ["float32[3,6], int64[3]"]


def test_a_function_whose_signature_leaves_a_size_open_is_planned_for_that_of_its_first_call() -> None:
    @placer.optimized_placement
    @tf.function(input_signature=[tf.TensorSpec([None, 6])])
    def step(x: Any) -> Any:
        return tf.reduce_sum(x @ tf.ones([6, 4]), axis=1)

    assert [step(tf.ones([size, 6])).shape for size in (20, 3)] == [[20], [3]]
    assert list(step.placements) == ["float32[?,6]"]
    assert "seen       sizes [20,6] of 'x'" in step.placement.summary()
    given = placer.place(step, tf.ones([20, 6]), sizes={"x": [64, 6]})
    assert "given      sizes [64,6] of 'x'" in given.placement.summary()


def test_a_pin_by_layer_takes_its_variables_and_its_ops_in_both_passes_and_in_the_optimizer() -> None:
    keras.utils.clear_session()
    model = placer.keras.optimize(two_inputs(), pins={"embed": "CPU:1"})
    data = {"numbers": X, "ids": Y.astype("int32")}
    model.fit(data, Y, batch_size=BATCH, verbose=0)
    plan = model.placement.train
    of_layer = {name for name, layer in plan.graph.layers.items() if layer.endswith("/embed")}
    assert {plan.device_of(name) for name in of_layer} == {"CPU:1"}
    types = {plan.graph.op(name).op_type for name in of_layer}
    assert {"GatherV2", "Placeholder", "Sqrt", "ResourceScatterSub"} <= types
    assert any(name.startswith("gradient_tape/") for name in of_layer)
    states = {plan.graph.op(name).resource for name in of_layer} - {""}
    assert states == {"embed/embeddings", "rm_sprop/embed_embeddings_velocity"}
    (weights,) = model.get_layer("embed").weights
    assert weights.value.device.endswith("CPU:1")
    (row,) = (line for line in plan.view("layers").splitlines() if line.endswith("/embed"))
    assert row.split()[0] == "CPU:1"
    assert "48 B" in row  # 3 x 4 float32


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_layers_are_pinned_to_several_devices_and_to_others_when_the_model_is_optimized_again(optimizer: str) -> None:
    model = dense(optimizer=optimizer)
    first, _, second = model.layers
    held: list[Any] = []  # the program may keep placements when it optimizes the model again
    for one, two in (("CPU:0", "CPU:1"), ("CPU:1", "CPU:0")):
        held.append(placer.keras.optimize(model, pins={first.name: one, second.name: two}).placement)
        model.fit(X, Y, batch_size=BATCH, verbose=0)
        devices = [[weight.value.device[-5:] for weight in layer.weights] for layer in (first, second)]
        assert devices == [[one, one], [two, two]]


def test_a_pin_on_a_layer_that_only_training_has_is_left_out_elsewhere_and_one_on_none_is_an_error() -> None:
    keras.utils.clear_session()
    model = placer.keras.optimize(dense(), pins={"dropout": "CPU:1"})
    model.fit(X, Y, validation_split=0.2, verbose=0)
    assert any(name.startswith("sequential/dropout/") for name in model.placement.train.ops)
    placer.keras.optimize(model, pins={"dropuot": "CPU:1"})
    with pytest.raises(placer.OptionError, match="did you mean dropout"):
        model.fit(X, Y, verbose=0)


def test_a_model_trains_by_one_plan_and_predicts_by_another() -> None:
    keras.utils.clear_session()
    on_second = {"dense": "CPU:1"}
    model = placer.keras.optimize(dense(), pins=on_second, predict={"pins": {}, "solver": "all_cpu"})
    model.fit(X, Y, verbose=0)
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(model.predict(X, verbose=0), plain.predict(X, verbose=0), rtol=1e-5)
    products = [
        plan.device_of(op.name)
        for plan in (model.placement.train, model.placement.predict)
        for op in plan.graph
        if op.op_type == "MatMul" and op.name == "sequential/dense/MatMul"
    ]
    assert products == ["CPU:1", "CPU:0"]
    assert model.layers[0].kernel.value.device.endswith("CPU:1")


def test_a_model_planned_for_another_machine_has_plans_for_it_and_runs_here_as_keras_runs_it() -> None:
    build, arguments = ROWS["dense"]
    _, expected = trained(build, arguments())
    with pytest.warns(placer.PlacementWarning, match="planned for GPU:0, which this process does not have"):
        model, found = trained(build, arguments(), devices="h100")
    _assert_equal(found, expected)
    assert model.placement.train.machine == "h100"
    assert f"<pre>{markup(str(model.placement.train.view('layers')))}</pre>" in model.placement._repr_html_()
    assert f"sizes [{BATCH},6] of 'x'" in model.placement.train.summary()
    assert not isinstance(model.train_function, step_race.StepRace)
    placer.keras.optimize(model, devices="h100", pins={"dense": "CPU:0"})  # replaces the options of a step that was only planned
    with pytest.warns(placer.PlacementWarning, match="planned for GPU:0"):
        model.fit(X, Y, batch_size=BATCH, verbose=0)
    assert all(op.device == "CPU:0" for name, op in model.placement.train.ops.items() if name.startswith("sequential/dense/"))


def test_what_cannot_be_optimized_is_refused_or_left_alone() -> None:
    def wrong(model: Any, match: str, **options: Any) -> None:
        with pytest.raises(placer.OptionError, match=match):
            placer.keras.optimize(model, **options)

    wrong(lambda x: x, "no Keras model: placer.optimized_placement places functions")
    wrong(3, "no Keras model: pass a keras.Model")
    wrong(dense(run_eagerly=True), "run_eagerly=False")
    wrong(dense(), "unknown option 'pin'", pin={})
    wrong(dense(), "no mapping of options", predict="CPU:0")
    wrong(dense(), "unknown option", test={"pin": {}})
    model = placer.keras.optimize(dense())
    with pytest.raises(placer.PlanError, match="no plan yet"):
        _ = model.placement.train
    for of_step in (model.placement.function, model.placement.verdict):
        with pytest.raises(placer.OptionError, match="none of 'train', 'test', 'predict'"):
            of_step("fit")
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(placer.OptionError, match="run_eagerly=False"):
        model.fit(X, Y, verbose=0)

    with tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0").scope():
        replicated = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
        replicated.compile("sgd", "sparse_categorical_crossentropy")
    placer.keras.optimize(replicated)
    with pytest.warns(placer.PlacementWarning, match="left as it is: its distribution strategy, CentralStorageStrategy"):
        replicated.fit(X, Y, batch_size=BATCH, verbose=0)


@pytest.mark.parametrize(
    ("make", "note"),
    [(lambda: mirrored("CPU:1", "CPU:0"), "one of 2 replicas (CPU:1, CPU:0)"), (one_device, "runs it on CPU:1")],
)
def test_replicas_of_a_strategy_train_test_and_predict_as_without_placer(make: Any, note: str) -> None:
    x, y = X[: 2 * BATCH], Y[: 2 * BATCH]

    def run(optimized: bool) -> Any:
        keras.utils.set_random_seed(0)
        with make().scope():
            model = dense()
        if optimized:
            placer.keras.optimize(model, devices=two_cpus(), train={"solver": RandomLegal(1)}, test={"solver": RandomLegal(1)})
        history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
        results = [*history.values(), model.evaluate(x, y, batch_size=BATCH, verbose=0)]
        results += [model.predict(x, batch_size=BATCH, verbose=0) for _ in range(2)]
        return [np.asarray(part) for part in [*results, *model.get_weights()]], model

    (plain, _), (placed, model) = run(False), run(True)
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)
    for step in (model.placement.train, model.placement.test, model.placement.predict):
        assert note in step.notes[0]


def test_with_one_device_a_model_runs_as_keras_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.tf.devices.process_devices", lambda: ("CPU:0",))
    model = placer.keras.optimize(dense())
    model.fit(X, Y, verbose=0)
    assert str(model.placement) == (
        f"{model.name} has no plan yet: fit, evaluate or predict makes one where there are several devices. "
        'With placer.keras.optimize(model, devices="h100") it is for a machine with a GPU.'
    )
    assert not isinstance(model.train_function, step_race.StepRace)


def test_a_step_with_random_state_of_its_own_runs_as_keras_runs_it_unless_a_plan_is_asked_for() -> None:
    class Augmenting(keras.Sequential):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y, *_ = data
            return super().train_step((x + tf.random.normal(tf.shape(x)), y))  # type: ignore[no-any-return]

    def losses(**options: Any) -> Any:
        keras.utils.set_random_seed(0)
        model = Augmenting([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        if options:
            placer.keras.optimize(model, **options)
        return model.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history["loss"]

    expected = losses()
    np.testing.assert_allclose(losses(race="off"), expected, rtol=1e-5)
    with pytest.warns(placer.PlacementWarning, match="begin anew with its own state"):
        np.testing.assert_allclose(losses(race="auto"), expected, rtol=1e-5)


def test_an_error_of_a_step_is_its_own() -> None:
    class Failing(keras.Sequential):
        def train_step(self, data: Any) -> dict[str, Any]:
            raise RuntimeError("not today")

    for race in ("auto", "off"):
        model = Failing([keras.Input((6,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        with pytest.raises(RuntimeError, match="not today"):
            placer.keras.optimize(model, race=race).fit(X, Y, verbose=0)


def test_compiling_again_makes_new_plans() -> None:
    model = placer.keras.optimize(dense(), race="off")
    model.fit(X, Y, verbose=0)
    first = model.placement.train
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(X, Y, verbose=0)
    assert any(name.startswith("adam") for name in first.ops)
    assert not any(name.startswith("adam") for name in model.placement.train.ops)
    made = model.train_function
    assert model.make_train_function() is made
    assert model.make_train_function(force=True) is not made
