"""Training steps that do not fit where TensorFlow would put them, on two devices with small limits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.plan.placement import Placement
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.fitting import SMALL, crossings
from tests.helpers.machines import two_cpus, two_fast

HOST, FAST = "CPU:0", "CPU:1"


def tables_on_the_host(plan: Placement) -> None:
    """Only rows that were looked up and activations of a layer cross, and a table's updates are with it."""
    assert [plan.device_of(f"table{i}") for i in range(4)] == 4 * [HOST]
    assert {plan.ops[op.name].device for op in plan.graph if op.op_type == "ResourceScatterSub"} == {HOST}
    assert {plan.device_of(f"top_w{i}") for i in range(2)} == {FAST}
    assert 0 < max(t.nbytes for t in plan.transfers) <= 256 * 512 * 4


def slots_on_the_host(plan: Placement) -> None:
    """Gradients go down and updates up."""
    homes = {name: plan.device_of(name) for name in plan.graph.resources}
    assert {homes[name] for name in homes if name.endswith(("_m", "_v"))} == {HOST}
    assert {homes[f"net_w{i}"] for i in range(3)} == {FAST}


def one_layer_on_the_host(plan: Placement) -> None:
    assert [plan.device_of(f"giant_w{i}") for i in (1, 2)] == [HOST, HOST]
    assert plan.device_of("small_w0") == FAST
    assert plan.device_of("MatMul") == FAST


def both_devices_full(plan: Placement) -> None:
    for totals in plan.totals.values():
        assert totals.persistent_bytes > 0.2 * totals.limit_bytes


EXPECTED: dict[str, Callable[[Placement], None]] = {
    "recommender": tables_on_the_host,
    "adam": slots_on_the_host,
    "giant": one_layer_on_the_host,
    "deep": both_devices_full,
    "forty": both_devices_full,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_is_made_to_fit_and_trains_as_plain(name: str) -> None:
    program = SMALL[name]()
    assert program.limit_bytes is not None

    def make() -> Any:
        return program.make(lambda _: contextlib.nullcontext())

    machine, limited = (two_cpus(), [FAST]) if program.fast == 1 else (two_fast(), [HOST, FAST])
    limits = dict.fromkeys(limited, program.limit_bytes)
    step, variables = placer.plan_then_create(make, program.args, devices=machine, memory_limits=limits)
    plan = step.placement
    for device in limited:
        assert plan.totals[device].peak_bytes <= program.limit_bytes
    total = sum(int(np.prod(v.shape)) * v.dtype.size for v in variables)
    assert sum(totals.persistent_bytes for totals in plan.totals.values()) == total
    EXPECTED[name](plan)

    plain, twins = make()
    plain = tf.function(plain)
    with recorded_partitions() as recorded:
        losses = [step(*program.args)]
    losses += [step(*program.args) for _ in range(4)]
    np.testing.assert_allclose(losses, [plain(*program.args) for _ in range(5)], rtol=1e-5)
    for variable, twin in zip(variables, twins, strict=True):
        np.testing.assert_allclose(variable, twin, rtol=1e-4, atol=1e-6)
        assert f"CPU:{tf.DeviceSpec.from_string(variable.device).device_index}" == plan.device_of(variable.name[:-2])
    promised = {t.tensor: t.nbytes for t in plan.transfers if t.nbytes}
    assert crossings(plan, recorded) == promised


@pytest.mark.parametrize("rounds", [10, 40])
def test_what_a_loop_keeps_for_its_gradient_counts_each_round(rounds: int) -> None:
    x, w = tf.ones([256, 64]), tf.Variable(tf.eye(64))

    def forward(h: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(rounds):
            h = tf.tanh(h @ w)
        return tf.reduce_sum(h)

    def gradient(h: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = forward(h)
        return tape.gradient(loss, w)

    once = 256 * 64 * 4
    peaks = []
    for fn in (forward, gradient):
        plan = placer.solve(placer.build_graph(tf.function(fn), x), two_cpus(), solver="all_cpu")
        peaks.append(plan.totals[HOST].peak_bytes)
    assert peaks[0] < 6 * once
    assert 2 * rounds * once < peaks[1] < (2 * rounds + 8) * once  # what goes into each product, and into each tanh's gradient
    with pytest.raises(placer.InfeasibleError):
        placer.solve(plan.graph, two_cpus(), memory_limits={"CPU": rounds * once // 2})
