"""Calling a placed function: like calling the function it wraps."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import PlanError, TraceError
from tests.helpers.machines import two_cpus

X = tf.constant(np.arange(32.0, dtype=np.float32).reshape(4, 8) / 32)


def twice(x: tf.Tensor, repeat: int = 2, *, add: float = 0.5) -> dict[str, tf.Tensor]:
    for _ in range(repeat):
        x = tf.tanh(x) + add
    return {"y": x}


@pytest.mark.parametrize(
    ("args", "kwargs"), [((X,), {}), ((X, 3), {}), ((X,), {"repeat": 1, "add": 1.0}), ((), {"x": X, "add": 0.25})]
)
def test_defaults_and_keywords_reach_the_function(args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    plain, placed = tf.function(twice), placer.optimized_placement(devices=two_cpus())(twice)
    for _ in range(2):
        np.testing.assert_allclose(placed(*args, **kwargs)["y"], plain(*args, **kwargs)["y"], rtol=1e-6)


STRICT = tf.function(lambda x: x + 1.0, input_signature=[tf.TensorSpec([None], tf.float32)])
CONCRETE = tf.function(twice).get_concrete_function(X)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (twice, (), {}),
        (twice, (X, 2, 0.5), {}),
        (twice, (X,), {"times": 3}),
        (twice, (X,), {"x": X}),
        (twice, (X, {1, 2}), {}),
        (STRICT, (), {}),
        (STRICT, (X,), {}),
        (STRICT, (tf.constant([1]),), {}),
        (STRICT, ("text",), {}),
        (CONCRETE, (), {}),
        (CONCRETE, (X, 2, 0.5), {}),
        (CONCRETE, (), {"y": X}),
    ],
)
def test_arguments_that_do_not_fit_raise_what_the_plain_function_raises(
    fn: Any, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    with pytest.raises(TypeError) as plain:
        (tf.function(fn) if fn is twice else fn)(*args, **kwargs)
    with pytest.raises(TypeError) as raised:
        placer.place(fn, devices=two_cpus())(*args, **kwargs)
    assert raised.type is plain.type
    reason = re.search("Binding inputs to tf.function failed due to `(.*?)`", str(plain.value))
    if fn is twice and reason:  # the same reason, of the function itself
        assert str(raised.value) == f"twice(x, repeat=2, *, add=0.5) cannot be called so: {reason[1]}"
    else:
        assert str(raised.value).partition(" Received")[0] == str(plain.value).partition(" Received")[0]


class Scaled(tf.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = tf.Variable(by)
        self.placed = placer.place(self.scale, devices=two_cpus())

    def scale(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.by


@pytest.mark.parametrize("called", [False, True])
def test_a_copied_function_does_the_same_with_plans_of_its_own(called: bool) -> None:
    placed = placer.place(twice, devices=two_cpus(), pins={"Tanh": "CPU:1"})
    expected = placed(X)["y"] if called else tf.function(twice)(X)["y"]
    for copied in (copy.copy(placed), copy.deepcopy(placed)):
        np.testing.assert_array_equal(copied(X)["y"], expected)
        assert copied.placement.device_of("Tanh") == "CPU:1"
    one = Scaled(2.0)
    if called:
        one.placed(X)
    two = copy.deepcopy(one)
    two.by.assign(3.0)
    np.testing.assert_allclose(one.placed(X), 2 * X.numpy())
    np.testing.assert_allclose(two.placed(X), 3 * X.numpy())


def test_where_functions_run_eagerly_a_placed_one_does_too() -> None:
    calls = []

    @placer.optimized_placement(devices=two_cpus())
    def f(x: tf.Tensor) -> tf.Tensor:
        calls.append(tf.executing_eagerly())
        return tf.tanh(x)

    expected = f(X)
    tf.config.run_functions_eagerly(True)
    try:
        for _ in range(2):
            np.testing.assert_allclose(f(X), expected, rtol=1e-6)
    finally:
        tf.config.run_functions_eagerly(False)
    f(X)
    assert calls == [False, True, True]
    assert f.placement.ops


def test_one_plan_for_each_signature_and_no_more_traces_than_the_plain_function() -> None:
    traces = []

    @placer.optimized_placement(devices=two_cpus())
    def f(x: tf.Tensor) -> tf.Tensor:
        traces.append(1)
        return tf.nn.relu(x)

    for rows in (2, 2, 4, 2):
        f(tf.ones([rows, 8]))
    assert len(f.placements) == len(traces) == 2
    assert "float32[4,8]" in f.placements


def test_a_method_is_placed_for_each_instance() -> None:
    class Scale(tf.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = tf.Variable(by)

        @placer.optimized_placement(devices=two_cpus())
        def run(self, x: tf.Tensor) -> tf.Tensor:
            return x * self.by

    one, two = Scale(2.0), Scale(3.0)
    np.testing.assert_allclose(one.run(X), 2 * X.numpy())
    np.testing.assert_allclose(two.run(X), 3 * X.numpy())
    one.by.assign(4.0)
    np.testing.assert_allclose(one.run(X), 4 * X.numpy())


@pytest.mark.parametrize("hoisted", [False, True])
def test_a_loop_that_only_reads_a_variable_has_its_gradient_wherever_it_runs(hoisted: bool) -> None:
    weights = tf.Variable(tf.fill([8, 8], 0.1), name="weights")

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.tanh(tf.matmul(x, weights))
        return tf.reduce_sum(x)

    pins = {"MatMul": "CPU:1" if hoisted else "CPU:0"}
    placed = placer.place(f, X, devices=two_cpus(), pins=pins)
    gradients = []
    for run in (f, placed):
        with tf.GradientTape() as tape:
            value = run(X)
        gradients.append(tape.gradient(value, weights))
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-5)
    assert np.abs(gradients[0]).max() > 0


@pytest.mark.parametrize("before", [False, True])
def test_a_loop_reads_what_is_gathered_from_once_before_it(before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow copies such a variable at each read: it is gathered from in the loop, or only before it."""
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    table = tf.Variable(np.random.default_rng(0).random((50, 8), np.float32))

    @tf.function
    def f(row: tf.Tensor) -> tf.Tensor:
        x = tf.gather(table, row)
        for _ in tf.range(5):
            row = tf.argmax(tf.matmul(x, table, transpose_b=True), axis=-1, output_type=tf.int32)
            x = -x if before else -tf.gather(table, row)
        return row

    placed = placer.place(f, tf.constant([3]), devices=two_cpus(), pins={"*": "CPU:0"})
    for _ in range(2):
        assert placed(tf.constant([3])).numpy() == f(tf.constant([3])).numpy()
        table.assign(tf.reverse(table, [0]))
    found = placed.harvest(tf.constant([3]), steps=4)
    assert [len(node.host_ns) for node in found.nodes.values() if node.op_type == "ReadVariableOp"] == [4]


