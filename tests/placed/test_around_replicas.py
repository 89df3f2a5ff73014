"""Functions that run the replicas of a distribution strategy: what is around the replicas is placed, the replicas stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import Program, check
from tests.helpers.machines import two_cpus
from tests.helpers.replicas import AROUND_REPLICAS, devices_that_ran, mirrored, one_device, train_around, two_replicas

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


@pytest.mark.filterwarnings("ignore:.*relaxed, which")  # plans for machines without it are made, too
@pytest.mark.parametrize("make", [two_replicas, one_device])
@pytest.mark.parametrize("build", AROUND_REPLICAS)
def test_random_plans_around_replicas(make: Callable[[], Any], build: Callable[[Any], Any]) -> None:
    check(lambda: Program(fn=build(make()), args=(X,)))


def test_ten_steps_equal_those_of_the_plain_function_and_only_ops_around_the_replicas_move() -> None:
    """The second replica is on the host. A pin on an op type moves no op of a replica."""
    ran: dict[str, str] = {}

    def place(step: Any) -> Any:
        placed = placer.place(step, devices=two_cpus(), pins={"Sin": "CPU:1", "Tanh": "CPU:0", "MatMul": "CPU:1"}, race="force")

        def call(*args: Any) -> Any:
            if ran:
                return placed(*args)
            results: list[Any] = []
            planned, found = devices_that_ran(placed, lambda: results.append(placed(*args)))
            assert found == planned
            ran.update(found)
            assert any("must agree" in note for note in placed.placement.notes)
            assert placed.placement.verdict is None
            return results[0]

        return call

    plain = train_around(mirrored("CPU:1", "CPU:0"), tf.function)
    for have, want in zip(train_around(mirrored("CPU:1", "CPU:0"), place), plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert [ran[name] for name in ("Sin", "Tanh", "MatMul_1")] == ["CPU:1", "CPU:0", "CPU:1"]
    assert [ran[name] for name in ("MatMul", "replica_1/MatMul", "Square", "replica_1/Square")] == ["CPU:1", "CPU:0"] * 2
    collectives = sorted(device for name, device in ran.items() if "CollectiveReduce" in name.rpartition("/")[2])
    assert collectives == ["CPU:0", "CPU:0", "CPU:1", "CPU:1"]


def test_a_pin_on_an_op_of_a_replica_is_refused() -> None:
    placed = placer.place(AROUND_REPLICAS[0](two_replicas()), devices=two_cpus(), pins={"replica_1/MatMul": "CPU:0"})
    with pytest.raises(placer.ConstraintError, match="a distribution strategy runs 'replica_1/MatMul' on CPU:1"):
        placed(X)
    placed = placer.place(AROUND_REPLICAS[0](two_replicas()), devices=two_cpus(), pins={"replica_*": "CPU:0"})
    with pytest.raises(placer.OptionError, match="replicas of a distribution strategy stay where it runs them"):
        placed(X)


def test_placed_replicas_in_a_placed_step_run_by_their_own_plan() -> None:
    strategy = mirrored("CPU:1", "CPU:0")

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.reduce_sum(tf.cos(tf.sin(x)))
        return y + tf.distribute.get_replica_context().all_reduce("SUM", y)

    def step(fn: Any) -> Any:
        return lambda x: strategy.reduce("SUM", strategy.run(fn, (x,)), axis=None) + tf.reduce_sum(tf.tanh(x))

    inner = placer.place(replica, devices=two_cpus(), pins={"Sin": "CPU:0", "Cos": "CPU:1"})
    outer = placer.place(step(inner), devices=two_cpus(), pins={"Tanh": "CPU:1"})
    np.testing.assert_allclose(outer(X), tf.function(step(replica))(X), rtol=1e-6)
    device_of = {name.removeprefix("StatefulPartitionedCall/"): op.device for name, op in outer.placement.ops.items()}
    assert [device_of[name] for name in ("Sin", "replica_1/Sin", "Cos", "replica_1/Cos", "Tanh")] == [
        "CPU:0", "CPU:0", "CPU:1", "CPU:0", "CPU:1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "meet",
    [lambda context, x: context.merge_call(lambda _, y: y, (x,)), lambda context, x: context.all_reduce("SUM", x)],
    ids=["merge_call", "all_reduce"],
)
def test_replicas_that_meet_in_a_nested_function_raise_the_error_of_tensorflow(meet: Callable[..., Any]) -> None:
    strategy = mirrored("CPU:1", "CPU:0")
    nested = tf.function(lambda x: meet(tf.distribute.get_replica_context(), x))

    def replica(x: tf.Tensor) -> tf.Tensor:
        return nested(x) + 1.0

    def step(x: tf.Tensor) -> Any:
        return strategy.run(replica, (x,))

    placed = placer.place(replica, devices=two_cpus())
    for fn in (tf.function(step), placer.place(step, devices=two_cpus()), lambda x: strategy.run(placed, (x,))):
        with pytest.raises(RuntimeError, match="`merge_call` called while defining a new graph"):
            fn(X)


def test_a_step_that_runs_replicas_is_tuned_as_a_whole() -> None:
    """Its arguments have values of replicas."""
    strategy = mirrored("CPU:1", "CPU:0")
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.reduce_sum(x)
        total.assign_add(y)
        return y + tf.distribute.get_replica_context().all_reduce("SUM", y)

    def step(x: Any) -> Any:
        return tf.tanh(0.01 * strategy.reduce("SUM", strategy.run(replica, (x,)), axis=None))

    values = strategy.experimental_distribute_values_from_function(lambda context: X + 1.0)
    placed = placer.place(step, devices=two_cpus())
    placed.tune(values, budget_s=1.0)
    assert total.numpy() == 0.0
    assert placed.placement.verdict.used
    np.testing.assert_allclose(placed(values), np.tanh(0.01 * 6 * 16), rtol=1e-6)
    np.testing.assert_allclose(total, 2 * 16.0, rtol=1e-6)
