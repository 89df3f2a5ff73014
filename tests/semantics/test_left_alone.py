"""What is not planned: the function runs as it would without placer, has no plan, and one warning says why."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function

import placer
from tests.helpers import forked
from tests.helpers.harness import OTHER, Program, check, left_alone
from tests.helpers.machines import two_cpus
from tests.helpers.replicas import AROUND_REPLICAS, central_storage, one_device, one_replica, two_replicas

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
W = tf.eye(4) * 0.9 + 0.01
v1 = tf.compat.v1


# -- strategies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", AROUND_REPLICAS)
def test_functions_that_run_replicas_of_a_strategy_that_is_not_planned_for(build: Callable[[Any], Any]) -> None:
    left_alone(lambda: Program(fn=build(central_storage()), args=(X,), gradients=False), "distribution strategy")


def test_one_traced_before_it_was_placed_is_known_too() -> None:
    fn = AROUND_REPLICAS[0](central_storage())
    fn(X)
    left_alone(lambda: Program(fn=fn, args=(X,)), "replicas of a distribution strategy")


@pytest.mark.parametrize("make", [one_replica, two_replicas, one_device])
@pytest.mark.parametrize("outside_first", [False, True])
def test_a_call_under_a_strategy_is_told_from_one_outside(make: Callable[[], Any], outside_first: bool) -> None:
    placed = placer.place(lambda x: x * 2.0, devices=two_cpus())
    strategy = make()

    def outside() -> None:
        np.testing.assert_allclose(placed(X), X * 2.0)
        assert placed.placement.ops

    if outside_first:
        outside()
    with pytest.warns(placer.PlacementWarning, match="called under a distribution strategy"), strategy.scope():
        np.testing.assert_allclose(placed(X), X * 2.0)
    with pytest.raises(placer.PlanError, match="left as it is"):
        _ = placed.placement
    for result in strategy.experimental_local_results(strategy.run(placed, (X,))):
        np.testing.assert_allclose(result, X * 2.0)
    assert "A distribution strategy" in placed.placement.notes[0] or "replicas" in placed.placement.notes[0]
    outside()
    assert not any("replica" in note for note in placed.placement.notes)


def test_replicas_of_a_strategy_that_is_not_planned_for_are_left_alone() -> None:
    placed = placer.place(lambda x: x * 2.0, devices=two_cpus())
    strategy = central_storage()
    with pytest.warns(placer.PlacementWarning, match="called under a distribution strategy"):
        found = strategy.experimental_local_results(strategy.run(placed, (X,)))
    np.testing.assert_allclose(found[0], X * 2.0)


@pytest.mark.parametrize("inside", [False, True])
def test_replicas_that_wait_for_each_other_in_a_placed_function(inside: bool) -> None:
    """TensorFlow lets them meet in the function that they are called from, and in none that they call."""

    def both(strategy: Any, x: Any) -> tf.Tensor:
        return tf.add_n(strategy.experimental_local_results(x))

    def total(x: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(x) < 100.0:  # AutoGraph's, inside a tf.function
            x = x * 2.0
        return tf.distribute.get_replica_context().merge_call(both, (x,))

    strategy = two_replicas()

    def replicas(fn: Any) -> Any:
        def replica(x: tf.Tensor) -> tf.Tensor:
            return fn(x) + 1.0

        return strategy.experimental_local_results(strategy.run(replica, (X,)))

    placed = placer.place(total, devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="called under a distribution strategy") as warned:
        found = [(tf.function(replicas) if inside else replicas)(placed) for _ in range(2)]
    assert len(warned) == 1
    np.testing.assert_allclose(found, [replicas(total)] * 2)
    with pytest.raises(placer.PlanError, match="left as it is"):
        _ = placed.placement


def test_what_runs_under_the_strategy_that_is_always_there_is_placed() -> None:
    """`tf.distribute.get_strategy()` without a strategy passes functions on as they are; so are scopes inside."""
    nothing = tf.distribute.get_strategy()

    def replica(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/CPU:0"):
            return tf.matmul(x, W)

    check(lambda: Program(fn=tf.function(lambda x: nothing.run(replica, (x,)) + 1.0), args=(X,)))


def test_members_of_a_group_are_not_parted() -> None:
    def f(x: tf.Tensor) -> Any:
        return tf.raw_ops.CollectiveReduceV2(
            input=x, group_size=1, group_key=31, instance_key=7, ordering_token=[], merge_op="Add", final_op="Id"
        )

    left_alone(lambda: Program(fn=tf.function(f), args=(X,), gradients=False), "exchanges values with others of a group")


# -- DTensors ----------------------------------------------------------------------------------------------------------


def layouts() -> tuple[Any, Any]:
    dtensor = tf.experimental.dtensor
    mesh = dtensor.create_mesh([("batch", 2)], devices=["CPU:0", "CPU:1"])
    return dtensor.Layout.batch_sharded(mesh, "batch", rank=2), dtensor.Layout.replicated(mesh, rank=2)


def a_dtensor_argument() -> Program:
    sharded, _ = layouts()
    x = tf.experimental.dtensor.call_with_layout(tf.ones, sharded, shape=[4, 4])
    return Program(fn=tf.function(lambda x: tf.reduce_sum(x * x)), args=(x,), gradients=False)


def a_captured_dtensor() -> Program:
    sharded, replicated = layouts()
    w = tf.experimental.dtensor.copy_to_mesh(tf.fill([4, 4], 0.5), replicated)
    x = tf.experimental.dtensor.call_with_layout(tf.ones, sharded, shape=[4, 4])
    return Program(fn=tf.function(lambda x: tf.reduce_sum(tf.matmul(x, w))), args=(x,), gradients=False)


@pytest.mark.parametrize("build", [a_dtensor_argument, a_captured_dtensor])
def test_dtensors(build: Callable[[], Program]) -> None:
    program = build()
    placed = placer.place(program.fn, devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="DTensors") as warned:
        found = placed(*program.args)
    assert len([w for w in warned if w.category is placer.PlacementWarning]) == 1
    assert not placed.placements
    unpack = tf.experimental.dtensor.unpack
    for have, want in zip(unpack(found), unpack(program.fn(*program.args)), strict=True):
        np.testing.assert_allclose(have, want)


# -- other processes ---------------------------------------------------------------------------------------------------

CLUSTER = """
    import warnings
    import tensorflow as tf
    import placer

    server = tf.distribute.Server(tf.train.ClusterSpec({"worker": ["127.0.0.1:0"]}), job_name="worker", task_index=0)
    tf.config.experimental_connect_to_host(server.target.removeprefix("grpc://"), "worker")
    x, far = tf.ones([2, 2]), "/job:worker/task:0/device:CPU:0"
    with tf.device(far):
        v = tf.Variable(x)


    def scoped(x):
        with tf.device(far):
            return tf.sin(x)


    def called(x):
        return tf.function(scoped)(x) + 1.0


    for fn, reason in ((scoped, "worker"), (called, "worker"), (lambda x: x @ v, "worker"), (lambda x: tf.sin(x), "")):
        placed = placer.place(fn)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = placed(x)
        tf.debugging.assert_near(result, tf.function(fn)(x))
        said = [str(w.message) for w in warned if w.category is placer.PlacementWarning]
        assert bool(placed.placements) == (not reason), said
        assert [reason in s and "left as it is" in s for s in said] == [True] * bool(reason), said
    print("held", flush=True)
    import os

    os._exit(0)  # a server cannot be stopped
