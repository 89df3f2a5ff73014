"""Strategies of `tf.distribute` that run over several processes of this host: a program of each process."""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.distribute.parameter_server_strategy_v2 import ParameterServerStrategyV2Extended

import placer
from placer.common.device_spec import parse
from placer.tf import connecting
from tests.helpers.forked import Program
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import cpus, two_cpus
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
def processes(program: str, cluster: Cluster, jobs: tuple[str, ...]) -> Iterator[list[Program]]:
    """Runs a program of this file as each task of some jobs. At the end of the block the processes are ended."""
    started = []
    try:
        for job in jobs:
            for index in range(len(cluster[job])):
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                environment = {**os.environ, "TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "-1"}
                started.append(Program("-m", "tests.helpers.task_strategies", program, environment=environment))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


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
    with pytest.raises(placer.DeviceError, match="a task of a cluster itself"):
        connecting.connect([])
    plan = {name: op.device for name, op in placed.placement.ops.items()}
    print(json.dumps({"ran": ran, "plan": plan, "note": placed.placement.notes[0]}))


_SERVER = """
import json, sys
import tensorflow as tf

cluster, job, index, cpus = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
config = tf.compat.v1.ConfigProto(device_count={"CPU": cpus})
tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc", config=config).join()
"""


class Servers:
    """A server of TensorFlow for each task of a cluster.

    Args:
        cluster: the tasks.
        cpus: by job, how many CPU devices each of its tasks has.
    """

    def __init__(self, cluster: Cluster, cpus: dict[str, int]) -> None:
        self._cluster, self._cpus = cluster, cpus
        self._processes = {(job, k): self._begun(job, k) for job, addresses in cluster.items() for k in range(len(addresses))}

    def _begun(self, job: str, index: int) -> Program:
        return Program("-c", _SERVER, json.dumps(self._cluster), job, str(index), str(self._cpus[job]))

    def kill(self, job: str, index: int) -> None:
        self._processes[job, index].kill()
        self._processes[job, index].wait()

    def start_again(self, job: str, index: int) -> None:
        """Starts a task that was killed, at the same port."""
        self._processes[job, index] = self._begun(job, index)

    def kill_all(self) -> None:
        for task in self._processes:
            self.kill(*task)


def parameter_server() -> None:
    """The coordinator, with two workers, whose replicas have devices beside the host, and a parameter server."""
    cluster = cluster_of(worker=2, ps=1)
    servers = Servers(cluster, {"worker": 3, "ps": 1})
    try:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("error", placer.PlacementWarning)
            patch.setattr(ParameterServerStrategyV2Extended, "worker_devices", ("/device:CPU:1",))
            _steps_equal_the_plain_ones(strategy, coordinator)
            _ops_run_where_planned(coordinator)
            _others_are_left_alone(strategy, coordinator)
            _a_worker_is_started_again(strategy, coordinator, servers)
            patch.setattr(ParameterServerStrategyV2Extended, "worker_devices", ("/device:CPU:1", "/device:CPU:2"))
            patch.setattr(strategy.extended, "_num_gpus_per_worker", 2)
            _steps_equal_the_plain_ones(strategy, coordinator)
            _replicas_run_where_planned(strategy, coordinator)
    finally:
        servers.kill_all()
    print("held", flush=True)
    os._exit(0)  # the coordinator's threads still look for its workers


def _steps_equal_the_plain_ones(strategy: Any, coordinator: Any) -> None:
    """Steps of a function, and of one that runs replicas: the next batch of a worker's dataset, a gather, and momentum.

    Each value that the coordinator assigns is read by the next step.
    """
    replicas = len(strategy.extended.worker_devices)
    machine = cpus(1 + replicas)
    rows = tf.random.stateless_uniform([8, 4], [1, 2])
    words = tf.constant(["a", "b", "c", "d", "e", "f", "g", "h"])
    batches = coordinator.create_per_worker_dataset(
        lambda: strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensor_slices((rows, words)).batch(8, drop_remainder=True).repeat()
        )
    )

    def results(place: Any, in_replicas: bool) -> list[Any]:
        with strategy.scope():
            starts = (tf.ones([16, 4]), tf.eye(4), tf.zeros([4, 4]), tf.constant(0.0))
            table, weights, speed, rate = (tf.Variable(start, aggregation=tf.VariableAggregation.SUM) for start in starts)
        assert weights.device == "/job:ps/replica:0/task:0/device:CPU:0"

        def train(x: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                looked_up = tf.gather(table, tf.strings.to_hash_bucket_fast(words, 16))
                y = tf.while_loop(
                    lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.1), (tf.constant(0), tf.matmul(x + looked_up, weights))
                )
                loss = tf.reduce_sum(tf.sin(y[1]))
            gradients = tape.gradient(loss, [table, weights])
            table.scatter_sub(tf.IndexedSlices(rate * gradients[0].values, gradients[0].indices))
            speed.assign(0.9 * speed + gradients[1])
            weights.assign_sub(rate * speed)
            return loss

        def step(batches: Any) -> tf.Tensor:
            if not in_replicas:
                return train(*next(batches))
            return strategy.reduce("SUM", strategy.run(train, args=next(batches)), axis=None)

        fn, losses = place(step), []
        for k in range(5):
            rate.assign(0.01 * k)
            losses.append(coordinator.schedule(fn, args=(iter(batches),)).fetch())
        return [*losses, *(variable.numpy() for variable in (table, weights, speed))]

    def placed(fn: Any) -> Any:
        made.append(placer.place(fn, devices=machine, solver=RandomLegal(1)))
        return made[-1]

    made: list[Any] = []
    for in_replicas in (False, True) if replicas == 1 else (True,):
        plain = results(tf.function, in_replicas)
        for place in [placed, *([lambda fn: placer.place(fn, devices=machine)] if in_replicas else [])]:
            for have, want in zip(results(place, in_replicas), plain, strict=True):
                np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert all({op.device for op in step.placement.ops.values()} == {"CPU:0", "CPU:1"} for step in made)


