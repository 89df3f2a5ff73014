"""Where bytes are: shapes and integers in host memory, GPU kernels that work there, constants on both sides, captures once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.plan.parts import Transfer
from placer.plan.placement import Placement
from placer.tf._private.runtime import recorded_partitions
from tests.helpers.harness import Builder, Program, RandomLegal, check, plan, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
LARGE = tf.fill([1024, 1024], 0.001)
FLOATS = ("float32", "float16", "bfloat16", "float64")


def carried(placement: Placement) -> list[tuple[str, Transfer]]:
    """Each tensor that crosses, by its type."""
    return [
        (placement.graph.op(op).signature.outputs[int(index)].dtype, t)
        for t in placement.transfers
        for op, _, index in [t.tensor.rpartition(":")]
        if op
    ]


# -- shape arithmetic --------------------------------------------------------------------------------------------------


def reshaped(x: tf.Tensor) -> tf.Tensor:
    n = tf.shape(x)[0] * tf.shape(x)[1]
    return tf.reshape(x, tf.stack([n // 2, 2]))


def broadcast(x: tf.Tensor) -> tf.Tensor:
    return tf.broadcast_to(tf.reduce_sum(x, axis=1, keepdims=True), tf.shape(x)) + tf.zeros(tf.shape(x)[1:])


def padded_and_sliced(x: tf.Tensor) -> tf.Tensor:
    n = tf.shape(x)[0]
    wide = tf.pad(x, tf.stack([[0, n % 3], [0, 0]]))
    return tf.slice(wide, [n // 2, 0], [1, -1]) + wide[n - 1]


def averaged(x: tf.Tensor) -> tf.Tensor:
    total = tf.cast(tf.size(x) * tf.rank(x), tf.float32)
    return tf.tile(x, tf.concat([tf.shape(x)[:1] * 0 + 2, [1]], axis=0)) / total


def filled_to_shape(x: tf.Tensor) -> tf.Tensor:
    batch, features = tf.unstack(tf.shape(x))
    return tf.fill([features, batch], 0.5) + tf.transpose(x, tf.range(tf.rank(x))[::-1])


SHAPED = [reshaped, broadcast, padded_and_sliced, averaged, filled_to_shape]


def of_unknown_shape(f: Callable[[tf.Tensor], tf.Tensor]) -> Any:
    return tf.function(lambda x: f(tf.matmul(x, x)), input_signature=[tf.TensorSpec([None, None])])


@pytest.mark.parametrize("f", SHAPED)
def test_shape_arithmetic_pulls_no_tensor_over(f: Callable[[tf.Tensor], tf.Tensor]) -> None:
    """The argument comes once, where the product is; from there on only numbers cross."""
    placement = plan(Program(fn=of_unknown_shape(f), args=(LARGE,)), pins={"MatMul": "GPU:0"})
    floats = [t.tensor for dtype, t in carried(placement) if dtype in FLOATS and t.nbytes > 4]
    assert floats == ["x:0"]


@pytest.mark.parametrize("f", SHAPED)
def test_shape_arithmetic_runs_split_anyhow(f: Callable[[tf.Tensor], tf.Tensor]) -> None:
    check(lambda: Program(fn=of_unknown_shape(f), args=(X,)))


def test_a_loop_over_rows_keeps_its_counter_in_host_memory() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def f(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(tf.shape(x)[0] // 256):
            x = tf.matmul(x, x) * tf.cast(i % 2 + 1, tf.float32)
        return x

    placement = plan(Program(fn=f, args=(LARGE,)), pins={"MatMul": "GPU:0"})
    assert [t.tensor for dtype, t in carried(placement) if t.nbytes > 4] == ["x:0"]
    values = [t for _, t in carried(placement) if t.tensor.startswith("while/in") and t.nbytes == 4]
    assert all(t.dst_memory == "host" for t in values)


# -- types that stay with the host -------------------------------------------------------------------------------------


def integers_beside_floats() -> Program:
    def f(x: tf.Tensor, n: tf.Tensor) -> Any:
        k = (n * 3 + 1) % 5
        return tf.matmul(x, x) * tf.cast(k, tf.float32), tf.range(k), tf.one_hot(k, 5)

    return Program(fn=tf.function(f), args=(X, tf.constant(4)))


def strings_beside_floats() -> Program:
    def f(x: tf.Tensor, words: tf.Tensor) -> Any:
        n = tf.strings.length(words)
        joined = tf.strings.join([words, tf.strings.as_string(tf.reduce_max(x))])
        return x * tf.cast(n, tf.float32)[:, None], joined, tf.where(n > 3, words, "short")

    return Program(fn=tf.function(f), args=(X, tf.constant(["a", "word", "to", "carry"])))


def booleans_on_both_sides() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        mask = x > 0.0
        some = tf.reduce_any(mask)
        if some:
            x = tf.where(mask, x, -x)
        return x, tf.boolean_mask(x, mask), some & tf.reduce_all(~mask)

    return Program(fn=f, args=(X,))


def resources_through_loops_and_branches() -> Program:
    v, table = tf.Variable(X), tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> Any:
        for i in tf.range(n):
            if i > 0:
                v.assign_add(x)
                table.insert([tf.cast(i, tf.int64)], [x[0, 0]])
        return v @ x, table.lookup(tf.constant([1, 2], tf.int64))

    return Program(fn=f, args=(X, tf.constant(3)), state=[v])


@pytest.mark.parametrize("build", [
    integers_beside_floats, strings_beside_floats, booleans_on_both_sides, resources_through_loops_and_branches,
])  # fmt: skip
def test_placed_is_plain(build: Builder) -> None:
    check(build)


def test_integers_are_shared_between_the_host_and_kernels_that_read_them_there() -> None:
    """An int32 sum planned for a GPU works in host memory: on either device it costs no copy."""

    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, tf.stack([tf.add(n, 0, name="sum"), -1]))

    for device in ("CPU:0", "GPU:0"):
        placement = plan(Program(fn=tf.function(f), args=(LARGE, tf.constant(512))), pins={"sum": device, "Reshape": "GPU:0"})
        moved = [t for dtype, t in carried(placement) if dtype == "int32"]
        assert all(t.dst_memory == "host" for t in moved)


def test_strings_and_handles_never_leave_the_host() -> None:
    for build in (strings_beside_floats, resources_through_loops_and_branches):
        placement = plan(build(), pins={"Mul": "GPU:0"} if build is strings_beside_floats else {})
        moved = [t for dtype, t in carried(placement) if dtype in ("string", "resource", "variant")]
        assert all(t.dst_memory == "host" for t in moved), moved  # an Identity of a GPU hands strings on in host memory


# -- GPU kernels that work in host memory ------------------------------------------------------------------------------


def factored(x: tf.Tensor) -> Any:
    return tf.linalg.qr(tf.matmul(x, x, transpose_b=True))


def inverted(x: tf.Tensor) -> Any:
    return tf.math.invert_permutation(tf.argsort(tf.cast(tf.matmul(x, x)[0], tf.int32)))


def turned(x: tf.Tensor) -> Any:
    return tf.reverse(tf.cast(tf.matmul(x, x), tf.int32), [0])


@pytest.mark.parametrize(
    ("f", "source_type", "op_type"),
    [(factored, "MatMul", "Qr"), (inverted, "TopKV2", "InvertPermutation"), (turned, "MatMul", "ReverseV2")],
)
def test_a_gpu_kernel_in_host_memory_saves_no_copy(f: Callable[..., Any], source_type: str, op_type: str) -> None:
    """What it takes from the GPU goes to host memory, wherever it is planned; so it never looks like a way to save a copy."""
    copies = {}
    for device in ("CPU:0", "GPU:0"):
        placement = plan(Program(fn=tf.function(f), args=(LARGE,)), pins={source_type: "GPU:0", op_type: device})
        (op,) = [op for op in placement.graph if op.op_type == op_type]
        assert 0 in op.kernels["GPU"].host_inputs
        sources = {source for source in placement.graph.graph.pred[op.name] if placement.ops[source].device == "GPU:0"}
        copies[device] = [t.nbytes for source in sources for t in placement.transfers_of.get(source, ()) if t.nbytes]
    assert copies["CPU:0"] == copies["GPU:0"]
    check(lambda: Program(fn=tf.function(f), args=(tf.eye(4) * 3.0 + 0.1,), gradients=False))


# -- constants and captures --------------------------------------------------------------------------------------------


def a_constant_on_both_sides() -> Program:
    def f(x: tf.Tensor) -> Any:
        shared = tf.constant(np.arange(16, dtype=np.float32).reshape(4, 4), name="shared")
        return tf.matmul(x, shared, name="left"), tf.matmul(shared, x, name="right"), tf.nn.relu(shared)

    return Program(fn=tf.function(f), args=(X,))


def a_constant_of_the_graph_in_a_body() -> Program:
    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(n):
            shared = tf.constant(np.arange(16, dtype=np.float32).reshape(4, 4), name="shared")
            x = tf.matmul(tf.tanh(tf.matmul(x, shared, name="left")), shared, name="right")
        return x

    return Program(fn=f, args=(X, tf.constant(2)))


def a_constant_that_is_a_result() -> Program:
    def f(x: tf.Tensor) -> Any:
        shared = tf.constant([[2.0]] * 4, name="shared")
        return shared, tf.matmul(x, shared, name="left"), tf.matmul(x * 2.0, shared, name="right")

    return Program(fn=tf.function(f), args=(X,))


@pytest.mark.parametrize("build", [a_constant_on_both_sides, a_constant_of_the_graph_in_a_body, a_constant_that_is_a_result])
def test_a_constant_used_on_both_sides_is_copied_when_planned(build: Builder) -> None:
    """Never sent in a step: each reader's device has its own."""
    placement = plan(build(), pins={"*left": "CPU:0", "*right": "GPU:0"})
    constants = {op.name for op in placement.graph if op.role == "constant"}
    assert not [t.tensor for t in placement.transfers if t.tensor.rpartition(":")[0] in constants]

    program = build()
    placed = placer.place(program.fn, devices=two_cpus(), pins={"*left": "CPU:0", "*right": "CPU:1"})
    with soft_placement(False), recorded_partitions() as recorded:
        placed(*program.args)
    sent = {n.attr["tensor_name"].s.decode() for f in recorded for g in f.partition_graphs for n in g.node if n.op == "_Send"}
    assert sent
    assert not [name for name in sent if "shared" in name]
    check(build)