"""


def test_devices_of_other_processes() -> None:
    """A scope, or a variable, on a worker that this process is connected to; a function without either is planned."""
    done = forked.run("-c", textwrap.dedent(CLUSTER), timeout_s=120)
    assert done.stdout.split() == ["held"], done.stderr[-3000:]


# -- graphs of TensorFlow 1 --------------------------------------------------------------------------------------------


def wrapped(define: Callable[[Any], Any]) -> Any:
    """A function of [4, 4] from a graph of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:
            tf.identity(define(v1.placeholder(tf.float32, [4, 4], name="x")), name="y")
        finally:
            v1.enable_control_flow_v2()
    definition = graph.as_graph_def()
    return v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), []).prune("x:0", "y:0")


def loop(x: tf.Tensor) -> tf.Tensor:
    return v1.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(a @ W.numpy())), [0, x])[1]


def loop_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    return v1.cond(tf.reduce_sum(x) > -9.0, lambda: loop(x), lambda: x)


def reference_variable(x: tf.Tensor) -> tf.Tensor:
    v = tf.raw_ops.VariableV2(shape=[4, 4], dtype=tf.float32, container="", shared_name="")
    first = tf.raw_ops.Assign(ref=v, value=x * 2.0)
    return tf.raw_ops.AssignAdd(ref=first, value=x) @ x


def function_with_a_gradient(x: tf.Tensor) -> tf.Tensor:
    @function.Defun(tf.float32, tf.float32)
    def gradient(y: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        return upstream * 3.0

    @function.Defun(tf.float32, grad_func=gradient)
    def twice(y: tf.Tensor) -> tf.Tensor:
        return y * 2.0

    return twice(x) @ x


@pytest.mark.parametrize(("define", "why"), [
    (loop, "TensorFlow 1 control flow"), (loop_in_a_branch, "TensorFlow 1 control flow"),
    (reference_variable, "reference to a variable of TensorFlow 1"), (function_with_a_gradient, "gradient of its own"),
])  # fmt: skip
def test_what_tensorflow_1_alone_has(define: Callable[[Any], Any], why: str) -> None:
    fn = wrapped(define)
    with pytest.warns(placer.PlacementWarning, match=why) as warned:
        placed = placer.place(fn, devices=two_cpus())
    assert len([w for w in warned if w.category is placer.PlacementWarning]) == 1
    assert not placed.placements
    np.testing.assert_allclose(placed(X), fn(X), rtol=1e-6)


def test_a_loop_of_tensorflow_1_has_no_graph() -> None:
    with pytest.raises(placer.TraceError, match="depends on itself"):
        placer.build_graph(wrapped(loop), X)


def branch(x: tf.Tensor) -> tf.Tensor:
    return v1.cond(
        tf.reduce_sum(x) > 0.0, lambda: tf.sin(x) @ W.numpy(), lambda: x - tf.constant(np.full([4, 4], 2.0, np.float32))
    )


def two_branches(x: tf.Tensor) -> tf.Tensor:
    return v1.case([(x[0, 0] > 5.0, lambda: x * 2.0), (x[0, 0] < 0.0, lambda: branch(-x))], default=lambda: tf.cos(x))


@pytest.mark.parametrize("define", [branch, two_branches])
@pytest.mark.parametrize(("sign", "home"), [(1.0, "CPU:0"), (-1.0, OTHER)])
def test_branches_of_tensorflow_1_are_placed_wherever_a_call_has_its_argument(
    define: Callable[[Any], Any], sign: float, home: str
) -> None:
    with tf.device(home):
        x = tf.identity(X * sign + 0.5)
    check(lambda: Program(fn=wrapped(define), args=(x,)))