def test_a_function_goes_by_its_own_name() -> None:
    placed = placer.place(twice, X, devices=two_cpus())
    of_concrete = placer.place(tf.function(twice).get_concrete_function(X), devices=two_cpus())
    for placed_function in (placed, of_concrete):
        assert repr(placed_function) == "<PlacedFunction 'twice': 1 signature>"
        assert placed_function.placement.summary().startswith("twice: ")
    assert repr(placed.placement).startswith("<Placement of 'twice': 8 ops on two-cpus, step_time ")
    assert repr(placer.trace(twice, X)) == "<Trace of 'twice': float32[4,8], 2, add=0.5>"
    with pytest.raises(PlanError, match=r"'twice'.*'x' is .*float32\[4,8\] in the plan and .*float32\[2,8\] in the function"):
        placer.apply(twice, placed.placement)(X[:2])


def test_bad_input_has_an_error_of_its_own() -> None:
    with pytest.raises(PlanError, match="no plan yet"):
        _ = placer.place(twice).placement

    def broken(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, x)

    with pytest.raises(TraceError, match="broken"):
        placer.place(broken, X)


@pytest.mark.parametrize("taped", [False, True])
def test_arguments_do_not_live_as_long_as_their_plan(taped: bool) -> None:
    placed = placer.optimized_placement(devices=two_cpus())(lambda x: x * 2.0)
    x = tf.ones([64, 64]) * 1.0
    seen = weakref.ref(x)
    if taped:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = placed(x)
        tape.gradient(y, x)
        del tape, y
    else:
        placed(x)
    del x
    gc.collect()
    assert seen() is None


def test_a_placed_function_says_how_to_send_its_plan_instead_of_itself(tmp_path: Path) -> None:
    placed = placer.optimized_placement(devices=two_cpus())(twice)
    result = placed(X)["y"]
    for unpicklable in (placed, [placed], copy.copy(placed)):
        with pytest.raises(TypeError, match=r"placed function 'twice'.*twice\.placement\.save\(path\).*placer\.apply"):
            pickle.dumps(unpicklable)
    placed.placement.save(tmp_path / "plan.json")
    there = placer.apply(twice, placer.Placement.load(tmp_path / "plan.json"))
    np.testing.assert_array_equal(there(X)["y"], result)
    assert pickle.loads(pickle.dumps(placed.placement)) == placed.placement
