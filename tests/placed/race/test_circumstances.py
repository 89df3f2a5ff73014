"""Calls that race in every kind of circumstance: results, state and gradients are those of the plain function."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import RandomLegal
from tests.helpers.racing import MAX_RACED_CALLS, random_races

X = tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]) / 12
CALLS = MAX_RACED_CALLS + 4


def place(fn: Callable[..., Any], seed: int = 0, **options: Any) -> Any:
    return placer.optimized_placement(fn, solver=RandomLegal(seed), race="force", learn_sizes=False, **options)


def plain(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x) * 2.0 + tf.sin(x)


def gradient(x: tf.Tensor) -> tf.Tensor:
    return (1 - tf.tanh(x) ** 2) * 2.0 + tf.cos(x)


@pytest.fixture(autouse=True)
def _races() -> Iterator[None]:
    with random_races(0):
        yield


def test_threads_with_tapes_and_without() -> None:
    total = tf.Variable(0)

    @place
    def step(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(1)
        return plain(x)

    barrier = threading.Barrier(8)

    def calls(thread: int) -> None:
        barrier.wait()
        for i in range(CALLS):
            if (i + thread) % 2:
                with tf.GradientTape() as tape:
                    tape.watch(X)
                    result = step(X)
                tf.debugging.assert_near(tape.gradient(result, X), gradient(X))
            else:
                result = step(X)
            tf.debugging.assert_near(result, plain(X))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, range(8)))
    assert int(total) == 8 * CALLS
    assert all(plan.verdict is not None for plan in step.placements.values())
    assert len(step.placements) == 2


def test_a_function_that_calls_itself_through_a_callback() -> None:
    depth = [0]

    def inner(x: tf.Tensor) -> tf.Tensor:
        depth[0] += 1
        return step(x / 2) if depth[0] % 2 else x

    @place
    def step(x: tf.Tensor) -> tf.Tensor:
        # TensorFlow itself has no gradient of a callback that calls itself.
        return plain(x) + tf.stop_gradient(tf.py_function(inner, [tf.stop_gradient(x)], tf.float32))

    for _ in range(CALLS):
        depth[0] = 0
        tf.debugging.assert_near(step(X), plain(X) + plain(X / 2) + X / 2)
        depth[0] = 0
        with tf.GradientTape() as tape:
            tape.watch(X)
            result = step(X)
        tf.debugging.assert_near(tape.gradient(result, X), gradient(X))


def test_methods_copies_and_instances_have_races_of_their_own() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @place
        def step(self, x: tf.Tensor) -> tf.Tensor:
            return plain(x) * self.factor

    models = [Model(1.0), Model(2.0)]
    for i in range(CALLS):
        if i == 2:
            models.append(copy.deepcopy(models[1]))
            models[2].factor = 3.0
        for factor, model in enumerate(models, 1):
            tf.debugging.assert_near(model.step(X), plain(X) * factor)
    assert all(model.step.placement.verdict is not None for model in models)


def test_it_cannot_be_pickled_before_during_and_after_a_race() -> None:
    step = place(plain)
    for _ in range(CALLS):
        with pytest.raises(TypeError, match=r"cannot pickle the placed function 'plain': .* Send a plan: "):
            pickle.dumps(step)
        step(X)


def test_functions_that_share_variables_and_nest() -> None:
    total = tf.Variable(0.0)

    @place
    def inner(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(1.0)
        return plain(x) + total

    @place
    def outer(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(10.0)
        return inner(x) * 2.0

    value = 0.0
    for _ in range(CALLS):
        value += 1
        tf.debugging.assert_near(inner(X), plain(X) + value)
        value += 11
        tf.debugging.assert_near(outer(X), (plain(X) + value) * 2.0)
    assert float(total) == value


def test_a_variable_that_another_function_moves() -> None:
    with tf.device("CPU:0"):
        weights = tf.Variable(tf.ones([4, 4]))

    @place
    def step(x: tf.Tensor) -> tf.Tensor:
        weights.assign_add(tf.ones([4, 4]))
        return tf.tanh(x @ weights)

    expected = tf.ones([4, 4])
    for i in range(3 * CALLS):
        if i in (1, CALLS, 2 * CALLS):
            where = "CPU:0" if "CPU:1" in weights.device else "CPU:1"
            mover = placer.place(lambda x: tf.sin(x @ weights), variables="move", pins={"*": where}, race="off")
            tf.debugging.assert_near(mover(X), tf.sin(X @ expected))
            assert where in weights.device
            del mover
            gc.collect()
        expected += 1.0
        tf.debugging.assert_near(step(X), tf.tanh(X @ expected))
        tf.debugging.assert_near(weights, expected)


def test_arguments_of_every_kind() -> None:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)

    @place
    def step(ragged: Any, sparse: Any, dataset: Any, iterator: Any, words: Any, number: int = 2) -> Any:
        total, array = tf.constant(0, tf.int64), tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for element in dataset:
            total += element
            array = array.write(array.size(), tf.cast(element, tf.float32))
        table.insert(words, table.lookup(words) + 1)
        pieces = {"ragged": ragged * 2.0, "sparse": tf.sparse.reduce_sum(sparse), "next": next(iterator), "total": total}
        return pieces, array.stack() * number, table.lookup(words), table.size()

    ragged = tf.RaggedTensor.from_row_lengths(tf.constant([1.0, 2.0, 3.0]), [1, 2])
    sparse = tf.sparse.from_dense(np.eye(3, dtype="f"))
    iterator = iter(tf.data.Dataset.range(100))
    for i in range(CALLS):
        pieces, array, counts, size = step(ragged, sparse, tf.data.Dataset.range(4), iterator, tf.constant(["a", "b"]))
        assert (pieces["ragged"] * 1.0).to_list() == [[2.0], [4.0, 6.0]]
        assert float(pieces["sparse"]) == 3.0
        assert int(pieces["next"]) == i
        assert int(pieces["total"]) == 6
        np.testing.assert_array_equal(array, [0.0, 2.0, 4.0, 6.0])
        np.testing.assert_array_equal(counts, [i, i])
        assert int(size) == 2


def test_functions_that_run_eagerly_for_a_while() -> None:
    total = tf.Variable(0)

    @place
    def step(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(1)
        return plain(x)

    for i in range(2 * CALLS):
        tf.config.run_functions_eagerly(i % 3 == 1)
        try:
            tf.debugging.assert_near(step(X), plain(X))
        finally:
            tf.config.run_functions_eagerly(False)
    assert int(total) == 2 * CALLS
    assert step.placement.verdict is not None


def test_calls_under_a_strategy_in_between() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    step = place(plain)
    for _ in range(CALLS):
        tf.debugging.assert_near(step(X), plain(X))
        with strategy.scope():
            tf.debugging.assert_near(step(X), plain(X))
        for result in strategy.experimental_local_results(strategy.run(step, (X,))):
            tf.debugging.assert_near(result, plain(X))


def test_every_kind_of_tape_between_races() -> None:
    def cube(x: tf.Tensor) -> tf.Tensor:
        return x**3 + tf.sin(x)

    first, second = 3 * X**2 + tf.cos(X), 6 * X - tf.sin(X)
    step = place(cube)
    around = tf.function(lambda x: tf.gradients(step(x), x)[0])

    @tf.function
    def tape_in_a_function(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = step(x)
        return tape.gradient(result, x)

    for _ in range(CALLS):
        with tf.GradientTape() as tape:
            tape.watch(X)
            result = step(X)
            with tape.stop_recording():
                tf.debugging.assert_near(step(X), cube(X))
        tf.debugging.assert_near(tape.gradient(result, X), first)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(X)
            result = step(X)
        for _ in range(2):
            tf.debugging.assert_near(tape.gradient(result, X), first)
        with tf.GradientTape() as outer:
            outer.watch(X)
            with tf.GradientTape() as inner:
                inner.watch(X)
                result = step(X)
            once = inner.gradient(result, X)
        tf.debugging.assert_near(outer.gradient(once, X), second)
        for pfor in (True, False):
            with tf.GradientTape(persistent=not pfor) as tape:
                tape.watch(X)
                result = step(X)
            jacobian = tape.jacobian(result, X, experimental_use_pfor=pfor)
            tf.debugging.assert_near(tf.reshape(jacobian, [12, 12]), tf.linalg.diag(tf.reshape(first, [12])))
        with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as accumulator:
            result = step(X)
        tf.debugging.assert_near(accumulator.jvp(result), first)
        tf.debugging.assert_near(around(X), first)
        tf.debugging.assert_near(tape_in_a_function(X), first)
        with tf.GradientTape() as tape:
            tape.watch(X)
            result = step(X)
        tf.debugging.assert_near(tf.function(partial(tape.gradient, result, X))(), first)
    assert step.placements["float32[3,4] (taped)"].verdict is not None


@pytest.mark.parametrize(
    "ask",
    [
        lambda step: step.learn(X),
        lambda step: step.observe(X),
        lambda step: step.observe_gradient(X),
        lambda step: step.get_concrete_function(X)(X),
        lambda step: step.plan(X),
        lambda step: step.prepare(X),
        lambda step: step.harvest(X, steps=1),
    ],
    ids=["learn", "observe", "observe_gradient", "get_concrete_function", "plan", "prepare", "harvest"],
)
def test_what_a_user_asks_during_a_race_changes_no_result(ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    weights = tf.Variable(tf.ones([4, 4]))

    @place
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ weights)

    for _ in range(CALLS):
        with tf.GradientTape() as tape:
            result = step(X)
        tf.debugging.assert_near(result, tf.tanh(X @ weights))
        tf.debugging.assert_near(tape.gradient(result, weights), tf.transpose(X) @ (1 - tf.tanh(X @ weights) ** 2))
        tf.debugging.assert_near(step(X), tf.tanh(X @ weights))
        answer = ask(step)
        if hasattr(answer, "mismatches"):
            assert not answer.mismatches


def test_a_model_saved_during_a_race_and_after_it(tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.ones([4, 4]))

        @place
        def step(self, x: tf.Tensor) -> tf.Tensor:
            return tf.tanh(x @ self.weights)

    model = Model()
    for call in range(CALLS):
        model.step(X)
        if call in (0, 2, CALLS - 1):
            folder = str(tmp_path / str(call))
            tf.saved_model.save(model, folder, signatures=model.step.get_concrete_function(X))
            loaded = tf.saved_model.load(folder)
            tf.debugging.assert_near(loaded.step(X), model.step(X))
            tf.debugging.assert_near(*loaded.signatures["serving_default"](x=X).values(), model.step(X))
    assert model.step.placement.verdict is not None


def test_pins_hold_for_every_candidate() -> None:
    step = place(plain, pins={"Tanh": "CPU:1"})
    for _ in range(CALLS):
        observation = step.observe(X)
        assert not observation.mismatches
        tf.debugging.assert_near(step(X), plain(X))
        assert step.placement.ops["Tanh"].device == "CPU:1"
    assert step.placement.verdict is not None


def test_calls_after_the_races_keep_nothing() -> None:
    step = place(plain)

    def call() -> None:
        step(X)
        with tf.GradientTape() as tape:
            tape.watch(X)
            result = step(X)
        tape.gradient(result, X)

    for _ in range(CALLS + 1):
        call()
    assert all(plan.verdict is not None for plan in step.placements.values())
    gc.collect()
    tracemalloc.start()
    try:
        before = len(gc.get_objects())
        call()
        started, _ = tracemalloc.get_traced_memory()
        for _ in range(300):
            call()
        gc.collect()
        ended, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(gc.get_objects()) - before < 500
    assert ended - started < 200_000


def test_a_plan_for_devices_that_are_not_here_does_not_race() -> None:
    step = place(plain, devices="h100", pins={"*": "CPU:0"})
    for _ in range(CALLS):
        tf.debugging.assert_near(step(X), plain(X))
    assert step.placement.verdict is None
    assert any("GPU:0, which this process does not have" in note for note in step.placement.notes)
