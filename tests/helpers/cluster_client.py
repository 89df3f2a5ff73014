"""The client of a cluster.

`python -m tests.helpers.cluster_client ADDRESS ADDRESS` runs all scenarios. The first worker has one CPU device, the second has
two.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from cost_models.calibrations import save_calibration
from cost_models.cluster import joined
from cost_models.machine_files import load_machine
from cost_models.network import Network
from placer.common.device_spec import parse
from placer.plan.doubt import doubt_of
from placer.tf import connecting
from placer.tf.devices import full_name, local_machine
from tests.helpers.clients import Scenarios
from tests.helpers.workers import machine_file

scenario = Scenarios[list[str]]()
FAR, FARTHER = "worker:0/CPU:0", "worker:1/CPU:1"


def described(addresses: list[str], devices: tuple[int, ...] = (1, 2)) -> Path:
    """A cluster's file for these workers, with so many CPU devices each."""
    folder = Path(tempfile.mkdtemp())
    lines = [f'client = "{machine_file(folder, 1)}"', "[network]", "latency_us = 50"]
    for address, cpus in zip(addresses, devices, strict=True):
        lines += ["[[workers]]", f'address = "{address}"', f'machine = "{machine_file(folder, cpus)}"']
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines))
    return path


# -- before the process is connected ---------------------------------------------------------------------------------


@scenario
def a_function_is_planned_before_and_called_after(addresses: list[str]) -> None:
    path = described(addresses)
    weights = tf.Variable(tf.random.normal([4, 4]))

    @placer.optimized_placement(devices=str(path), pins={"Tanh": FAR, "Sin": FARTHER}, race="off")
    def step(x: Any) -> Any:
        weights.assign_add(tf.ones([4, 4]))
        return tf.sin(tf.tanh(x @ weights))

    x = tf.random.normal([2, 4])
    assert {FAR, FARTHER} <= {op.device for op in step.plan(x).ops.values()}
    with pytest.raises(placer.DeviceError, match=r"the plan uses .*worker:0/CPU:0.* connect to the workers first"):
        step(x)
    with pytest.raises(placer.DeviceError, match=r"worker:1 at 127.0.0.1:1 does not answer as a worker"):
        placer.cluster(workers=[addresses[0], "127.0.0.1:1"])
    with pytest.raises(placer.DeviceError, match=r"worker:0 at .* and worker:1 at localhost:\d+ are one worker"):
        placer.cluster(workers=[addresses[0], addresses[0].replace("127.0.0.1", "localhost")])
    with pytest.raises(placer.DeviceError, match=r"worker:0 at .* has no CPU:1, which 'cluster' gives it; it has CPU:0"):
        placer.cluster(described(addresses, (2, 2)))
    before = weights.numpy()
    assert [device.name for device in placer.cluster(path).devices] == ["CPU:0", FAR, "worker:1/CPU:0", FARTHER]
    np.testing.assert_allclose(step(x), np.sin(np.tanh(x @ (before + 1))), rtol=1e-5)
    np.testing.assert_array_equal(weights, before + 1)


# -- connected -------------------------------------------------------------------------------------------------------


@scenario
def values_are_those_of_the_plain_function(addresses: list[str]) -> None:
    state = tf.Variable(1.0)

    def step(x: Any, words: Any) -> Any:
        parts = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3])
        for i in tf.range(4):
            x = tf.tanh(x) + state
            parts = parts.write(i, tf.sin(x) if tf.reduce_sum(x) > 2.0 else tf.cos(x))
        state.assign_add(tf.reduce_mean(x))
        joined = tf.strings.join([tf.strings.upper(words), tf.strings.as_string(x)], "-")
        return {"parts": parts.stack(), "words": joined, "count": tf.strings.length(joined)}

    plain = tf.function(step)
    x, words = tf.constant([0.1, 0.2, 0.3]), tf.constant(["a", "b", "c"])
    wanted = [tf.nest.map_structure(lambda t: t.numpy(), plain(x, words)) for _ in range(3)]
    wanted_state = state.numpy()
    state.assign(1.0)
    pins = {"*Tanh": FAR, "*Sin": FARTHER, "*Cos": "worker:1/CPU:0", "*StringUpper": FAR, "*StringLength": FARTHER}
    placed = placer.place(step, devices=placer.cluster(described(addresses)), pins=pins, race="off", learn_sizes=False)
    ran = placed.observe(x, words)
    assert not ran.mismatches, ran
    assert {FAR, FARTHER} <= {*ran.ran.values()}
    found = [ran.outputs, placed(x, words), placed(x, words)]
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have["parts"], want["parts"], rtol=1e-6)
        for key in ("words", "count"):
            np.testing.assert_array_equal(have[key], want[key])
    np.testing.assert_allclose(state, wanted_state, rtol=1e-6)


