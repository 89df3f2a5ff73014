"""Steps that replicas run, plain and placed: batch normalisation and gradients that they sum, an optimizer, a metric, a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placer
from placer.common.device_spec import parse
from placer.tf._private.runtime import recorded_partitions
from placer.tf.run.observing import TRANSFER_OPS
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import cpus

STEPS = 10


def mirrored(*devices: str) -> Any:
    """A MirroredStrategy whose collective ops have keys of their own.

    Otherwise all strategies of a process number these ops alike, and TensorFlow refuses two ops of one number and other shapes.
    """
    tf.distribute.MirroredStrategy._collective_key_base += 100_000
    return tf.distribute.MirroredStrategy(list(devices))


def two_replicas() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def one_replica() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0"])


def one_device() -> Any:
    return tf.distribute.OneDeviceStrategy("CPU:1")


def central_storage() -> Any:
    return tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0")


# -- functions that run replicas ---------------------------------------------------------------------------------------


def _weights() -> tf.Tensor:
    return tf.eye(4) * 0.9 + 0.01


def replicated(strategy: Any) -> Any:
    """Without a variable: nothing but the replicas' ops tells of the strategy."""
    w = _weights()
    return tf.function(lambda x: strategy.reduce("SUM", strategy.run(lambda y: tf.matmul(y, w), (x,)), axis=None))


def replicated_deep_inside(strategy: Any) -> Any:
    w = _weights()

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(tf.function(lambda y: tf.sin(y) @ w), (x,)), axis=None)

    @tf.function
    def f(x: tf.Tensor, go: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.cond(go, lambda: inner(x), lambda: x))

    return lambda x: f(x, tf.constant(True))


def replicated_with_its_variable(strategy: Any) -> Any:
    with strategy.scope():
        w = tf.Variable(_weights())
    return tf.function(lambda x: strategy.reduce("SUM", strategy.run(lambda y: tf.matmul(y, w), (x,)), axis=None))


def only_its_variable(strategy: Any) -> Any:
    with strategy.scope():
        w = tf.Variable(_weights())
    return tf.function(lambda x: tf.matmul(x, w))


AROUND_REPLICAS = (replicated, replicated_deep_inside, replicated_with_its_variable, only_its_variable)


def train_around(strategy: Any, place: Callable[[Any], Any]) -> list[Any]:
    """Trains for ten steps with a function that takes the next batch of a distributed dataset, runs the replicas and joins them.

    Args:
        strategy: runs the replicas.
        place: gives the function to call.

    Returns:
        The results of each step, then all variables.
    """
    with strategy.scope():
        weights = tf.Variable(tf.eye(4))
        counted = tf.Variable(
            0.0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM, trainable=False
        )
        adam, mean = keras.optimizers.Adam(0.1), keras.metrics.Mean()
        adam.build([weights])
    rows = tf.random.stateless_uniform([8 * STEPS, 4], [1, 2])
    batches = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(8).repeat()))

    def replica(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.matmul(x, weights) - 1.0))
        adam.apply_gradients(zip(tape.gradient(loss, [weights]), [weights], strict=True))
        mean.update_state(loss)
        counted.assign_add(1.0)
        return loss + tf.distribute.get_replica_context().all_reduce("SUM", loss)

    def step(batches: Any, x: tf.Tensor) -> Any:
        losses = strategy.run(replica, (next(batches),))
        around = tf.tanh(tf.sin(tf.matmul(x, x)))
        return strategy.reduce("SUM", losses, axis=None) + tf.reduce_sum(around), losses, counted.read_value()

    fn = place(step)
    found = [
        tf.nest.map_structure(strategy.experimental_local_results, fn(batches, 0.1 * k * tf.ones([4, 4]))) for k in range(STEPS)
    ]
    found += [strategy.experimental_local_results(v) for v in [weights, *adam.variables]]
    return [np.asarray(tf.convert_to_tensor(value)) for value in [*tf.nest.flatten(found), mean.result()]]


# -- replicas that are given to a strategy -----------------------------------------------------------------------------


