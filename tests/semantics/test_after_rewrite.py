"""What TensorFlow makes of a placed function keeps the plan, and what may differ from device to device is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.plan.placement import Placement
from tests.helpers.harness import Builder, Program, RandomLegal, check, plan, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 4 * 8 * 8 * 4), [4, 8, 8, 4])
M = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


# -- chains that Grappler fuses, whatever their devices ----------------------------------------------------------------


def dense(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.bias_add(x[:, 0, 0] @ M, M[0]))


def dense_with_add(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.elu(x[:, 0, 0] @ M + M[0])


def convolution(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, tf.reshape(M, [1, 1, 4, 4]), 1, "SAME"), M[0]))


def residual(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(x + tf.nn.bias_add(tf.nn.conv2d(x, tf.reshape(M, [1, 1, 4, 4]), 1, "SAME"), M[0]))


def normalized(x: tf.Tensor) -> tf.Tensor:
    y = tf.nn.conv2d(x, tf.reshape(M, [1, 1, 4, 4]), 1, "SAME")
    return tf.nn.relu(tf.compat.v1.nn.fused_batch_norm(y, M[0] + 2, M[1], M[2], M[3] + 2, is_training=False)[0])


def elementwise(x: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.tanh(tf.sin(tf.square(x)))) * 2.0 * 3.0


def size_of_a_shape(x: tf.Tensor) -> tf.Tensor:
    y = tf.boolean_mask(x, x[..., 0] > 0)
    return tf.reduce_sum(y) / tf.cast(tf.reduce_prod(tf.shape(y)[:2]), tf.float32)


def twice_the_same(x: tf.Tensor) -> tf.Tensor:
    return tf.sin(x) + tf.sin(x) + tf.reduce_sum(tf.transpose(tf.transpose(x, [3, 0, 1, 2]), [1, 2, 3, 0]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "f", [dense, dense_with_add, convolution, residual, normalized, elementwise, size_of_a_shape, twice_the_same]
)
def test_optimisers_keep_the_devices_of_what_they_fuse(f: Callable[..., Any], seed: int) -> None:
    placed = placer.place(tf.function(f), devices=two_cpus(), solver=RandomLegal(seed))
    with soft_placement(False):
        observation = placed.observe(X)
    assert observation.mismatches == ()
    np.testing.assert_allclose(observation.outputs, f(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("head", "tail"), list(itertools.permutations(["CPU:0", "CPU:1"], 2)))
def test_pins_may_split_what_would_be_fused(head: str, tail: str) -> None:
    placed = placer.place(tf.function(dense), devices=two_cpus(), pins={"MatMul": head, "BiasAdd": tail, "Relu": head})
    ran = placed.observe(X).ran
    assert {op.op_type: ran[op.name] for op in placed.placement.graph if op.op_type in ("MatMul", "BiasAdd", "Relu")} == {
        "MatMul": head, "BiasAdd": tail, "Relu": head
    }  # fmt: skip


# -- lowering and inlining ---------------------------------------------------------------------------------------------


@tf.function
def block(h: tf.Tensor) -> tf.Tensor:
    return tf.tanh(h @ M)


def nested_and_looped(x: tf.Tensor) -> tf.Tensor:
    h = block(x[:, 0, 0])
    for _ in tf.range(3):
        h = block(h)
    return tf.reduce_sum(h)


def test_a_row_for_each_op_of_every_body_says_where_it_really_runs() -> None:
    """One row per op, in called functions and loop bodies too; totals add up; the exported graph carries the devices."""
    placed = placer.place(tf.function(nested_and_looped), devices=two_cpus(), solver=RandomLegal(1))
    ran = placed.observe(X).ran
    placement = placed.placement
    rows = {row["name"]: row for row in placement.records()}
    assert set(rows) == set(placement.ops)
    assert {"MatMul", "Tanh"} <= {row["op_type"] for row in rows.values() if row["body"]}
    assert sum(row["op_type"] == "MatMul" for row in rows.values()) == 2
    for name, device in ran.items():
        if rows[name]["role"] == "op":
            assert rows[name]["device"] == device, name
    for device, totals in placement.totals.items():
        here = [row for row in rows.values() if row["device"] == device]
        ops = sum(row["role"] != "constant" for row in here)
        assert (totals.ops, totals.time_ns) == (ops, sum(row["time_ns"] for row in here))
    exported = placement.to_networkx()
    assert {name: data["device"] for name, data in exported.nodes(data=True)} == {n: r["device"] for n, r in rows.items()}
    for row in rows.values():
        assert row["op_type"] in placement.explain(row["name"])


def strings_and_numbers() -> Program:
    w = tf.constant(0.25, shape=[4, 4])

    @tf.function
    def f(text: tf.Tensor, n: tf.Tensor) -> Any:
        numbers = tf.reshape(tf.strings.to_number(text), [2, 4]) * tf.cast(n % 3, tf.float32)
        return tf.strings.as_string(numbers @ w), tf.strings.length(text) // 2

    return Program(fn=f, args=(tf.constant(list("12345678")), tf.constant(5)))


def no_op_survives() -> Program:
    return Program(fn=tf.function(lambda x: x * 1.0 + 0.0), args=(M,))


def constants_only() -> Program:
    return Program(fn=tf.function(lambda: tf.reduce_sum(tf.ones([4, 4]) * 3.0)))


def dead_code() -> Program:
    def f(x: tf.Tensor) -> tf.Tensor:
        tf.linalg.inv(x)
        return x + 1.0

    return Program(fn=tf.function(f), args=(M,))


@pytest.mark.parametrize("build", [strings_and_numbers, no_op_survives, constants_only, dead_code])
def test_a_placed_function_needs_no_soft_placement(build: Builder) -> None:
    check(build)


def test_a_loop_that_is_never_reached_waits_for_nothing() -> None:
    """Optimisers take out part of a branch whose predicate they find constant; what is left of a split loop must not wait."""

    @tf.function
    def f(x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        def branch() -> tf.Tensor:
            first, row = -x, tf.reduce_max(table, axis=0)
            count = tf.cast(tf.reduce_sum(first) % 4, tf.int32)
            cond, body = lambda i, *_: i < count, lambda i, y, z: (i + 1, tf.reduce_max(z, axis=0), tf.fill([3], y))
            return -tf.while_loop(cond, body, [0, first, row])[1]

        return tf.cond(tf.reduce_sum(tf.constant(1.5)) < 0.7, branch, lambda: x)

    x, table = tf.constant(4, tf.int64), tf.ones([3, 3], tf.int64)
    for seed in range(30):
        placed = placer.place(f, devices=two_cpus(), solver=RandomLegal(seed))
        with soft_placement(False):
            assert placed(x, table) == x


# -- what may differ from device to device -----------------------------------------------------------------------------


def notes_with(placement: Placement, words: str) -> str:
    return "\n".join(note for note in placement.notes if words in note)


def gathers(x: tf.Tensor, ids: tf.Tensor) -> Any:
    return {"gather": tf.gather(x, ids), "nd": tf.gather_nd(x, ids[:, None])}


def scatters(x: tf.Tensor, ids: tf.Tensor) -> Any:
    return {"nd": tf.scatter_nd(ids[:, None], x, [8, 4]), "update": tf.tensor_scatter_nd_add(x, ids[:, None], x)}


def segments(x: tf.Tensor, ids: tf.Tensor) -> Any:
    return {"sum": tf.math.unsorted_segment_sum(x, ids, 4)}


@pytest.mark.parametrize(("f", "op_types"), [
    (gathers, ["GatherV2", "GatherNd"]), (scatters, ["ScatterNd", "TensorScatterAdd"]), (segments, ["UnsortedSegmentSum"]),
])  # fmt: skip
def test_an_op_whose_bounds_depend_on_the_device_is_flagged_when_it_moves(f: Callable[..., Any], op_types: list[str]) -> None:
    """A pin keeps it in place; for indices in range the results are equal wherever it is."""
    ids = tf.constant([0, 3, 1, 2])
    program = Program(fn=tf.function(f), args=(M, ids))
    moved, kept = plan(program, solver="all_cpu"), plan(program, pins=dict.fromkeys(op_types, "GPU:0"))
    flagged = notes_with(moved, "out of range")
    for op_type in op_types:
        assert op_type in flagged
    assert not notes_with(kept, "out of range")
    check(lambda: program)


def ignoring(x: tf.Tensor, ids: tf.Tensor) -> Any:
    nd, policy = ids[:, None], "IGNORE"
    return {
        "gather": tf.gather_nd(x, nd, bad_indices_policy=policy),
        "update": tf.tensor_scatter_nd_add(x, nd, x, bad_indices_policy=policy),
    }


def test_what_is_told_to_ignore_an_index_out_of_range_does_so_on_any_device_and_is_not_flagged() -> None:
    # The gradient of an update gathers without a policy.
    program = Program(fn=tf.function(ignoring), args=(M, tf.constant([0, 9, 1, 2])), gradients=False)
    assert not notes_with(plan(program, solver="all_cpu"), "out of range")
    check(lambda: program)


def divisions(x: tf.Tensor, n: tf.Tensor) -> Any:
    return {"div": x // n, "mod": x % n, "truncated": tf.truncatediv(x, n)}


def powers(x: tf.Tensor, n: tf.Tensor) -> Any:
    return {"power": x**n}


@pytest.mark.parametrize(("f", "op_types", "words"), [
    (divisions, ["FloorDiv", "FloorMod", "TruncateDiv"], "integer division by zero"), (powers, ["Pow"], "negative power"),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [tf.int64, tf.int8, tf.int32, tf.float32])
def test_integers_that_raise_on_one_device_are_flagged_when_they_move(
    f: Callable[..., Any], op_types: list[str], words: str, dtype: tf.DType
) -> None:
    """Those that work in host memory wherever they are, and floats, are not; nor is what is known not to fail."""
    x, n = tf.cast([7, 9], dtype), tf.cast([2, 3], dtype)
    program = Program(fn=tf.function(f), args=(x, n))
    flagged = notes_with(plan(program, solver="all_cpu"), words)
    for op_type in op_types:
        (op,) = [op for op in placer.build_graph(program.fn, x, n) if op.op_type == op_type]
        assert (repr(op.name) in flagged) == (dtype in (tf.int64, tf.int8))
    known = Program(fn=tf.function(lambda x: f(x, tf.cast([2, 3], dtype))), args=(x,))
    assert not notes_with(plan(known, solver="all_cpu"), words)
    check(lambda: program)


def test_a_division_by_zero_raises_wherever_it_is_on_a_host() -> None:
    for op in (tf.math.floordiv, tf.math.floormod):
        check(lambda op=op: Program(fn=tf.function(op), args=(tf.constant([7]), tf.constant([0]))))


def test_random_numbers_that_change_device_are_flagged() -> None:
    def f() -> Any:
        return tf.random.normal([4]), tf.random.uniform([4], maxval=9, dtype=tf.int32), tf.random.stateless_normal([4], [1, 2])

    program = Program(fn=tf.function(f), random=True)
    flagged = notes_with(plan(program, solver="all_cpu"), "random numbers")
    assert "random_normal/RandomStandardNormal" in flagged
    assert "stateless" not in flagged
    check(lambda: program)


def test_a_seeded_function_gives_the_same_numbers_again() -> None:
    def build() -> Program:
        tf.random.set_seed(3)
        generator = tf.random.Generator.from_seed(7)

        @tf.function
        def f(x: tf.Tensor) -> tf.Tensor:
            keep = tf.random.stateless_uniform([4, 4], seed=[3, 4]) < 0.5
            return tf.where(keep, x, 0.0) + generator.normal([4, 4]) + generator.uniform([4, 4])

        return Program(fn=f, args=(M,), state=[generator.state])

    check(build)
    graph = plan(build()).graph
    reads = [op for op in graph if op.op_type == "RngReadAndSkip"]
    assert reads
    assert {op.group for op in reads} == {op.group for op in graph if op.resource}
