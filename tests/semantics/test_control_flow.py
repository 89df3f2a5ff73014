"""Loops, branches and calls: values, rounds, gradients through them, and wishes inside their bodies."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.plan.placement import Placement
from tests.helpers.harness import Builder, Program, check, plan, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
W = tf.eye(4) * 0.9 + 0.01


def weights() -> tf.Variable:
    return tf.Variable(W, name="w")


# -- loops -------------------------------------------------------------------------------------------------------------


def known_trips() -> Program:
    w = weights()

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        i = tf.constant(0)
        while i < 20:
            x = tf.tanh(x @ w)
            i += 1
        return x

    return Program(fn=f, args=(X,), state=[w])


def unknown_trips() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        steps = 0
        while tf.reduce_max(tf.abs(x)) > 0.1:
            x *= 0.7
            steps += 1
        return x, steps

    return Program(fn=f, args=(X,))


def zero_trips() -> Program:
    w = weights()

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> Any:
        for i in tf.range(n):
            x = tf.linalg.inv(x @ w) + tf.cast(i, tf.float32)
            w.assign_add(W)
        return x, x + 1.0

    return Program(fn=f, args=(X, tf.constant(0)), state=[w])


def nested_loops() -> Program:
    w = weights()

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([])
        for i in tf.range(n):
            row = x[i]
            for j in tf.range(i + 1):
                row = tf.sin(tf.linalg.matvec(w, row)) + tf.cast(j, tf.float32)
            total += tf.reduce_sum(row)
        return total

    return Program(fn=f, args=(X, tf.constant(3)), state=[w])


def break_continue_and_return() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        total = tf.constant(0.0)
        for i in tf.range(10):
            if i % 2 == 0:
                continue
            total += tf.reduce_sum(x) * 0.1 + tf.cast(i, tf.float32)
            if total > 6.0:
                break
        if total > 8.0:
            return total
        return -total

    return Program(fn=f, args=(X,))


def maximum_iterations() -> Program:
    def f(x: tf.Tensor, n: tf.Tensor) -> Any:
        cond, body = lambda i, y: i < n, lambda i, y: (i + 1, tf.cos(y) * x)
        return tf.while_loop(cond, body, [0, x], maximum_iterations=3), tf.while_loop(cond, body, [0, x])

    return Program(fn=tf.function(f), args=(X, tf.constant(5)))


def a_loop_that_changes_shape() -> Program:
    def f(x: tf.Tensor) -> Any:
        return tf.while_loop(
            lambda i, y: i < 3,
            lambda i, y: (i + 1, tf.concat([y, y[:1] * 2.0], axis=0)),
            [0, x],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
        )

    return Program(fn=tf.function(f), args=(X,))


def values_that_swap() -> Program:
    """Each loop variable's next value is another's: they must not be mixed up, whatever their devices."""

    def f(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor) -> Any:
        return tf.while_loop(lambda i, *_: i < 4, lambda i, p, q, r: (i + 1, q, r, tf.cast(p, tf.float32)), [0, a, b, c])

    return Program(fn=tf.function(f), args=(X, X + 1.0, X + 2.0))


def a_variable_written_in_the_loop() -> Program:
    w, hits = weights(), tf.Variable(0, name="hits")

    @tf.function
    def f(x: tf.Tensor) -> Any:
        for _ in tf.range(3):
            x = x @ w
            w.assign_sub(0.01 * x)
            hits.assign_add(1)
        return x, w.read_value()

    return Program(fn=f, args=(X,), state=[w, hits])


def a_gradient_taken_in_the_loop() -> Program:
    w = weights()

    @tf.function
    def f(x: tf.Tensor) -> Any:
        total = tf.zeros([4, 4])
        for _ in tf.range(2):
            with tf.GradientTape() as tape:
                loss = tf.constant(0.0)
                for _ in tf.range(3):
                    loss += tf.reduce_sum(tf.tanh(x @ w))
            gradient = tape.gradient(loss, w)
            w.assign_sub(0.1 * gradient)
            total += gradient
        return total

    return Program(fn=f, args=(X,), state=[w], gradients=False)


def higher_order_functions() -> Program:
    def f(x: tf.Tensor) -> Any:
        return (
            tf.map_fn(lambda row: row * tf.reduce_max(row) - 1.0, x),
            tf.map_fn(lambda p: (p[0] @ p[1], tf.shape(p[0])[0]), (x[:, None], x[:, :, None]), (tf.float32, tf.int32)),
            tf.vectorized_map(lambda row: tf.sort(row) * 2.0, x),
            tf.scan(lambda carry, row: carry * 0.5 + tf.sin(row), x),
            tf.foldl(lambda a, row: a + row, x),
        )

    return Program(fn=tf.function(f), args=(X,))


# -- branches ----------------------------------------------------------------------------------------------------------


def branches(flag: bool) -> Program:
    """One branch wants a GPU and counts its calls, the other has an op for the CPU alone."""
    hits = tf.Variable(0.0, name="hits")

    def f(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        def heavy() -> tf.Tensor:
            hits.assign_add(1.0)
            return x @ W @ W

        def light() -> tf.Tensor:
            rest = tf.raw_ops.ListDiff(x=tf.argsort(x[:, 0]), y=tf.constant([0])).out
            return tf.gather(x, tf.concat([rest, [0]], axis=0))

        return tf.cond(flag, heavy, light)

    return Program(fn=tf.function(f), args=(X, tf.constant(flag)), state=[hits])


def taken() -> Program:
    return branches(True)


def not_taken() -> Program:
    return branches(False)


def switch_case(index: int) -> Program:
    w = weights()

    @tf.function
    def f(x: tf.Tensor, index: tf.Tensor) -> Any:
        picked = tf.switch_case(index, [lambda: x @ w, lambda: tf.sin(x), lambda: x + tf.cast(w.assign_add(W), tf.float32)])
        return picked, tf.case([(index < 1, lambda: 1), (index < 2, lambda: 2)], default=lambda: 3)

    return Program(fn=f, args=(X, tf.constant(index)), state=[w])


def the_first_case() -> Program:
    return switch_case(0)


def the_default_case() -> Program:
    return switch_case(7)


def branches_of_several_kinds() -> Program:
    """Integers, strings, lists and floats come out of one conditional."""

    @tf.function
    def f(x: tf.Tensor) -> Any:
        array = tf.TensorArray(tf.float32, 2, element_shape=[4])
        if tf.reduce_sum(x) > -1.0:
            n, word, array = tf.shape(x)[0], tf.constant("up"), array.write(0, x[0]).write(1, x[1])
        else:
            n, word, array = tf.constant(3), tf.strings.as_string(tf.reduce_max(x)), array.write(0, x[2]).write(1, x[3])
        return n, word, array.stack()

    return Program(fn=f, args=(X,))


def a_return_from_the_middle() -> Program:
    @tf.function
    def find(x: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        found = -1
        for i in tf.range(tf.size(x)):
            if tf.reshape(x, [-1])[i] > value:
                found = i
                break
        if found > 3:
            return found
        return found * 2

    return Program(fn=find, args=(X, tf.constant(0.3)))


def an_assert_in_the_branch_not_taken() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        if x[0, 0] > 0.0:
            tf.debugging.assert_less(x, 0.0)
            x = tf.linalg.cholesky(x)
        return x * 2.0

    return Program(fn=f, args=(X,))


def an_error_in_the_loop() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(5):
            tf.debugging.assert_less(i, 3, message="too far")
            x = x @ W
        return x

    return Program(fn=f, args=(X,))


# -- calls -------------------------------------------------------------------------------------------------------------


def recursion_through_several_levels() -> Program:
    w = weights()

    @tf.function
    def tower(x: tf.Tensor, depth: int) -> tf.Tensor:
        return x if depth == 0 else tf.tanh(tower(x @ w, depth - 1)) + tower(x * 0.5, depth - 1)

    return Program(fn=tower, args=(X, 4), state=[w])


def one_function_from_many_sites() -> Program:
    w = weights()

    @tf.function
    def layer(x: tf.Tensor) -> tf.Tensor:
        w.assign_add(W)
        return tf.nn.relu(x @ w)

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        x = layer(x)
        for _ in tf.range(n):
            x = layer(x) if tf.reduce_sum(x) > 0.0 else layer(-x)
        return layer(x)

    return Program(fn=f, args=(X, tf.constant(2)), state=[w])


def two_wishes_for_one_function() -> Program:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(x @ W, name="s")

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:1"):
            a = inner(x)
        with tf.device("/CPU:0"):
            return inner(a)

    return Program(fn=f, args=(X,))


PROGRAMS: list[Builder] = [
    known_trips, unknown_trips, zero_trips, nested_loops, break_continue_and_return, maximum_iterations,
    a_loop_that_changes_shape, values_that_swap, a_variable_written_in_the_loop, a_gradient_taken_in_the_loop,
    higher_order_functions, taken, not_taken, the_first_case, the_default_case, branches_of_several_kinds,
    a_return_from_the_middle, an_assert_in_the_branch_not_taken, an_error_in_the_loop, recursion_through_several_levels,
    one_function_from_many_sites, two_wishes_for_one_function,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS)
def test_placed_is_plain(build: Builder) -> None:
    check(build)


# -- what a plan knows of them -----------------------------------------------------------------------------------------


def of_type(placement: Placement, op_type: str) -> list[Any]:
    found = [op for op in placement.graph if op.op_type == op_type]
    assert found, f"no {op_type}"
    return found


@pytest.mark.parametrize("machine", ["h100", "2xh100"])
def test_a_loop_counts_its_trips_and_its_values_keep_one_device(machine: str) -> None:
    """Where copies count, no counter crosses; the float state is where it was when it comes round again."""
    placement = plan(known_trips(), machine, pins={"MatMul": "GPU:0"}, objective="total_cost")
    assert [op.count for op in of_type(placement, "MatMul")] == [20]
    assert list(placement.graph.rounds.values()) == [(20, "exact")]
    values = [op for op in placement.graph if op.op_type in ("LoopVariable", "NextIteration")]
    for op in values:
        assert placement.ops[op.name].device == placement.ops[op.name.replace("/out", "/in")].device
        if op.signature.outputs[0].dtype == "int32" and "GPU" in op.kernels:
            assert 0 in op.kernels["GPU"].host_outputs
    counters = {op.name for op in placement.graph if op.signature.outputs and op.signature.outputs[0].dtype == "int32"}
    crossing = [t for t in placement.transfers if t.tensor.rpartition(":")[0] in counters]
    assert not crossing


@pytest.mark.parametrize("asked", ["", "/GPU:0"])
def test_the_predicate_of_a_loop_on_a_gpu_stays_on_the_host(asked: str) -> None:
    @tf.function
    def step(x: Any) -> Any:
        with tf.device(asked or None):
            return tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.sin(h)), [0, x])[1]

    placement = placer.solve(placer.build_graph(step, tf.ones([4])), "h100", pins={"while*": "GPU:0"}, solver="tf_default")
    (less,) = of_type(placement, "Less")
    assert placement.ops[less.name].device == "GPU:0"
    assert not [
        t for t in placement.transfers if placement.graph.op(t.tensor.rpartition(":")[0]).signature.outputs[0].dtype == "bool"
    ]


def test_a_loop_of_tiny_ops_is_on_the_cpu_and_the_product_after_it_need_not_be() -> None:
    wide = tf.fill([16, 4096], 0.01)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        rows = tf.map_fn(lambda row: row * tf.reduce_max(row) - tf.reduce_min(row), x)
        return rows @ wide @ tf.transpose(wide) @ wide @ tf.transpose(wide)

    placement = plan(Program(fn=f, args=(tf.ones([256, 16]),)))
    body = [op for op in placement.graph if op.body and op.role == "op"]
    assert {op.count for op in body if op.op_type != "Identity"} == {256, 257}  # its counters have no other use than its end
    assert {placement.ops[op.name].device for op in body} == {"CPU:0"}
    assert {placement.ops[op.name].device for op in of_type(placement, "MatMul")} == {"GPU:0"}


def test_scopes_inside_a_body_are_kept_in_what_really_runs() -> None:
    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, h: tf.Tensor) -> Any:
            with tf.device("/CPU:1"):
                h = tf.matmul(h, W)
            with tf.device("/CPU:0"):
                h = tf.tanh(h)
            return i + 1, h

        with tf.device("/CPU:1"):
            return tf.while_loop(lambda i, h: i < n, body, [0, x])[1]

    placed = placer.place(f, devices=two_cpus())
    with soft_placement(False):
        observation = placed.observe(X, tf.constant(4))
    ran = {op.op_type: observation.ran[op.name] for op in placed.placement.graph if op.op_type in ("MatMul", "Tanh")}
    assert ran == {"MatMul": "CPU:1", "Tanh": "CPU:0"}
    assert not observation.mismatches


def test_pins_reach_into_bodies_by_name_and_by_type() -> None:
    placed = placer.place(taken().fn, devices=two_cpus(), pins={"*then/matmul*": "CPU:1", "ListDiff": "CPU:1", "*cond": "CPU:0"})
    ran = placed.observe(X, tf.constant(True)).ran
    products = [op.name for op in of_type(placed.placement, "MatMul")]
    assert {ran[name] for name in products} == {"CPU:1"}


def test_one_function_goes_two_ways_from_two_sites() -> None:
    placed = placer.place(two_wishes_for_one_function().fn, devices=two_cpus())
    ran = placed.observe(X).ran
    assert [ran[op.name] for op in of_type(placed.placement, "Sin")] == ["CPU:1", "CPU:0"]


@pytest.mark.parametrize("flag", [True, False])
def test_branches_that_differ_agree_on_where_their_results_are(flag: bool) -> None:
    """The predicate is on the host, an op without a GPU kernel is on the CPU, and each branch counts for half."""
    placement = plan(branches(flag))
    (cond,) = [op for op in placement.graph if op.op_type == "If"]
    assert cond.kernels["GPU"].host_inputs == (0,)
    assert placement.device_of(cond.name) == placement.device_of(f"{cond.name}/out")
    assert {placement.ops[op.name].device for op in of_type(placement, "ListDiff")} == {"CPU:0"}
    assert {op.count for op in of_type(placement, "MatMul")} == {0.5}