def train(
    strategy: Any, optimizer: Callable[[], Any], place: Callable[[Any], Any], *, in_function: bool
) -> tuple[list[Any], Any]:
    """Trains for ten steps from a fixed start.

    Args:
        strategy: runs the replicas.
        optimizer: makes the optimizer.
        place: gives the function of a replica to run.
        in_function: whether a tf.function calls `strategy.run`.

    Returns:
        Everything that can be compared: the loss and the gradients of each replica in each step, then the variables, the
        optimizer's slots and the metric. And the function that ran.
    """
    with strategy.scope():
        weights = tf.Variable(tf.random.stateless_normal([4, 4], [1, 2]), name="weights")
        normal = keras.layers.BatchNormalization(synchronized=True)
        normal.build((None, 4))
        trained = [*normal.trainable_variables, weights]
        chosen, mean = optimizer(), keras.metrics.Mean()
        chosen.build(trained)

    def replica(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            y = normal(tf.matmul(x, weights), training=True)
            y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.1), (tf.constant(0), y))[1]
            loss = tf.reduce_mean(tf.sin(y) * y) + tf.reduce_sum(weights * weights)
        gradients = tape.gradient(loss, trained)
        chosen.apply_gradients(zip(gradients, trained, strict=True))
        mean.update_state(loss)
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        return loss, gradients, number

    fn = place(replica)

    def run(x: Any) -> Any:
        return strategy.run(fn, (x,))

    run = tf.function(run) if in_function else run
    found: list[Any] = []
    for step in range(STEPS):
        x = strategy.experimental_distribute_values_from_function(
            lambda context, step=step: tf.random.stateless_normal([8, 4], [step, context.replica_id_in_sync_group])
        )
        found += tf.nest.flatten(tf.nest.map_structure(strategy.experimental_local_results, run(x)))
    own = [parse(device).short for device in strategy.extended.worker_devices]
    for variable in (v if isinstance(v, tf.Variable) else v.value for v in [*trained, *normal.variables, *chosen.variables]):
        values = strategy.experimental_local_results(variable)
        assert [parse(value.device).short for value in values] == own  # the strategy's own
        found += values
    return [np.asarray(tf.convert_to_tensor(value)) for value in [*found, mean.result()]], fn


def devices_that_ran(placed: Any, call: Callable[[], Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The device of each op in the plan of a call, and the device on which the op ran, for ops that have one of their own.

    Args:
        placed: was not called before, since TensorFlow tells the devices of a first run only.
        call: calls it.
    """
    with recorded_partitions() as recorded:
        call()
    planned = placed.signatures.latest.call_plan.device_of
    ran = {}
    for function in recorded:
        for node in (node for part in function.partition_graphs for node in part.node):
            if node.name in planned and node.op not in ("Const", "_Arg", "_Retval", *TRANSFER_OPS):
                ran[node.name] = parse(node.device).short
    return {name: planned[name] for name in ran}, ran


def main() -> None:
    """Two replicas on devices that are not the host: a process of its own, since the tests' one has two devices."""
    host = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 3)
    strategy = mirrored("CPU:1", "CPU:2")
    options: dict[str, Any] = {"devices": cpus(3), "solver": RandomLegal(0)}

    def momentum() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    plain, _ = train(strategy, momentum, tf.function, in_function=False)
    placed, step = train(strategy, momentum, lambda fn: placer.place(fn, **options), in_function=False)
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert {op.device for op in step.placement.ops.values()} == {"CPU:0", "CPU:1"}

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(tf.matmul(x, x))
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(tf.tanh(y)))
        return tf.cos(y) * total

    placed = placer.place(replica, **options, pins={"Sin": "CPU:0", "MatMul": "CPU:1"})
    planned, ran = devices_that_ran(placed, lambda: strategy.run(placed, (tf.ones([4, 4]),)))
    assert ran == planned
    assert [ran[name] for name in ran if "CollectiveReduce" in name.rpartition("/")[2]] == ["CPU:1", "CPU:2"]
    assert [ran[name] for name in ("MatMul", "replica_1/MatMul", "Sin", "replica_1/Sin")] == ["CPU:1", "CPU:2", "CPU:0", "CPU:0"]
    print("held")


if __name__ == "__main__":
    main()