def test_a_large_constant_is_with_its_reader_and_only_the_slice_crosses() -> None:
    data = np.ones([4096, 512], np.float32)

    @tf.function
    def f(start: tf.Tensor) -> tf.Tensor:
        batch = tf.slice(tf.constant(data, name="data"), [start, 0], [64, 512])
        return tf.matmul(batch, tf.constant(0.01, shape=[512, 512])) * 0.5

    for pins in ({"MatMul": "GPU:0", "Slice": "CPU:0"}, {"MatMul": "GPU:0"}, {}):
        placement = plan(Program(fn=f, args=(tf.constant(128),)), pins=pins)
        assert max((t.nbytes for t in placement.transfers), default=0) <= 64 * 512 * 4
        assert not any(t.tensor.startswith("data") for t in placement.transfers)
    only = plan(Program(fn=f, args=(tf.constant(128),)), pins={"MatMul": "GPU:0", "Slice": "CPU:0"})
    assert 64 * 512 * 4 in {t.nbytes for t in only.transfers}


def test_a_captured_tensor_is_copied_once_a_call_however_many_read_it() -> None:
    def f(x: tf.Tensor) -> Any:
        y = tf.matmul(x, LARGE, name="one") + tf.matmul(x, LARGE, transpose_b=True, name="two")
        return y, tf.matmul(tf.tanh(y), LARGE, name="three")

    program = Program(fn=tf.function(f), args=(tf.ones([4, 1024]),))
    placement = plan(program, pins={"MatMul": "CPU:0"})
    large = [t for t in placement.transfers if t.nbytes == 4 << 20]
    assert [(t.count, t.dst) for t in large] == [(1.0, "CPU:0")]
    assert [op.role for op in placement.graph if op.signature.outputs and op.signature.outputs[0].shape == (1024, 1024)] == [
        "capture"
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_captured_stays_live(seed: int) -> None:
    """A variable's new value is seen, its gradient is there, and a captured tensor is the very one."""
    v, n = tf.Variable(2.0), tf.Variable(1)

    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, LARGE) * v * tf.cast(n, tf.float32)

    placed = placer.place(f, devices=two_cpus(), solver=RandomLegal(seed))
    x = tf.ones([4, 1024])
    for value in (2.0, -3.0, 0.5):
        v.assign(value)
        n.assign_add(1)
        with tf.GradientTape() as tape:
            y = placed(x)
        np.testing.assert_allclose(y, f(x), rtol=1e-5)
        np.testing.assert_allclose(tape.gradient(y, v), tf.reduce_sum(x @ LARGE) * float(n), rtol=1e-5)
    captures = [r for r in placed.plan(x).records() if r["role"] == "capture"]
    assert 4 << 20 in [r["output_bytes"] for r in captures]