def _training() -> tuple[Any, ...]:
    layers = [keras.layers.Input((16,)), keras.layers.Dense(32, activation="relu", name="a"), keras.layers.Dense(4, name="b")]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(0.01)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, gradients

    return step, model, optimizer


def _five_steps(machine: Any, pins: dict[str, str]) -> tuple[Any, Any, Any]:
    """Losses, gradients, variables and slots of five steps equal the plain ones.

    Returns:
        The placed step, its model and its optimizer.
    """
    x, y = tf.random.normal([8, 16]), tf.random.normal([8, 4])
    keras.utils.set_random_seed(1)
    step, model, optimizer = _training()
    plain = tf.function(step)
    keras.utils.set_random_seed(1)
    made = placer.plan_then_create(_training, [x, y], devices=machine, pins=pins, race="off")
    placed, own_model, own_optimizer = made
    for _ in range(5):
        for have, want in zip(tf.nest.flatten(placed(x, y)), tf.nest.flatten(plain(x, y)), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    everything = zip(own_model.variables + own_optimizer.variables, model.variables + optimizer.variables, strict=True)
    for have, want in everything:
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    ran = placed.observe(x, y)
    assert not ran.mismatches, ran
    assert {"CPU:0", *pins.values()} == {*ran.ran.values()}
    return made


@scenario
def five_training_steps_equal_the_plain_ones(addresses: list[str]) -> None:
    placed, own_model, own_optimizer = _five_steps(placer.cluster(described(addresses)), {"a": FAR, "b": FARTHER})
    assert {v.value.device.rpartition("task:")[2] for v in own_model.layers[0].variables} == {"0/device:CPU:0"}
    slots = [v for v in own_optimizer.variables if v.path.endswith(("b_kernel_momentum", "b_bias_velocity"))]
    assert [v.value.device for v in slots] == ["/job:worker/replica:0/task:1/device:CPU:1"] * 2
    text = placed.placement.summary()
    assert "worker:1/CPU:1" in text
    assert "assumed of cluster: the links between hosts: bytes_per_s" in text
    with tempfile.TemporaryDirectory() as folder:  # checkpoints read variables where they are
        path = tf.train.Checkpoint(model=own_model).write(f"{folder}/checkpoint")
        value = own_model.variables[0].numpy()
        own_model.variables[0].assign(tf.zeros_like(own_model.variables[0]))
        tf.train.Checkpoint(model=own_model).restore(path)
        np.testing.assert_array_equal(own_model.variables[0], value)


@scenario
def gradients_of_a_tape_around_the_call(addresses: list[str]) -> None:
    weights = tf.Variable(tf.random.normal([4, 4]))

    def step(x: Any) -> Any:
        return tf.reduce_sum(tf.sin(tf.tanh(x @ weights)))

    machine = placer.cluster(described(addresses))
    pins = {"Tanh": FAR, "Sin": FARTHER, "backward/*TanhGrad": FARTHER}
    placed = placer.place(step, devices=machine, pins=pins, race="off")
    x = tf.random.normal([2, 4])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        have, want = placed(x), tf.function(step)(x)
    np.testing.assert_allclose(have, want, rtol=1e-5)
    for each in (x, weights):
        np.testing.assert_allclose(tape.gradient(have, each), tape.gradient(want, each), rtol=1e-5)
    ran = placed.observe_gradient(x)
    assert not ran.mismatches, ran
    assert {FAR, FARTHER} <= {*ran.ran.values()}


@scenario
def a_model_that_fits_no_process_runs_over_two(addresses: list[str]) -> None:
    def build() -> tuple[Any, ...]:
        tables = [tf.Variable(tf.fill([256, 1024], float(k))) for k in range(4)]  # 1 MiB each

        def step(x: Any) -> Any:
            total = tf.zeros([])
            for table in tables:
                table.assign_add(tf.ones_like(table))
                total += tf.reduce_sum(x @ table)
            return total

        return step, tables

    x = tf.ones([1, 256])
    machine = placer.cluster(described(addresses))
    limits = {"CPU:0": "5.5MiB", FAR: "5.5MiB", "worker:1/CPU:0": "5.5MiB", FARTHER: 0}
    with pytest.raises(placer.InfeasibleError):
        placer.plan_then_create(build, [x], memory_limits={"CPU": "5.5MiB"}, race="off")
    step, tables = placer.plan_then_create(build, [x], devices=machine, memory_limits=limits, race="off")
    plan = step.placement
    assert all(total.peak_bytes <= total.limit_bytes for total in plan.totals.values())
    assert step(x).numpy() == sum(256 * 1024 * (k + 1) for k in range(4))
    places = {table.device for table in tables}
    assert len(places) > 1, places


@scenario
def variables_move_to_a_worker_and_back(addresses: list[str]) -> None:
    machine = placer.cluster(workers=addresses)
    table = tf.Variable(tf.random.normal([16, 4]), name="table")
    value = table.numpy()

    @tf.function
    def traced_before(x: Any) -> Any:
        return tf.reduce_sum(x @ table)

    x = tf.random.normal([2, 16])
    before = traced_before(x)
    for device in (FARTHER, FAR, "CPU:0"):
        placed = placer.place(lambda x: tf.sin(x @ table), devices=machine, variables="move", pins={"table": device}, race="off")
        np.testing.assert_allclose(placed(x), np.sin(x @ value), rtol=1e-5, atol=1e-6)
        assert parse(table.device).short == device
        np.testing.assert_array_equal(table, value)
        np.testing.assert_allclose(traced_before(x), before, rtol=1e-6)
        del placed
        gc.collect()


@scenario
def calls_see_the_values_that_were_just_written_on_workers(addresses: list[str]) -> None:
    machine, fixed = placer.cluster(workers=addresses), {"variables": "fixed", "race": "off"}
    x = tf.ones([1])
    with tf.device(full_name(FAR)):
        weight, written = tf.Variable([0.0]), tf.Variable([0.0])

        @tf.function
        def occupy(rounds: Any) -> None:
            """Takes milliseconds. It has no results for which something would wait."""
            product = tf.random.normal([300, 300])
            for _ in tf.range(rounds):
                product = tf.tanh(product @ product)
            written.assign(product[0, :1])

    def write(value: float, rounds: int = 40) -> None:
        with tf.device(full_name(FAR)):
            occupy(tf.constant(rounds))
        weight.assign([value])

    step, passed = tf.function(lambda x: x * weight), tf.function(lambda x, weight: x * weight)
    sized = tf.function(lambda x: tf.boolean_mask(x * weight, x > 0.0))
    again = tf.function(tf.recompute_grad(lambda x: x * weight * weight))
    for traced in (step, sized, again, partial(passed, weight=weight)):
        traced(x)
    placed, of_variable, twice = (placer.place(each, devices=machine, **fixed) for each in (step, passed, again))
    calls = {
        "a call": lambda: placed(x),
        "a plain call": lambda: step(x),
        "a plain function that calls it": tf.function(lambda: placed(x)),
        "a call with the variable as its argument": lambda: of_variable(x, weight),
        "the ConcreteFunction": partial(placed.get_concrete_function(x), x),
        "a call before the plan": lambda: placer.place(step, devices=machine, planning="background", **fixed)(x),
    }
    for name, call in calls.items():
        for value in (0.0, 1.0, 2.0):
            write(value)
            assert call() == [value], name
    write(3.0, rounds=400)
    assert placer.place(sized, devices=machine, **fixed)(x) == [3.0], "a call that learns sizes"
    for value in (4.0, 5.0):
        write(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            assert (found := twice(x)) == [value * value], "a call under a tape"
        write(-value)
        assert tape.gradient(found, weight) == [-2.0 * value], "a gradient that computes values again"


@scenario
def a_tape_records_a_loop_with_a_variable_of_a_worker(addresses: list[str]) -> None:
    """TensorFlow ends the process where the plain function does this."""
    machine, x = placer.cluster(workers=addresses), tf.constant([0.5, -1.0])
    with tf.device("CPU:0"):
        here = tf.Variable([0.5, 2.0]), tf.Variable(0)
    with tf.device(full_name(FAR)):
        weight, count = there = tf.Variable([0.5, 2.0]), tf.Variable(0)

    def step(x: Any, weight: Any, count: Any) -> Any:
        for _ in tf.range(3):
            count.assign_add(1)
            x = tf.tanh(x * weight)
        return tf.reduce_sum(x)

    def gradients(step: Any, weight: Any, count: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = step(x)
        first = [found, *tape.gradient(found, (x, weight))]
        with tf.GradientTape() as outer, tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            outer.watch(x)
            found = step(x)
        return [*first, tape.gradient(found, x), tape.gradient(found, weight), outer.gradient(found, weight), count.numpy()]

    want = gradients(tf.function(lambda x: step(x, *here)), *here)
    options = {"devices": machine, "variables": "fixed", "race": "off"}
    captured, passed = placer.place(lambda x: step(x, *there), **options), placer.place(step, **options)
    for placed in (captured, partial(passed, weight=weight, count=count)):
        count.assign(0)
        for have, value in zip(gradients(placed, *there), want, strict=True):
            np.testing.assert_allclose(have, value, rtol=1e-5)


@scenario
def small_functions_stay_with_the_client(addresses: list[str]) -> None:
    weights = tf.Variable(tf.random.normal([64, 64]))

    def step(x: Any) -> Any:
        return tf.nn.softmax(tf.nn.relu(x @ weights) @ weights)

    machine = placer.cluster(workers=addresses)
    assert "the hosts of workers are like this one" in machine.assumed
    for options in ({}, {"variables": "move"}):
        placed = placer.place(step, devices=machine, **options)
        placed(tf.ones([32, 64]))
        assert {op.device for op in placed.placement.ops.values()} == {"CPU:0"}
    assert weights.device == "/job:localhost/replica:0/task:0/device:CPU:0"


@scenario
def workers_named_by_address_have_the_constants_that_were_measured_on_this_host(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACER_CACHE", folder)
        here = local_machine()
        slow = replace(here.device("CPU:0"), dispatch_ns=123_456)
        save_calibration(replace(here, devices=(slow,)))
        for device in placer.cluster(workers=addresses).devices:
            assert replace(device, name="CPU:0", call_ns=0) == slow  # a call with an op on a worker takes longer


@scenario
def the_network_is_measured_and_small_functions_stay(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACER_CACHE", folder)
        machine = placer.calibrate_network(workers=addresses, budget_s=1.0)
        assert machine == placer.cluster(workers=addresses)  # which reads what was kept
        assert machine.assumed == "the hosts of workers are like this one"
        link, back = machine.link("CPU:0", FAR), machine.link(FAR, "worker:1/CPU:0")
        assert link
        assert back
        assert 1_000 < link.latency_ns == back.latency_ns < 1e8
        assert machine.device(FAR).call_ns > machine.device("CPU:0").call_ns
        in_file = load_machine(described(addresses))
        assert in_file.link("CPU:0", FAR).latency_ns == 50_000  # the file says it
        assert in_file.link("CPU:0", FAR).bytes_per_s == link.bytes_per_s
    weights = tf.Variable(tf.random.normal([64, 64]))
    placed = placer.place(lambda x: tf.nn.relu(tf.nn.relu(x @ weights) @ weights), devices=machine, race="off")
    placed(tf.ones([32, 64]))
    assert {op.device for op in placed.placement.ops.values()} == {"CPU:0"}


@scenario
def what_is_on_a_worker_needs_the_cluster(addresses: list[str]) -> None:
    machine = placer.cluster(workers=addresses)
    with tf.device("/job:worker/replica:0/task:1/device:CPU:1"):
        weights, x = tf.Variable(tf.ones([4])), tf.constant([1.0, 2.0, 3.0, 4.0])
    placed = placer.place(lambda x: x * weights + 1.0, devices=machine, race="off")
    np.testing.assert_allclose(placed(x), x + 1.0)
    assert placed.placement.device_of("mul/ReadVariableOp") == FARTHER
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        alone = placer.place(lambda x: x * weights + 1.0)
        np.testing.assert_allclose(alone(x), x + 1.0)
    assert any("which is not planned for" in str(w.message) for w in warned)


@scenario
def nothing_goes_to_a_worker_without_work(addresses: list[str]) -> None:
    def step(x: Any) -> Any:
        kept, rounds = tf.boolean_mask(x, x > 0), 0.0
        while rounds < tf.reduce_sum(kept):
            rounds += 1.0
            kept = tf.sqrt(kept)
        return tf.sort(kept)

    x = tf.random.normal([4, 8])
    placed = placer.place(step, devices=placer.cluster(described(addresses)), pins={"*Sqrt": FAR}, race="off")
    for _ in range(2):  # the first call learns sizes
        np.testing.assert_allclose(placed(x), tf.function(step)(x), rtol=1e-5)
    assert {op.device for op in placed.placement.ops.values()} == {"CPU:0", FAR}


@scenario
def a_plan_that_gains_less_than_the_doubt_stays_local(addresses: list[str]) -> None:
    """Predicted for workers that are a little or many times faster than the client. The calls cannot race."""
    small = Network(latency_us=1.0, bytes_per_s=1e12, call_us=1.0)
    client = replace(load_machine("cpu2"), assumed="")

    def step(x: Any) -> Any:
        x += tf.random.uniform(x.shape, seed=1)  # its position is in one copy of the function
        for _ in range(4):
            x = tf.tanh(x @ x)
        return x

    placer.cluster(workers=addresses)
    for speed, wanted in ((1.15, {"CPU:0"}), (20.0, {"CPU:0", FAR})):
        host = client.device("CPU:0")
        faster = replace(host, flops={kind: speed * rate for kind, rate in host.flops.items()})
        machine = joined("cluster", client, [replace(client, devices=(faster,))], small, {})
        x = tf.ones([1024, 1024])
        plan = placer.solve(placer.build_graph(step, x, devices=machine), machine)
        assert FAR in {op.device for op in plan.ops.values()}
        gain = plan.baselines["tf_default"].step_time_ns / plan.step_time_ns
        assert gain > 1.05
        assert (gain > doubt_of(plan).gain) == (speed > 2), gain
        placed = placer.place(step, devices=machine)
        placed(x)
        assert {op.device for op in placed.placement.ops.values()} == wanted
        assert ("may be an error of the prediction" in placed.placement.notes[0]) == (speed < 2)


@scenario
def a_keras_model_is_planned_for_all_devices(addresses: list[str]) -> None:
    machine = placer.cluster(described(addresses))
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    wanted = model.predict(np.ones([8, 4]), batch_size=2, verbose=0)
    placer.keras.optimize(model, devices=machine)
    np.testing.assert_allclose(model.predict(np.ones([8, 4]), batch_size=2, verbose=0), wanted, rtol=1e-6)
    assert {*model.placement.predict.devices} == {device.name for device in machine.devices}


@scenario
def two_processes(addresses: list[str]) -> None:
    machine = placer.cluster(workers=addresses[1:])
    assert [device.name for device in machine.devices] == ["CPU:0", "worker:0/CPU:0", "worker:0/CPU:1"]
    placed = placer.place(lambda x: tf.sin(tf.cos(x)), devices=machine, pins={"Sin": "worker:0/CPU:1"}, race="off")
    np.testing.assert_allclose(placed(tf.ones([3])), np.sin(np.cos(np.ones(3))), rtol=1e-6)
    assert placed.observe(tf.ones([3])).ran["Sin"] == "worker:0/CPU:1"
    _five_steps(machine, {"a": "worker:0/CPU:0", "b": "worker:0/CPU:1"})  # variables on workers that were left are not read


def main(addresses: list[str]) -> None:
    connecting.ANSWER_S = 3.0
    scenario.run_all(addresses)
    os._exit(0)  # without waiting for the servers


if __name__ == "__main__":
    main(sys.argv[1:])
