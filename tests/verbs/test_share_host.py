"""Replicas share the host: what is worth moving there for one is not for many."""

from __future__ import annotations

import tensorflow as tf

import placer
from cost_models.base import OpCost, OpSignature
from cost_models.machines import Device
from placer.verbs.share_host import SharedHostCosts, limits_of_replica, machine_of_replica
from tests.helpers.machines import four_gpus, two_gpus


class Prices:
    """Tanh takes 1 ms on a CPU and 3 ms on a GPU, all else 1 us."""

    name = "prices"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        time_ns = 1_000 if signature.op_type != "Tanh" else 1_000_000 if device.kind == "CPU" else 3_000_000
        return OpCost(time_ns, 0, time_ns, 0, "user")


def test_an_op_goes_to_the_host_for_one_replica_and_stays_for_many() -> None:
    w = tf.ones([8, 8])
    graph = placer.build_graph(tf.function(lambda x: tf.matmul(tf.tanh(tf.matmul(x, w)), w)), w, devices="h100")
    pins = {"MatMul": "GPU:0", "MatMul_1": "GPU:0"}

    def device(count: int) -> str:
        devices = tuple(f"GPU:{k}" for k in range(count))
        costs = SharedHostCosts(Prices(), count)
        return placer.solve(graph, machine_of_replica(four_gpus(), devices), cost_model=costs, pins=pins).ops["Tanh"].device

    assert [device(count) for count in (1, 2, 4)] == ["CPU:0", "CPU:0", "GPU:0"]


def test_each_replica_has_its_part_of_the_host_and_all_of_its_own_device() -> None:
    machine = two_gpus()
    both = ("GPU:0", "GPU:1")
    part = machine_of_replica(machine, both)
    assert [device.name for device in part.devices] == ["CPU:0", "GPU:0"]
    whole, shared = machine.link("CPU:0", "GPU:0"), part.link("CPU:0", "GPU:0")
    assert whole is not None
    assert shared is not None
    assert (shared.bytes_per_s, shared.interval_ns) == (whole.bytes_per_s / 2, whole.interval_ns * 2)
    asked = {"CPU": "8GiB", "GPU:0": "6GiB", "GPU:1": "4GiB"}
    assert limits_of_replica(machine, both, asked) == {"CPU:0": 4 << 30, "GPU:0": 4 << 30}
