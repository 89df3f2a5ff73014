"""What a user asks for is done, or refused or relaxed in words: scopes, pins, missing and remote devices, saved models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import ConstraintError, DeviceError, OptionError, PlacementWarning, PlanError
from placer.plan.placement import Placement
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.harness import Program, RandomLegal, check, plan, soft_placement
from tests.helpers.machines import four_gpus, two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
W = tf.eye(4) * 0.5 + 0.1


def devices(placement: Placement) -> dict[str, str]:
    """By name, without what has no work."""
    return {name: p.device for name, p in placement.ops.items() if placement.graph.op(name).role == "op"}


# -- scopes ------------------------------------------------------------------------------------------------------------


def partial_specs(x: tf.Tensor) -> tf.Tensor:
    """Parts of a device, each said by another scope."""
    with tf.device("/job:localhost"):
        with tf.device("/task:0"), tf.device("/device:CPU:1"):
            x = tf.sin(x, name="one")
        with tf.device("/replica:0/task:0/device:CPU:0"):
            x = tf.cos(x, name="zero")
    with tf.device("CPU:1"), tf.device(None):
        x = tf.tan(x, name="free")
    return tf.exp(x, name="free_too")


def a_call_under_a_scope(x: tf.Tensor) -> tf.Tensor:
    """Ops of a called function that ask for nothing go where its call is asked to go."""

    @tf.function
    def inner(y: tf.Tensor) -> tf.Tensor:
        y = tf.sin(y, name="one")
        with tf.device("/CPU:0"):
            return tf.cos(y, name="zero")

    with tf.device("/CPU:1"):
        return inner(x)


def a_loop_and_a_branch_under_scopes(x: tf.Tensor) -> tf.Tensor:
    with tf.device("/CPU:1"):
        for _ in tf.range(2):
            x = tf.sin(x, name="one")
    with tf.device("/CPU:0"):
        return tf.cond(x[0, 0] > 0, lambda: tf.cos(x, name="zero"), lambda: tf.tan(x, name="zero_too"))


WANTED = {"one": "CPU:1", "zero": "CPU:0", "zero_too": "CPU:0"}


@pytest.mark.parametrize("f", [partial_specs, a_call_under_a_scope, a_loop_and_a_branch_under_scopes])
@pytest.mark.parametrize("seed", [0, 1])
def test_scopes_are_hard(f: Callable[..., Any], seed: int) -> None:
    placed = placer.place(tf.function(f), devices=two_cpus(), solver=RandomLegal(seed))
    with soft_placement(False):
        observation = placed.observe(X)
    found = {name.rpartition("/")[2]: device for name, device in devices(placed.placement).items()}
    assert {name: found[name] for name in WANTED if name in found} == {n: d for n, d in WANTED.items() if n in found}
    assert len(found.keys() & WANTED.keys()) >= 2
    assert not observation.mismatches
    np.testing.assert_allclose(observation.outputs, tf.function(f)(X), rtol=1e-5)


def test_a_scope_around_the_call_holds_for_what_asks_for_nothing() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            x = tf.sin(x)
        return tf.cos(x)

    placed = placer.place(f, devices=two_cpus())
    with tf.device("/CPU:1"):
        ran = placed.observe(X).ran
    assert (ran["Sin"], ran["Cos"]) == ("CPU:0", "CPU:1")


@pytest.mark.parametrize("loop", [False, True])
def test_a_scope_around_each_call_inside_a_function_is_heard(loop: bool) -> None:
    """As TensorFlow does it: for what asks for nothing, whatever other calls of the same trace asked for."""

    def f(x: tf.Tensor) -> tf.Tensor:
        x = tf.cumsum(x)
        with tf.device("/CPU:0"):
            return tf.cos(x)

    placed = placer.place(tf.function(f), devices=two_cpus(), solver=RandomLegal(0))

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2) if loop else range(1):
            with tf.device("/CPU:1"):
                x = placed(x)
            with tf.device("/CPU:0"):
                x = placed(x)
        return x

    with soft_placement(False):
        once = f(f(X))
        np.testing.assert_allclose(outer(X), f(f(once)) if loop else once, rtol=1e-6)
    plans = placed.placements
    assert {(name, p.device_of("Cumsum"), p.device_of("Cos")) for name, p in plans.items()} == {
        ("float32[4,4] (on CPU:1)", "CPU:1", "CPU:0"),
        ("float32[4,4] (on CPU:0)", "CPU:0", "CPU:0"),
    }
    with recorded_partitions() as recorded:
        tf.function(outer.python_function)(X)
    ran = {n.device[-5:] for f in recorded for g in f.partition_graphs for n in g.node if n.op == "Cumsum"}
    assert ran == {"CPU:0", "CPU:1"}


def test_an_op_without_a_kernel_there_is_relaxed_and_reported() -> None:
    """Nothing else is: the products stay on the GPU that their scope asks for."""

    @tf.function
    def f(x: tf.Tensor, banned: tf.Tensor) -> tf.Tensor:
        with tf.device("/GPU:0"):
            h = tf.matmul(tf.matmul(x, W), W)
            kept = tf.raw_ops.ListDiff(x=tf.argsort(h[:, 0]), y=banned).out
            return tf.gather(h, kept)

    placement = plan(Program(fn=f, args=(X, tf.constant([1, 2]))))
    assert placement.device_of("ListDiff") == "CPU:0"
    assert placement.device_of("MatMul") == placement.device_of("MatMul_1") == "GPU:0"
    (note,) = [n for n in placement.notes if "relaxed" in n]
    assert "ListDiff" in note
    assert "no GPU kernel" in note
    assert "no GPU kernel of ListDiff" in placement.explain("ListDiff")


def test_an_op_that_takes_a_handle_goes_where_the_variable_is_and_the_scope_is_reported() -> None:
    with tf.device("/CPU:0"):
        w = tf.Variable(W, name="w")

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:1"):
            y = tf.matmul(x, tf.identity(w.read_value(), name="manual_copy"), name="pinned_one")
        with tf.device("/CPU:0"):
            y = tf.nn.relu(y, name="pinned_zero")
        return tf.reduce_sum(y, name="free")

    placed = placer.place(f, X, devices=two_cpus())
    read = next(op.name for op in placed.placement.graph if op.op_type == "ReadVariableOp")
    assert placed.placement.device_of(read) == "CPU:0"
    assert any(read in note and "relaxed" in note for note in placed.placement.notes)
    with soft_placement(False):
        ran = placed.observe(X).ran
    assert {n: ran[n] for n in ("manual_copy", "pinned_one", "pinned_zero")} == {
        "manual_copy": "CPU:1", "pinned_one": "CPU:1", "pinned_zero": "CPU:0",
    }  # fmt: skip


# -- pins --------------------------------------------------------------------------------------------------------------


@tf.function
def two_layers(x: tf.Tensor) -> tf.Tensor:
    with tf.name_scope("first"):
        x = tf.nn.relu(tf.matmul(x, W))
    with tf.name_scope("second"):
        return tf.nn.relu(tf.matmul(x, W))


@pytest.mark.parametrize(("pins", "on_one"), [
    ({"first/MatMul": "CPU:1", "*": "CPU:0"}, None),
    ({"first/*": "CPU:1", "second/*": "CPU:0"}, {"first/MatMul", "first/Relu"}),
    ({"MatMul": "CPU:1", "Relu": "CPU:0"}, {"first/MatMul", "second/MatMul"}),
    ({"*/Relu": "/device:CPU:1", "*MatMul": "/job:localhost/replica:0/task:0/device:CPU:0"}, {"first/Relu", "second/Relu"}),
])  # fmt: skip
def test_pins_by_name_by_glob_and_by_type(pins: dict[str, str], on_one: set[str] | None) -> None:
    placed = placer.place(two_layers, devices=two_cpus(), pins=pins)
    if on_one is None:  # two pins that speak of one op must agree
        with pytest.raises(ConstraintError, match="first/MatMul"):
            placed(X)
        return
    assert {name for name, device in placed.observe(X).ran.items() if device == "CPU:1"} == on_one


def test_a_pin_wins_over_a_scope_and_the_scope_is_reported() -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.sin(x)

    placed = placer.place(f, X, devices=two_cpus(), pins={"Sin": "CPU:1"})
    assert placed.observe(X).ran["Sin"] == "CPU:1"
    assert any("Sin" in note and "relaxed" in note for note in placed.placement.notes)


@pytest.mark.parametrize(("pins", "error", "words"), [
    ({"StringLower": "GPU:0"}, ConstraintError, r"StringLower.*GPU:0.*no GPU kernel.*CPU:0"),
    ({"Sin": "GPU:7"}, DeviceError, r"Sin.*GPU:7.*CPU:0, GPU:0"),
    ({"Sinn": "GPU:0"}, OptionError, r"Sinn.*matches no op"),
    ({"Sin": "the fast one"}, OptionError, r"the fast one"),
])  # fmt: skip
def test_a_pin_that_cannot_be_is_one_error_that_names_both(pins: dict[str, str], error: type[Exception], words: str) -> None:
    program = Program(fn=tf.function(lambda x, s: (tf.sin(x), tf.strings.lower(s))), args=(X, tf.constant("A")))
    with pytest.raises(error, match=re.compile(words, re.DOTALL)):
        plan(program, pins=pins)


# -- devices that are not there ----------------------------------------------------------------------------------------


@tf.function
def asks_for_gpu_7(x: tf.Tensor) -> tf.Tensor:
    with tf.device("/GPU:7"):
        y = tf.matmul(x, x, name="far")
    return tf.nn.relu(y)


@pytest.mark.parametrize("soft", [True, False])
def test_a_missing_device_is_refused_or_relaxed_as_asked_whatever_soft_placement_says(soft: bool) -> None:
    with soft_placement(soft):
        program = Program(fn=asks_for_gpu_7, args=(X,))
        with pytest.raises(DeviceError, match=r"'far' asks for '/device:GPU:7'.*CPU:0, GPU:0"):
            plan(program, on_missing_device="error")
        with pytest.warns(PlacementWarning, match=r"'far'.*GPU:7.*relaxed"):
            placement = plan(program)
        assert any("GPU:7" in note for note in placement.notes)
        with pytest.warns(PlacementWarning, match=r"'far'.*GPU:7.*relaxed"):
            placed = placer.place(asks_for_gpu_7, X, devices=two_cpus())
        np.testing.assert_allclose(placed(X), tf.nn.relu(X @ X), rtol=1e-6)


def test_other_machines_are_never_joined_nor_moved_to() -> None:
    """Specs are merged as specs: an op of another job has no device here, and says so."""

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/job:worker/task:1"):
            a = tf.matmul(x, W, name="remote")
            with tf.device("/GPU:0"):
                a = tf.nn.relu(a, name="remote_gpu")
        with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
            b = tf.reduce_sum(a, axis=0, name="remote_sum")
        return tf.exp(b, name="local")

    program = Program(fn=f, args=(X,))
    asked = {op.name: op.requested_device for op in placer.build_graph(f, X)}
    assert asked["remote_gpu"] == "/job:worker/task:1/device:GPU:0"
    with pytest.raises(DeviceError, match=r"'remote' asks for '/job:worker/task:1'"):
        plan(program, on_missing_device="error")
    with pytest.warns(PlacementWarning) as warned:
        placement = plan(program)
    said = "\n".join(str(w.message) for w in warned)
    for name in ("'remote'", "'remote_gpu'", "'remote_sum'"):
        assert name in said
    assert set(devices(placement).values()) <= {"CPU:0", "GPU:0"}


# -- graphs that come from elsewhere -----------------------------------------------------------------------------------


def test_an_imported_graph_keeps_its_names_its_pins_and_its_structure() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 4], name="x")
        h = tf.matmul(x, tf.constant(0.5, shape=[4, 4]), name="free_product")
        with tf.device("/CPU:1"):
            tf.nn.relu(h, name="pinned")
    definition = graph.as_graph_def()

    def imported(x: tf.Tensor) -> Any:
        (y,) = tf.graph_util.import_graph_def(definition, input_map={"x:0": x}, return_elements=["pinned:0"], name="m")
        return {"y": y}

    check(lambda: Program(fn=tf.function(imported), args=(X,)))
    placement = placer.place(tf.function(imported), X, devices=two_cpus()).placement
    assert placement.device_of("m/pinned") == "CPU:1"
    assert "m/free_product" in placement.ops


def saved_model(path: Path, fn: Any, state: tf.Variable) -> Any:
    module = tf.Module()
    module.serve, module.state = fn, state
    tf.saved_model.save(module, str(path), signatures=fn)
    return tf.saved_model.load(str(path))


def test_a_saved_model_that_names_other_devices_loads_and_is_planned_again(tmp_path: Path) -> None:
    w = tf.Variable(W, name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def serve(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/GPU:0"):
            h = tf.matmul(x, w)
        with tf.device("/device:GPU:3"):
            return tf.nn.softmax(h)

    loaded = saved_model(tmp_path / "plain", serve, w)
    for fn in (loaded.serve, loaded.signatures["serving_default"]):
        with pytest.warns(PlacementWarning, match="GPU:3"):
            placed = placer.place(fn, X, devices=two_cpus())
        with soft_placement(False):
            found = placed(X)
        np.testing.assert_allclose(next(iter(tf.nest.flatten(found))), serve(X), rtol=1e-5)


def test_a_placed_function_is_exported_without_devices(tmp_path: Path) -> None:
    w = tf.Variable(W, name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def serve(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(tf.matmul(x, w))

    placed = placer.place(serve, X, devices=two_cpus(), solver=RandomLegal(1))
    placed(X)
    loaded = saved_model(tmp_path / "model", serve, w)
    nodes = [n for f in loaded.serve.concrete_functions for n in f.graph.as_graph_def().node]
    assert nodes
    assert {n.device for n in nodes} == {""}
    np.testing.assert_allclose(loaded.serve(X), placed(X), rtol=1e-6)


def test_a_plan_goes_to_another_process_and_is_refused_where_its_devices_are_not(tmp_path: Path) -> None:
    here = placer.place(two_layers, X, devices=two_cpus(), solver=RandomLegal(2)).placement
    here.save(tmp_path / "here.json")
    applied = placer.apply(two_layers, Placement.load(tmp_path / "here.json"))
    np.testing.assert_allclose(applied(X), two_layers(X), rtol=1e-6)
    assert not applied.observe(X).mismatches

    plan(Program(fn=two_layers, args=(X,)), four_gpus(), pins={"MatMul": "GPU:3"}).save(tmp_path / "there.json")
    with pytest.raises(DeviceError, match="GPU:3"):
        placer.apply(two_layers, Placement.load(tmp_path / "there.json"))(X)
    with pytest.raises(PlanError, match="Plan this function anew"):
        placer.apply(tf.function(lambda x: tf.sin(x) + 1.0), here)(X)


# -- gradients follow --------------------------------------------------------------------------------------------------


def test_the_backward_of_a_split_model_is_split_alike() -> None:
    """A tape leaves no device on gradient ops; what they give goes into a layer's weights, and they are with their layers."""
    ws = [tf.Variable(tf.fill([2048, 2048], 0.01), name=f"w{i}") for i in range(4)]

    @tf.function
    def step(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            h = x
            for i, w in enumerate(ws):
                with tf.device(f"/GPU:{i // 2}"):
                    h = tf.nn.relu(tf.matmul(h, w, name=f"layer{i}"))
            loss = tf.reduce_mean(h**2)
        for w, gradient in zip(ws, tape.gradient(loss, ws), strict=True):
            w.assign_sub(0.01 * gradient)
        return loss

    pins = {f"w{i}": f"GPU:{i // 2}" for i in range(4)}
    limits = {"GPU:0": "88MiB", "GPU:1": "88MiB"}
    placement = plan(Program(fn=step, args=(tf.ones([512, 2048]),)), "2xh100", pins=pins, memory_limits=limits)
    for i in range(4):
        assert placement.device_of(f"layer{i}") == f"GPU:{i // 2}"
        backward = [n for n in placement.ops if re.fullmatch(rf"gradient_tape/layer{i}/MatMul(_1)?", n)]
        assert {placement.device_of(n) for n in backward} == {f"GPU:{i // 2}"}
    for totals in placement.totals.values():
        assert totals.limit_bytes < 0 or totals.peak_bytes <= totals.limit_bytes
