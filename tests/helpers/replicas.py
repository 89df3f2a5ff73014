"""Steps that replicas run, plain and placed: batch normalisation and gradients that they sum, an optimizer, a metric, a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import placer
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
    found += [value for v in [*trained, *normal.variables, *chosen.variables] for value in strategy.experimental_local_results(v)]
    return [np.asarray(tf.convert_to_tensor(value)) for value in [*found, mean.result()]], fn


def devices_that_ran(placed: Any, strategy: Any, *args: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The device of each op in the plan of all replicas, and the device on which the op ran, for ops that have one of their own.

    Args:
        placed: was not called before, since TensorFlow tells the devices of a first run only.
        strategy: runs its replicas.
        *args: of the call.
    """
    with recorded_partitions() as recorded:
        strategy.run(placed, args)
    planned = placed.signatures.latest.call_plan.device_of
    ran = {}
    for function in recorded:
        for node in (node for part in function.partition_graphs for node in part.node):
            if node.name in planned and node.op not in ("Const", "_Arg", "_Retval", *TRANSFER_OPS):
                spec = tf.DeviceSpec.from_string(node.device)
                ran[node.name] = f"{spec.device_type}:{spec.device_index}"
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

    planned, ran = devices_that_ran(
        placer.place(replica, **options, pins={"Sin": "CPU:0", "MatMul": "CPU:1"}), strategy, tf.ones([4, 4])
    )
    assert ran == planned
    assert [ran[name] for name in ("MatMul", "replica_1/MatMul", "Sin", "replica_1/Sin")] == ["CPU:1", "CPU:2", "CPU:0", "CPU:0"]
    print("held")


if __name__ == "__main__":
    main()
