"""Functions that the replicas of a distribution strategy run: one plan, each replica on its own device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.common.device_spec import parse
from placer.plan.verdict import PLAN
from placer.tf._private.runtime import recorded_partitions
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.run import timing
from tests.helpers import forked
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus
from tests.helpers.replicas import devices_that_ran, mirrored, one_device, train

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


def two_replicas() -> Any:
    """The second replica is on the host."""
    return mirrored("CPU:1", "CPU:0")


@pytest.mark.parametrize(
    ("make", "in_function", "note"),
    [
        (two_replicas, False, "one of 2 replicas (CPU:1, CPU:0)"),
        (two_replicas, True, "one of 2 replicas (CPU:1, CPU:0)"),
        (one_device, True, "runs it on CPU:1"),
    ],
)
def test_ten_steps_equal_those_of_the_plain_strategy(make: Any, in_function: bool, note: str) -> None:
    def steps(place: Any) -> Any:
        return train(make(), lambda: keras.optimizers.Adam(0.1), place, in_function=in_function)

    plain, _ = steps(tf.function)
    placed, step = steps(lambda fn: placer.place(fn, devices=two_cpus(), solver=RandomLegal(1)))
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert {op.device for op in step.placement.ops.values()} == {"CPU:0", "CPU:1"}
    assert note in step.placement.notes[0]


def test_replicas_that_merge_their_calls_and_copy_gradients() -> None:
    """Without collective ops, sums over replicas are copies to one device."""
    strategy = tf.distribute.MirroredStrategy(["CPU:1", "CPU:0"], cross_device_ops=tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        total = tf.Variable(tf.zeros([4, 4]), aggregation=tf.VariableAggregation.SUM)

    def replica(x: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        y = tf.sin(x) * (1.0 + tf.cast(context.replica_id_in_sync_group, tf.float32))
        total.assign_add(y)
        return tf.cos(context.merge_call(lambda strategy, y: strategy.reduce("SUM", y, axis=None), (y,)))

    placed = placer.place(replica, devices=two_cpus(), pins={"Sin": "CPU:0", "Cos": "CPU:0"})
    planned, ran = devices_that_ran(placed, lambda: strategy.run(placed, (X,)))
    assert ran == planned
    assert [ran[name] for name in ("Sin", "Cos")] == ["CPU:0", "CPU:0"]
    for result in strategy.experimental_local_results(strategy.run(placed, (X,))):
        np.testing.assert_allclose(result, tf.cos(3 * tf.sin(X)), rtol=1e-5)
    np.testing.assert_allclose(total, 2 * 3 * tf.sin(X), rtol=1e-5)


def test_string_lookups_of_two_replicas_take_turns_on_the_host() -> None:
    """The plan of one of two replicas counts each op on the host twice, and half of the host's memory."""
    words = tf.constant([f"word {k}" for k in range(64)])
    table = tf.random.stateless_normal([1000, 16], [1, 2])

    def replica(words: tf.Tensor) -> tf.Tensor:
        return tf.gather(table, tf.strings.to_hash_bucket_fast(words, 1000))

    def plan(strategy: Any) -> placer.Placement:
        placed = placer.place(replica, devices=two_cpus(), pins={"*": "CPU:0"}, memory_limits={"CPU:0": "1MiB"})
        for rows in strategy.experimental_local_results(strategy.run(placed, (words,))):
            np.testing.assert_array_equal(rows, replica(words))
        return placed.placement

    alone, shared = plan(one_device()), plan(two_replicas())
    for name in ("StringToHashBucketFast", "GatherV2"):
        assert shared.ops[name].time_ns["CPU:0"] == 2 * alone.ops[name].time_ns["CPU:0"] > 0
    assert shared.totals["CPU:0"].limit_bytes == alone.totals["CPU:0"].limit_bytes // 2


def test_replicas_on_two_devices_and_the_host() -> None:
    """Values of ten steps, and the device on which each op ran."""
    done = forked.run("-m", "tests.helpers.replicas")
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


@pytest.mark.parametrize("make", [lambda: mirrored("CPU:1", "CPU:0"), lambda: tf.distribute.OneDeviceStrategy("CPU:1")])
def test_the_verdict_of_tuning_is_used_by_all_replicas(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of placed copies are timed as the fastest."""
    strategy = make()
    with strategy.scope():
        total = tf.Variable(tf.zeros([4, 4]), aggregation=tf.VariableAggregation.SUM)
        calls = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM, trainable=False
        )

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(tf.matmul(x, x))
        total.assign_add(y)
        calls.assign_add(1.0)
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.cos(y))

    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        return run(*args, **kwargs), 0.01 if isinstance(run, TapedFunction) else 0.02

    count = strategy.num_replicas_in_sync
    values = strategy.experimental_distribute_values_from_function(
        lambda context: X * (1.0 + tf.cast(context.replica_id_in_sync_group, tf.float32))
    )
    placed = placer.place(replica, devices=two_cpus(), solver=RandomLegal(3))
    with strategy.scope(), monkeypatch.context() as patch:
        patch.setattr(timing, "timed_call", timed)
        found = placed.tune(values, budget_s=1.0)
    assert found.verdict.used == PLAN
    assert not np.any(total)
    assert calls.read_value().numpy() == 0.0
    whole = tf.function(lambda values: strategy.run(placed, (values,)))
    with recorded_partitions() as recorded:
        results = [strategy.experimental_local_results(whole(values))]
    nodes = [node for function in recorded for part in function.partition_graphs for node in part.node]
    planned = {name: placed.placement.ops[name].device for name in ("MatMul", "Sin", "Cos")}
    assert placed.placement.verdict == found.verdict
    assert {*planned.values()} == {"CPU:0", "CPU:1"}
    for name, device in planned.items():
        ran = [parse(node.device).short for node in nodes if node.name.rpartition("/")[2] == name]
        assert sorted(ran) == sorted([device, "CPU:0"][:count])  # the second replica is on the host
    results.append(strategy.experimental_local_results(strategy.run(placed, (values,))))
    inputs = [X * (1.0 + k) for k in range(count)]
    want = sum(tf.cos(tf.sin(x @ x)) for x in inputs)
    for each in (result for of_call in results for result in of_call):
        np.testing.assert_allclose(each, want, rtol=1e-5)
    np.testing.assert_allclose(total, 2 * sum(tf.sin(x @ x) for x in inputs), rtol=1e-5)
    assert calls.read_value().numpy() == 2.0 * count


def test_racing_is_off_and_values_of_replicas_are_tuned_in_the_scope() -> None:
    strategy = mirrored("CPU:1", "CPU:0")
    values = strategy.experimental_distribute_values_from_function(lambda context: X)
    placed = placer.place(lambda x: tf.sin(x @ x), devices=two_cpus(), race="force")
    for _ in range(3):
        for result in strategy.experimental_local_results(strategy.run(placed, (values,))):
            np.testing.assert_allclose(result, tf.sin(X @ X), rtol=1e-5)
    assert placed.placement.verdict is None
    assert "do not race" in placed.placement.notes[0]
    with pytest.raises(placer.PlanError, match=r"call tune inside of strategy\.scope\(\)"):
        placed.tune(values)


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
