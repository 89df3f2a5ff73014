"""Placed calls that run out of memory."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.common.units import format_bytes
from placer.errors import OutOfMemoryError, PlacementWarning
from tests.helpers.machines import two_cpus

THERE = "CPU:1"
HUGE = 2**46
"""More than any host has, which TensorFlow learns only when the step runs."""


def placed(fn: Any, **options: Any) -> placer.PlacedFunction:
    """The function where what it fills is planned for the second device."""
    return placer.place(fn, devices=two_cpus(), pins={"there*": THERE}, **options)


def filled(size: tf.Tensor) -> tf.Tensor:
    ones = tf.fill(tf.reshape(size, [1]), 1.0, name="there")
    return tf.reduce_sum(ones[:4]) + tf.reduce_sum(tf.ones([64, 64], name="there_too"))


def size(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)


def test_it_is_told_with_what_was_expected_and_the_way_out() -> None:
    f = placed(filled)
    assert f(size(8)) == 4.0 + 64 * 64
    expected = f.placement.totals[THERE].peak_bytes
    with pytest.raises(OutOfMemoryError, match="ran out of memory on CPU:1: TensorFlow refused 262144 GiB") as told:
        f(size(HUGE))
    assert isinstance(told.value, tf.errors.ResourceExhaustedError)
    assert "'there_too' (16.0 KiB)" in str(told.value)
    assert "Sizes that are known only in a call" in str(told.value)
    assert "an estimate" in str(told.value)
    limit = int(str(told.value).partition("memory_limits={'CPU:1': ")[2].partition("}")[0])
    assert 0 < limit < expected
    assert f(size(8)) == 4.0 + 64 * 64


def test_what_no_limit_moves_away_is_told_once_and_with_no_limit() -> None:
    with tf.device(THERE):
        w = tf.Variable(tf.ones([512, 512]), name="w")
    f = placed(lambda x, n: tf.matmul(w, x, name="there_product")[0, 0] + filled(n))
    x = tf.ones([512, 4])
    largest = r"'w' \(1.00 MiB\), 'there_too' \(16.0 KiB\), '(x|there_product)' \(8.00 KiB\)"
    with pytest.raises(OutOfMemoryError, match=f"Largest there: {largest}") as told:
        f(x, size(HUGE))
    assert "memory_limits" not in str(told.value)
    assert f(x, size(8)) == 512 + 4 + 64 * 64


@pytest.mark.parametrize("on_out_of_memory", ["report", "replan"])
def test_a_first_call_that_learns_under_a_plan_is_told_and_the_next_one_runs(on_out_of_memory: str) -> None:
    f = placed(filled, on_out_of_memory=on_out_of_memory)
    with pytest.raises(OutOfMemoryError, match="ran out of memory on CPU:1: TensorFlow refused 262144 GiB"):
        f(size(HUGE))
    for _ in range(2):
        assert f(size(8)) == 4.0 + 64 * 64


def twice(f: Any, n: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 2, lambda i, total: (i + 1, total + f(n)), (0, 0.0))[1]


def branched(f: Any, n: tf.Tensor) -> tf.Tensor:
    return tf.cond(n > 0, lambda: f(n), lambda: 0.0)


def nested(f: Any, n: tf.Tensor) -> tf.Tensor:
    return tf.function(f)(n)


def mapped(f: Any, n: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.map_fn(f, tf.stack([n, n]), fn_output_signature=tf.float32))


def gradient(f: Any, n: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        result = f(n)
    return tape.gradient(result, tape.watched_variables()[0])


@pytest.mark.parametrize("use", [twice, branched, nested, mapped, gradient])
@pytest.mark.parametrize("inside", [None, twice, branched])
def test_it_is_told_whoever_calls(use: Any, inside: Any) -> None:
    w = tf.Variable(3.0)

    def function(n: tf.Tensor) -> tf.Tensor:
        return w * (filled(n) if inside is None else inside(filled, n))

    f = placer.place(function, devices=two_cpus(), pins={"*there": THERE, "*there_too": THERE}, on_out_of_memory="replan")

    def around(n: tf.Tensor) -> tf.Tensor:
        return use(f, n)

    around.__name__ = {None: "<lambda>", twice: "größer", branched: "around"}[inside]
    around = tf.function(around)
    expected = use(function, size(8))
    assert around(size(8)) == expected
    peak = format_bytes(f.placement.totals[THERE].peak_bytes)
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match=f"\nfunction\\w* ran out of memory .* expects at most {peak} of") as told:
            around(size(HUGE))
        assert isinstance(told.value, tf.errors.ResourceExhaustedError)
        assert "not planned again" in str(told.value)
        assert "in filled" in str(told.value)  # where the node is from
        assert around(size(8)) == expected


def work(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """Best on the second device, and on the first where that has less memory."""
    return tf.matmul(x, x, name="matmul") + filled(n)


X = tf.random.stateless_uniform([512, 512], [1, 2])


def test_a_call_that_changes_nothing_is_planned_and_made_again() -> None:
    f = placed(work, on_out_of_memory="replan", memory_limits={"/cpu:1": "8GiB"})
    plain = work(X, size(8))
    np.testing.assert_allclose(f(X, size(8)), plain, rtol=1e-4)
    assert f.placement.device_of("matmul") == THERE
    with pytest.warns(PlacementWarning, match="The next call is planned with"), pytest.raises(OutOfMemoryError) as told:
        f(X, size(HUGE))  # in vain, so that the second time it is told
    assert "The next call" not in str(told.value)
    assert f.placement.device_of("matmul") == "CPU:0"
    np.testing.assert_allclose(f(X, size(8)), plain, rtol=1e-4)
    larger = tf.tile(X, [2, 2])  # another signature, to which the lower limit does not apply
    np.testing.assert_allclose(f(larger, size(8)), work(larger, size(8)), rtol=1e-4)
    assert f.placement.device_of("matmul") == THERE


def test_a_call_that_may_have_changed_something_is_not_made_again() -> None:
    count = tf.Variable(0)

    def step(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        count.assign_add(1)
        return work(x, n)

    f = placed(step, on_out_of_memory="replan")
    f(X, size(8))
    with pytest.raises(OutOfMemoryError, match=r"next call is planned with .*put them back"):
        f(X, size(HUGE))
    assert count.numpy() <= 2
    np.testing.assert_allclose(f(X, size(8)), work(X, size(8)), rtol=1e-4)
    assert f.placement.device_of("matmul") == "CPU:0"


def test_a_call_whose_variables_would_move_from_under_a_tape_is_not_made_again() -> None:
    w = tf.Variable(X, name="w")
    f = placed(lambda n: work(tf.convert_to_tensor(w), n), variables="move", on_out_of_memory="replan")

    def gradient(n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            result = f(n)
        return tape.gradient(result, w)

    expected = gradient(size(8))
    assert THERE in w.device
    with pytest.raises(OutOfMemoryError, match=r"next call is planned with .* not made again: variable 'w' cannot be moved"):
        gradient(size(HUGE))
    np.testing.assert_allclose(gradient(size(8)), expected, rtol=1e-4)
    assert "CPU:0" in w.device


@pytest.mark.parametrize(("changes", "variables", "taped"), [(False, "fixed", False), (True, "move", True)])
def test_where_no_plan_takes_less_the_old_one_stays(changes: bool, variables: str, taped: bool) -> None:
    with tf.device("CPU:0"):
        w, count = tf.Variable(3.0, name="there_w"), tf.Variable(0.0)

    def step(n: tf.Tensor) -> tf.Tensor:
        if changes:
            count.assign_add(1.0)
        return w * filled(n)

    pins = {"there*": THERE} if variables == "move" else {"there": THERE, "there_too": THERE}
    f = placer.place(step, devices=two_cpus(), pins=pins, variables=variables, on_out_of_memory="replan")

    def call(number: int) -> None:
        with tf.GradientTape() if taped else contextlib.nullcontext() as tape:
            result = f(size(number))
        assert result == 3.0 * (4.0 + 64 * 64)
        assert tape is None or tape.gradient(result, w) == 4.0 + 64 * 64

    call(8)
    device_of = {name: plan.device for name, plan in f.placement.ops.items()}
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match="No plan with less was found") as told:
            call(HUGE)
        assert isinstance(told.value, tf.errors.ResourceExhaustedError)
        assert "memory_limits" not in str(told.value)
        assert "replan" not in str(told.value)
        call(8)
        assert {name: plan.device for name, plan in f.placement.ops.items()} == device_of


def test_a_gradient_is_told_too() -> None:
    w = tf.Variable(tf.eye(4))

    def step(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def same(y: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return y, lambda upstream: upstream * tf.reduce_sum(tf.fill(tf.reshape(n, [1]), 1.0)[:4])

        return same(x @ w)

    f = placer.place(step, devices=two_cpus(), on_out_of_memory="replan")

    def gradient(n: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            result = f(tf.ones([3, 4]), n)
        return tape.gradient(result, w)

    for call in (gradient, tf.function(gradient)):
        with pytest.raises(OutOfMemoryError, match="\nstep_with_backward ran out of memory on CPU") as told:
            call(size(HUGE))
        assert isinstance(told.value, tf.errors.ResourceExhaustedError)
        assert "not planned again" in str(told.value)
        np.testing.assert_array_equal(call(size(8)), np.full([4, 4], 12.0))


def test_a_copy_that_finds_no_room_is_told_too() -> None:
    """Between CPUs nothing is copied, so that TensorFlow's words are given to it."""
    here, there = (f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in range(2))

    def refuse() -> None:
        raise MemoryError(f"SameWorkerRecvDone unable to allocate output tensor. Key: {here};0a1b;{there};edge_3_a/b;0:0")

    f = placed(lambda n: tf.numpy_function(refuse, [], []) and filled(n))
    with pytest.raises(OutOfMemoryError, match=r"out of memory on CPU:1: TensorFlow refused a copy of 'a/b' from CPU:0.*Largest"):
        f(size(8))


def test_other_errors_are_as_they_are() -> None:
    f = placed(lambda x: tf.debugging.check_numerics(x, "bad") + tf.ones([2], name="there"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
        f(tf.constant([1.0, float("nan")]))
