"""Strategies of `tf.distribute` that run over several processes of this host: a program of each process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

import placer
from placer.common.device_spec import parse
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus
from tests.helpers.replicas import devices_that_ran, train, train_around

Cluster = dict[str, list[str]]


def cluster_of(**tasks: int) -> Cluster:
    """By job, as many addresses as it has tasks, on ports of this host that are free now."""
    sockets = {job: [socket.socket() for _ in range(count)] for job, count in tasks.items()}
    for each in (each for those in sockets.values() for each in those):
        each.bind(("127.0.0.1", 0))
    addresses = {job: [f"127.0.0.1:{each.getsockname()[1]}" for each in those] for job, those in sockets.items()}
    for each in (each for those in sockets.values() for each in those):
        each.close()
    return addresses


@contextmanager
def processes(program: str, cluster: Cluster, jobs: tuple[str, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a program of this file as each task of some jobs. At the end of the block the processes are ended."""
    started = []
    try:
        for job in jobs:
            for index in range(len(cluster[job])):
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                environment = {**os.environ, "TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "-1"}
                command = [sys.executable, "-m", "tests.helpers.task_strategies", program]
                started.append(
                    subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, text=True)
                )
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _compare(results: Callable[[Callable[[Any], Any]], list[Any]]) -> None:
    """Compares the results of plain and placed functions, and prints the warnings about the placed ones as JSON."""
    plain = results(tf.function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        placed = results(placer.place)
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)
    print(json.dumps([str(each.message) for each in caught if issubclass(each.category, placer.PlacementWarning)]))


def multi_worker() -> None:
    """One of two workers, whose replica has a device beside the host, as if that were a GPU. Prints its plan and what failed."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with pytest.MonkeyPatch.context() as patch:
        where = ("_initialize_local_devices", lambda _, __, task: ((f"{task}/device:CPU:1",), "CPU"))
        patch.setattr(CollectiveAllReduceExtended, *where)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    number = strategy.cluster_resolver.task_id

    def momentum() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    plain, _ = train(strategy, momentum, tf.function, in_function=False)
    options: dict[str, Any] = {"devices": two_cpus(), "solver": RandomLegal(number)}  # the two workers have other plans
    placed, step = train(strategy, momentum, lambda fn: placer.place(fn, **options), in_function=False)
    for have, want in zip(placed, plain, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert {op.device for op in step.placement.ops.values()} == {"CPU:0", "CPU:1"}
    around = [train_around(strategy, place) for place in (tf.function, lambda fn: placer.place(fn, **options))]
    for have, want in zip(*around, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)

    def replica(x: tf.Tensor) -> tf.Tensor:
        y = tf.sin(tf.matmul(x, x))
        return tf.cos(y) * tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(tf.tanh(y)))

    placed = placer.place(replica, pins={"Sin": "CPU:0", "MatMul": "CPU:1"})
    planned, ran = devices_that_ran(placed, lambda: strategy.run(placed, (tf.ones([4, 4]),)))
    assert ran == planned
    assert parse(f"/job:worker/task:{number}/device:CPU:1").short == "CPU:1"  # so these are its own devices
    with strategy.scope(), pytest.raises(placer.PlanError, match="each would have its own verdict"):
        placed.tune(tf.ones([4, 4]))
    plan = {name: op.device for name, op in placed.placement.ops.items()}
    print(json.dumps({"ran": ran, "plan": plan, "note": placed.placement.notes[0]}))


def parameter_server() -> None:
    """The coordinator, with two workers and a parameter server as processes of their own."""
    cluster = cluster_of(worker=2, ps=1)
    with processes("server", cluster, ("worker", "ps")):
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

        def results(place: Any) -> list[Any]:
            with strategy.scope():
                weights = tf.Variable(tf.eye(4))
            assert weights.device == "/job:ps/replica:0/task:0/device:CPU:0"

            def step(x: tf.Tensor) -> tf.Tensor:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.sin(tf.matmul(x, weights)))
                weights.assign_sub(0.1 * tape.gradient(loss, weights))
                return loss

            fn = place(step)
            losses = [coordinator.schedule(fn, args=(tf.fill([4, 4], 0.1 * k),)).fetch() for k in range(4)]
            return [*losses, weights.numpy()]

        _compare(results)
    sys.stdout.flush()
    os._exit(0)  # the coordinator's threads still look for its workers


def server() -> None:
    """A worker or a parameter server, until it is ended."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc", start=True
    ).join()


if __name__ == "__main__":
    {"multi_worker": multi_worker, "parameter_server": parameter_server, "server": server}[sys.argv[1]]()
