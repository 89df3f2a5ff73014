"""What is placed whole or brings a function of its own: compiled calls, functions of datasets, gradients of one's own."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import GPU_HERE, OTHER, Builder, Program, RandomLegal, check, left_alone, plan, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
W = tf.eye(4) * 0.9 + 0.01


def variable(name: str = "w") -> tf.Variable:
    with tf.device(OTHER):
        return tf.Variable(W, name=name)


# -- compiled calls ----------------------------------------------------------------------------------------------------


def a_compiled_call_with_scopes_inside() -> Program:
    @tf.function(jit_compile=True)
    def kernel(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/GPU:1"):
            y = tf.matmul(x, W)
        with tf.device("/CPU:0"):
            return tf.tanh(y)

    return Program(fn=tf.function(lambda x: tf.reduce_sum(kernel(x + 1.0), axis=1)), args=(X,))


def a_compiled_call_with_a_variable_and_a_loop() -> Program:
    with tf.device("GPU:0" if GPU_HERE else "CPU:0"):  # where TensorFlow puts a compiled call
        w = tf.Variable(W)

    @tf.function(jit_compile=True)
    def kernel(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.tanh(x @ w)
        w.assign_add(x)
        return x

    return Program(fn=tf.function(lambda x: kernel(x) + kernel(x * 2.0) @ w), args=(X,), state=[w], gradients=False)


def compiled_calls_in_a_loop_and_a_branch() -> Program:
    inner = tf.function(lambda x: tf.sin(x) @ W, jit_compile=True)

    @tf.function(jit_compile=True)
    def kernel(x: tf.Tensor) -> Any:
        return inner(x) * 0.5, tf.reduce_mean(x)

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for i in tf.range(n):
            if i % 2 == 0:
                x, mean = kernel(x)
                x += mean
            else:
                x = inner(x)
        return x

    return Program(fn=f, args=(X, tf.constant(3)))


# -- functions of datasets ---------------------------------------------------------------------------------------------


def a_dataset_that_maps_functions() -> Program:
    w = variable()

    @tf.function(reduce_retracing=True)
    def row(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.linalg.matvec(w, x) + 1.0

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        rows = tf.data.Dataset.from_tensor_slices(x).map(row).map(lambda r: tf.numpy_function(np.sort, [r], tf.float32))
        return rows.reduce(tf.zeros([4]), lambda total, r: total + tf.ensure_shape(r, [4]))

    return Program(fn=f, args=(X,), state=[w], gradients=False)


def a_map_that_compiles_and_one_that_branches() -> Program:
    compiled = tf.function(lambda r: tf.tanh(r) * 2.0, jit_compile=True)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([4])
        for r in tf.data.Dataset.from_tensor_slices(x).map(compiled).map(lambda r: tf.cond(r[0] > 0.0, lambda: r, lambda: -r)):
            total += r
        return total

    return Program(fn=f, args=(X,), gradients=False)


# -- gradients of one's own --------------------------------------------------------------------------------------------


@tf.custom_gradient
def odd_square(x: tf.Tensor) -> Any:
    def grad(dy: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return dy * 3.0

    return x * x, grad


def a_custom_gradient() -> Program:
    return Program(fn=tf.function(lambda x: odd_square(x @ W) @ W), args=(X,))


def a_custom_gradient_in_a_loop_a_branch_and_a_function() -> Program:
    inner = tf.function(odd_square)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = odd_square(x) * 0.5
        x = tf.cond(x[0, 0] > 0.0, lambda: odd_square(x), lambda: x)
        return inner(inner(x))

    return Program(fn=f, args=(X,))


def a_custom_gradient_that_uses_what_the_forward_made() -> Program:
    w = variable()

    @tf.custom_gradient
    def scaled(x: tf.Tensor) -> Any:
        y = tf.exp(x)

        def grad(dy: tf.Tensor, variables: Any = None) -> Any:
            return dy * y * 2.0, [tf.reduce_sum(dy) * tf.ones_like(v) for v in variables]

        return y @ w, grad

    return Program(fn=tf.function(lambda x: scaled(tf.sin(x)) * 2.0), args=(X,), state=[w])


def a_custom_gradient_of_several_inputs() -> Program:
    @tf.custom_gradient
    def mixed(x: tf.Tensor, y: tf.Tensor, n: tf.Tensor) -> Any:
        def grad(da: tf.Tensor, db: tf.Tensor) -> Any:
            return da * y, db + x, None

        return (x * y, x + y * tf.cast(n, tf.float32)), grad

    return Program(fn=tf.function(lambda x, y: mixed(x @ W, tf.tanh(y), tf.constant(2))), args=(X, X + 1.0))


def gradients_stopped_and_passed_through() -> Program:
    rounded = tf.grad_pass_through(tf.round)
    return Program(fn=tf.function(lambda x: rounded(x * 3.0) @ W + tf.stop_gradient(x) * x), args=(X,))


def recomputed() -> Program:
    w = variable()

    @tf.recompute_grad
    def block(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.sin(x) @ w)

    return Program(fn=tf.function(lambda x: block(block(x)) + 1.0), args=(X,), state=[w])


def a_recomputed_layer_and_a_loop() -> Program:
    layer = keras.layers.Dense(4, "tanh", kernel_initializer="ones")
    layer.build([None, 4])
    block = tf.recompute_grad(lambda x: layer(x) * 0.5)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in range(2):
            x = block(x)
        return x

    return Program(fn=f, args=(X,), state=[v.value for v in layer.variables])


# -- functions in functions --------------------------------------------------------------------------------------------


def relaxed_inside_and_out() -> Program:
    inner = tf.function(lambda x: tf.reduce_sum(x, axis=0, keepdims=True) @ W, reduce_retracing=True)
    return Program(
        fn=tf.function(lambda x: (inner(x), inner(x[:2]), inner(tf.concat([x, x], 0))), reduce_retracing=True), args=(X,)
    )


def functions_with_attributes() -> Program:
    inner = tf.function(lambda x: tf.nn.relu(x @ tf.fill([4, 4], 0.5)), experimental_implements="layer", autograph=False)
    kept = tf.function(lambda x: tf.sin(x) + 1.0, experimental_attributes={"_noinline": True})

    def clustered(x: tf.Tensor) -> tf.Tensor:
        with tf.xla.experimental.jit_scope():
            return tf.exp(x) * 0.5

    return Program(fn=tf.function(lambda x: clustered(kept(inner(x)) @ W)), args=(X,))


PROGRAMS: list[Builder] = [
    a_compiled_call_with_scopes_inside, a_compiled_call_with_a_variable_and_a_loop, compiled_calls_in_a_loop_and_a_branch,
    a_dataset_that_maps_functions, a_map_that_compiles_and_one_that_branches, a_custom_gradient,
    a_custom_gradient_in_a_loop_a_branch_and_a_function, a_custom_gradient_that_uses_what_the_forward_made,
    a_custom_gradient_of_several_inputs, gradients_stopped_and_passed_through, recomputed, a_recomputed_layer_and_a_loop,
    relaxed_inside_and_out, functions_with_attributes,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS)
def test_placed_is_plain(build: Builder) -> None:
    check(build)


# -- what a plan knows of them -----------------------------------------------------------------------------------------


def test_a_compiled_call_is_one_op_and_scopes_inside_it_are_reported() -> None:
    """It is compiled wherever it is, and what is outside it is free."""
    placement = plan(a_compiled_call_with_scopes_inside(), "2xh100")
    (call,) = [op for op in placement.graph if "unit" in op.flags]
    assert not any(op.op_type in ("MatMul", "Tanh") for op in placement.graph)
    (note,) = [note for note in placement.notes if "XLA" in note]
    for part in (call.name, "GPU:1", "CPU:0", "overridden"):
        assert part in note
    assert note in placement.summary()
    for device in placement.devices:
        moved = plan(a_compiled_call_with_scopes_inside(), "2xh100", pins={call.name: device, "Sum": "CPU:0"})
        assert (moved.device_of(call.name), moved.device_of("Sum")) == (device, "CPU:0")


def in_a_loop_of_its_own() -> Any:
    @tf.function(jit_compile=True)
    def kernel(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            with tf.device("/CPU:0"):
                x = tf.tanh(x)
        return x

    return kernel


def in_a_function_of_its_own() -> Any:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.tanh(x)

    return tf.function(lambda x: inner(x) * 2.0, jit_compile=True)


@pytest.mark.parametrize("build", [in_a_loop_of_its_own, in_a_function_of_its_own])
def test_scopes_deep_inside_a_compiled_call_are_reported_too(build: Any) -> None:
    kernel = build()
    placement = plan(Program(fn=tf.function(lambda x: kernel(x) + 1.0), args=(X,)))
    assert any("CPU:0" in note and "overridden" in note for note in placement.notes)
    silent = tf.function(tf.tanh, jit_compile=True)
    assert not plan(Program(fn=tf.function(lambda x: silent(x) + 1.0), args=(X,))).notes


def test_a_compiled_call_stays_compiled_where_it_is_put() -> None:
    fn = a_compiled_call_with_scopes_inside().fn
    for device in ("CPU:0", "CPU:1"):
        placed = placer.place(fn, devices=two_cpus(), pins={"*PartitionedCall": device})
        with soft_placement(False):
            observation = placed.observe(X)
        (call,) = [op.name for op in placed.placement.graph if "unit" in op.flags]
        assert observation.ran[call] == device
        assert not observation.mismatches


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: tf.function(f, jit_compile=False)], ids=["itself", "what it calls"])
def test_a_function_that_is_compiled_itself_is_left_alone(wrap: Any) -> None:
    def build() -> Program:
        w = tf.Variable(W)

        def f(x: tf.Tensor) -> tf.Tensor:
            with tf.device("/CPU:0"):
                return tf.tanh(x @ w)

        return Program(fn=tf.function(wrap(f), jit_compile=True), args=(X,), state=[w])

    left_alone(build, "compiled by XLA")


def test_a_recomputed_block_is_recomputed_in_the_gradient() -> None:
    placed = placer.place(recomputed().fn, devices=two_cpus(), solver=RandomLegal(0))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = placed(X)
    tape.gradient(y, X)
    sines = [op for op in placed.placement.graph if op.op_type == "Sin"]
    assert any(op.name.startswith("backward/") for op in sines)


def test_a_relaxed_signature_has_one_plan_for_many_shapes() -> None:
    placed = placer.place(relaxed_inside_and_out().fn, devices=two_cpus(), solver=RandomLegal(1))
    plain = relaxed_inside_and_out().fn
    for n in (4, 5, 6, 7, 5):
        x = tf.random.stateless_normal([n, 4], [n, 1])
        for want, have in zip(plain(x), placed(x), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert len(placed.placements) == 2


@pytest.mark.parametrize("seed", [0, 1])
def test_a_custom_gradient_is_taken_wherever_the_tape_is(seed: int) -> None:
    """Three for each element, not what the formula has: with the tape outside, inside, or in a function around it."""
    placed = placer.place(tf.function(odd_square), devices=two_cpus(), solver=RandomLegal(seed))

    def gradient(f: Any) -> Any:
        def taken(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        return taken

    for taken in (gradient(placed), tf.function(gradient(placed)), placer.place(gradient(odd_square), devices=two_cpus())):
        np.testing.assert_array_equal(taken(X), tf.fill([4, 4], 3.0))