def has_variable(name: str, device: str) -> bool:
    """Whether an op on this device has made a variable of this shared name, a vector of four."""
    with tf.device(device):
        handle = tf.raw_ops.VarHandleOp(shared_name=name, dtype=tf.float32, shape=[4])
        return bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def make_variable(name: str, value: tf.Tensor) -> tf.Tensor:
    """Makes a variable of this shared name on the device of the op of this name; whether it was not there before."""
    handle = tf.raw_ops.VarHandleOp(shared_name=name, dtype=tf.float32, shape=[4], name=name)
    is_new = tf.logical_not(tf.raw_ops.VarIsInitializedOp(resource=handle))
    with tf.control_dependencies([is_new]):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return is_new


WORKERS = [f"/job:worker/replica:0/task:{k}/device" for k in range(2)]


def _ops_run_where_planned(coordinator: Any) -> None:
    """A variable that a call makes is on the planned device of the worker that ran it, and on no other."""

    of_coordinator = tf.Variable(0.0)

    def call(x: tf.Tensor) -> tf.Tensor:
        of_coordinator.assign_add(1.0)
        make_variable("made", x)
        with tf.device("/job:chief"):
            y = tf.sin(x)
        with tf.device("/job:ps/task:0/device:CPU:0"):
            return tf.cos(y)

    placed = placer.place(call, pins={"made": "CPU:1"})

    x = tf.ones([4])
    count = 0
    while not all(has_variable("made", f"{worker}:CPU:1") for worker in WORKERS):
        for result in [coordinator.schedule(placed, args=(x,)) for _ in range(10)]:
            np.testing.assert_allclose(result.fetch(), np.cos(np.sin(np.ones(4))), rtol=1e-6)
            count += 1
    assert of_coordinator.numpy() == count
    assert not any(has_variable("made", f"{worker}:CPU:0") for worker in WORKERS)
    assert {op.device for op in placed.placement.ops.values()} == {"CPU:0", "CPU:1"}
    assert "each on its own devices (CPU:0, CPU:1)" in placed.placement.notes[0]


def _replicas_run_where_planned(strategy: Any, coordinator: Any) -> None:
    """Each of two replicas makes a variable on its own device and one on the host of the worker that ran it."""

    def replica(x: tf.Tensor) -> tf.Tensor:
        make_variable("own", x)
        make_variable("hosted", x)
        return tf.reduce_sum(x)

    def step(x: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(replica, (x,)), axis=None)

    placed = placer.place(step, pins={"own": "CPU:1", "hosted": "CPU:0"})
    while not all(has_variable("own", f"{worker}:CPU:1") for worker in WORKERS):
        for result in [coordinator.schedule(placed, args=(tf.ones([4]),)) for _ in range(10)]:
            assert result.fetch() == 8.0
    for worker in WORKERS:
        assert [has_variable("own", f"{worker}:CPU:{k}") for k in range(3)] == [False, True, True]
        assert [has_variable("hosted", f"{worker}:CPU:{k}") for k in range(3)] == [True, False, False]


def _a_worker_is_started_again(strategy: Any, coordinator: Any, servers: Servers) -> None:
    """The first worker dies, and another function is scheduled meanwhile. What the worker held is made anew there."""
    with strategy.scope():
        calls = tf.Variable(0.0)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3.0]), 0.0)
    batches = iter(coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(["a"] * 4).repeat()))

    def placed(name: str) -> Any:
        def call(batches: Any) -> Any:
            calls.assign_add(1.0)
            x = table.lookup(next(batches))
            return tf.reduce_sum(tf.square(x)), make_variable(name, x)

        return placer.place(call, pins={name: "CPU:1", "Square": "CPU:0"})

    def new_variables(fn: Any) -> int:
        """How many of ten calls were the first ones on a worker since it was started."""
        results = [coordinator.schedule(fn, args=(batches,)).fetch() for _ in range(10)]
        assert all(total == 36.0 for total, _ in results)
        made.append(sum(bool(is_new) for _, is_new in results))
        return made[-1]

    made: list[int] = []
    early, late = placed("early"), placed("late")
    found = 0
    while found < 2:
        found += new_variables(early)
    servers.kill("worker", 0)
    assert new_variables(early) == 0
    assert new_variables(late) == 1
    servers.start_again("worker", 0)
    for fn in (early, late):
        while not new_variables(fn):
            pass
    assert calls.numpy() == 10.0 * len(made)


def _others_are_left_alone(strategy: Any, coordinator: Any) -> None:
    """A replica's function, and calls that are not scheduled."""
    x = tf.ones([4])
    placed = placer.place(tf.cos)
    whole = tf.function(lambda x: strategy.run(placed, (x,)))
    with pytest.warns(placer.PlacementWarning, match=r"is placed if coordinator\.schedule .* gets it"):
        np.testing.assert_allclose(coordinator.schedule(whole, args=(x,)).fetch(), np.cos(np.ones(4)), rtol=1e-6)
    placed = placer.place(lambda x: tf.sin(tf.cos(x)), pins={"Sin": "CPU:0"})
    np.testing.assert_allclose(placed(x), np.sin(np.cos(np.ones(4))), rtol=1e-6)  # on the coordinator's own devices
    assert placed.placement.ops["Sin"].device == "CPU:0"


if __name__ == "__main__":
    {"multi_worker": multi_worker, "parameter_server": parameter_server}[sys.argv[1]]()
