"""Functions that the replicas of a distribution strategy run: one plan, each replica on its own device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus
from tests.helpers.replicas import mirrored, train

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


@pytest.mark.parametrize("in_function", [False, True])
def test_ten_steps_of_two_replicas_equal_those_of_the_plain_strategy(in_function: bool) -> None:
    """The second replica is on the host."""

    def steps(place: Any) -> Any:
        strategy = mirrored("CPU:1", "CPU:0")
        return train(strategy, lambda: keras.optimizers.Adam(0.1), place, in_function=in_function)

    plain, _ = steps(tf.function)
    placed, step = steps(lambda fn: placer.place(fn, devices=two_cpus(), solver=RandomLegal(1)))
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert {op.device for op in step.placement.ops.values()} == {"CPU:0", "CPU:1"}
    assert "one of 2 replicas (CPU:1, CPU:0)" in step.placement.notes[0]


def test_replicas_on_two_devices_and_the_host() -> None:
    """Values of ten steps, and the device on which each op ran."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.replicas"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["held"], done.stderr[-3000:]


@pytest.mark.parametrize("in_function", [False, True])
def test_the_replica_of_one_device(in_function: bool) -> None:
    strategy = tf.distribute.OneDeviceStrategy("CPU:1")
    with strategy.scope():
        total = tf.Variable(tf.zeros([4, 4]))

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(tf.matmul(x, x))
        total.assign_add(y)
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.cos(y))

    placed = placer.place(replica, devices=two_cpus(), pins={"Sin": "CPU:0", "MatMul": "CPU:1"})
    run = (lambda x: strategy.run(placed, (x,))) if not in_function else tf.function(lambda x: strategy.run(placed, (x,)))
    for count in range(1, 4):
        np.testing.assert_allclose(run(X), tf.cos(tf.sin(X @ X)), rtol=1e-5)
        np.testing.assert_allclose(total, count * tf.sin(X @ X), rtol=1e-5)
    assert placed.placement.ops["Sin"].device == "CPU:0"
    assert placed.placement.ops["Cos"].device
    assert "A distribution strategy runs it on CPU:1" in placed.placement.notes[0]
    assert any(plan is placed.placement for plan in placed.placements.values())


def test_values_of_replicas_cannot_be_tuned_and_racing_is_off() -> None:
    strategy = mirrored("CPU:1", "CPU:0")
    values = strategy.experimental_distribute_values_from_function(lambda context: X)
    placed = placer.place(lambda x: tf.sin(x @ x), devices=two_cpus(), race="force")
    for _ in range(3):
        for result in strategy.experimental_local_results(strategy.run(placed, (values,))):
            np.testing.assert_allclose(result, tf.sin(X @ X), rtol=1e-5)
    assert placed.placement.verdict is None
    assert "do not race" in placed.placement.notes[0]
    with pytest.raises(placer.PlanError, match="time whole steps"):
        placed.tune(values)
    with strategy.scope(), pytest.raises(placer.PlanError, match="outside of functions, tapes and distribution strategies"):
        placed.tune(X)


@pytest.mark.filterwarnings("ignore::placer.PlacementWarning")
def test_a_plan_of_a_replica_is_saved_and_applied(tmp_path: Path) -> None:
    strategy = mirrored("CPU:1", "CPU:0")

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(x @ x)
        if tf.reduce_sum(x) < 100.0:  # AutoGraph's
            y = tf.tanh(y)
        return tf.distribute.get_replica_context().all_reduce("SUM", y)

    placed = placer.place(replica, devices=two_cpus(), pins={"Sin": "CPU:0", "MatMul": "CPU:1"})
    want = strategy.experimental_local_results(strategy.run(placed, (X,)))
    np.testing.assert_allclose(want[0], 2 * tf.tanh(tf.sin(X @ X)), rtol=1e-5)
    path = tmp_path / "plan.json"
    placed.placement.save(path)
    again = placer.apply(replica, placer.Placement.load(path))
    for have, result in zip(strategy.experimental_local_results(strategy.run(again, (X,))), want, strict=True):
        np.testing.assert_allclose(have, result, rtol=1e-6)
    assert again.placement.ops["Sin"].device == "CPU:0"


@pytest.mark.filterwarnings("ignore:replica runs unplaced under a tape")
def test_a_gradient_that_is_taken_outside_of_the_replicas() -> None:
    strategy = mirrored("CPU:1", "CPU:0")

    def replica(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sin(x @ x))

    def gradient(fn: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(X)
            total = tf.add_n(strategy.experimental_local_results(strategy.run(fn, (X,))))
        return tape.gradient(total, X)

    want = gradient(tf.function(replica))
    for run in (gradient, tf.function(gradient)):
        placed = placer.place(replica, devices=two_cpus(), solver=RandomLegal(0))
        np.testing.assert_allclose(run(placed), want, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*relaxed")
def test_an_imported_graph_that_asks_for_a_device_that_is_not_here() -> None:
    strategy = mirrored("CPU:1", "CPU:0")
    imported = tf.function(lambda x: tf.sin(x @ x)).get_concrete_function(X).graph.as_graph_def()

    def replica(x: tf.Tensor) -> tf.Tensor:
        with tf.device("GPU:7"):
            return tf.graph_util.import_graph_def(imported, {"x:0": x}, ["Sin:0"], name="imported")[0]

    placed = placer.place(replica, devices=two_cpus(), solver=RandomLegal(0))
    for result in strategy.experimental_local_results(strategy.run(placed, (X,))):
        np.testing.assert_allclose(result, tf.sin(X @ X), rtol=1e-5)
