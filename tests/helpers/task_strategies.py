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

import numpy as np
import tensorflow as tf

import placer

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
    """One worker: a step of a plain and of a placed function of a replica, which updates a variable and sums over the workers."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    x = tf.fill([4, 4], 0.1 * (1 + strategy.cluster_resolver.task_id))

    def results(place: Any) -> list[Any]:
        with strategy.scope():
            weights = tf.Variable(tf.eye(4), aggregation=tf.VariableAggregation.SUM)

        def replica(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(tf.matmul(x, weights)))
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            return tf.distribute.get_replica_context().all_reduce("SUM", loss)

        fn = place(replica)
        return [strategy.run(fn, (x,)).numpy(), weights.numpy()]

    _compare(results)


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