# -- small before large ------------------------------------------------------------------------------------------------


def augmented(image: tf.Tensor) -> tf.Tensor:
    x = tf.cast(image, tf.float32) / 255.0
    transform = tf.tile(tf.constant([[0.98, -0.17, 4.0, 0.17, 0.98, -4.0, 0.0, 0.0]]), [8, 1])
    x = tf.raw_ops.ImageProjectiveTransformV3(
        images=x, transforms=transform, output_shape=tf.constant([192, 192]), fill_value=0.0, interpolation="BILINEAR",
        fill_mode="REFLECT",
    )  # fmt: skip
    return tf.reduce_mean(tf.nn.conv2d(x, tf.fill([3, 3, 3, 8], 0.05), 2, "SAME"), axis=[1, 2])


def test_an_image_crosses_before_it_is_cast() -> None:
    """As bytes, a quarter of the floats; the shape and the fill value of its transform are read in host memory."""
    program = Program(fn=tf.function(augmented), args=(tf.ones([8, 192, 192, 3], tf.uint8),))
    placement = plan(program, pins={"Conv2D": "GPU:0", "ImageProjectiveTransformV3": "GPU:0"})
    crossing = {t.tensor: t.nbytes for t in placement.transfers if t.nbytes > 1000}
    assert crossing == {"image:0": 8 * 192 * 192 * 3}
    (transform,) = [op for op in placement.graph if op.op_type == "ImageProjectiveTransformV3"]
    assert transform.kernels["GPU"].host_inputs == (2, 3)


def test_a_transform_that_does_not_fit_is_on_the_host() -> None:
    program = Program(fn=tf.function(augmented), args=(tf.ones([8, 192, 192, 3], tf.uint8),))
    placement = plan(program, memory_limits={"GPU:0": "2MiB"})
    assert placement.device_of("ImageProjectiveTransformV3") == "CPU:0"
    assert placement.totals["GPU:0"].peak_bytes <= 2 << 20
