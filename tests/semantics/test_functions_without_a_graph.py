"""Loops, branches and calls of functions that are registered without a graph: `Defun` of TensorFlow 1, imported graphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import functional_ops

import placer
from tests.helpers.harness import Program, check, plan
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
FLOAT, INT = tf.float32, tf.int32


def ctc_loss() -> Program:
    """Two loops, one of which counts down, with a custom gradient around them."""

    def f(logits: tf.Tensor) -> tf.Tensor:
        labels, lengths = tf.constant([[1, 2, 2], [3, 1, 0]]), (tf.constant([3, 2]), tf.constant([7, 6]))
        return tf.nn.ctc_loss(labels, logits, *lengths, logits_time_major=False, blank_index=0)

    return Program(fn=tf.function(f), args=(tf.random.stateless_normal([2, 7, 5], [1, 2]),))


def ctc_of_sparse_labels() -> Program:
    rows = tf.ragged.constant([[1, 2, 2], [3]], dtype=INT).to_sparse()

    def f(logits: tf.Tensor) -> Any:
        steps = tf.fill([2], tf.shape(logits)[0])
        loss = tf.nn.ctc_loss(rows, logits, None, steps, blank_index=-1)
        return loss, tf.nn.ctc_beam_search_decoder(logits, steps, beam_width=4, top_paths=2)[1]

    return Program(fn=tf.function(f), args=(tf.random.stateless_normal([7, 2, 5], [1, 2]),))


def captures_and_a_call_by_name() -> Program:
    """What the body captures becomes a loop variable, and the body is called by its name."""
    w = tf.Variable(tf.eye(4) * 0.9)

    def f(x: tf.Tensor) -> Any:
        bias = tf.reduce_mean(x)

        @function.Defun(INT, FLOAT)
        def below(i: Any, y: Any) -> Any:
            return i < 6

        @function.Defun(INT, FLOAT)
        def body(i: Any, y: Any) -> Any:
            return i + 1, tf.tanh(y @ w) + bias

        return functional_ops.While([tf.constant(0), x], below, body)[1]

    return Program(fn=tf.function(f), args=(X,), state=[w])


def until_a_value() -> Program:
    """A loop that only a run can count, with a branch in it."""

    def f(x: tf.Tensor) -> Any:
        @function.Defun(FLOAT, INT)
        def halved(y: Any, n: Any) -> Any:
            return y * 0.5, n + 2

        @function.Defun(FLOAT, INT)
        def shifted(y: Any, n: Any) -> Any:
            return y - 1.0, n + 1

        @function.Defun(FLOAT, INT)
        def above(y: Any, n: Any) -> Any:
            return tf.reduce_max(y) > 0.1

        @function.Defun(FLOAT, INT)
        def body(y: Any, n: Any) -> Any:
            y, n = functional_ops.If(tf.reduce_max(y) > 2.0, [y, n], shifted, halved)
            return tf.ensure_shape(y, [4, 4]), n

        return functional_ops.While([x, tf.constant(0)], above, body)

    return Program(fn=tf.function(f), args=(X * 5.0,), gradients=False)  # the plain function's gradient raises


def a_counted_loop_that_counts_by_three() -> Program:
    def f(x: tf.Tensor) -> Any:
        @function.Defun(INT, FLOAT)
        def body(i: Any, y: Any) -> Any:
            return tf.sin(y) + tf.cast(i, FLOAT)

        return functional_ops.For(20, 2, -3, [x], body, rewrite_with_while=True)

    return Program(fn=tf.function(f), args=(X,))


def a_call_by_name() -> Program:
    def f(x: tf.Tensor) -> Any:
        @function.Defun(FLOAT)
        def inner(y: Any) -> Any:
            return y * 2.0, tf.stop_gradient(y)

        @function.Defun(FLOAT)
        def outer(y: Any) -> Any:
            a, b = inner(tf.cos(y))
            return a @ b, tf.range(3)

        return outer(x)

    return Program(fn=tf.function(f), args=(X,))


def side_effects_in_order() -> Program:
    """Each round has run before the next begins, and all of them before what follows the loop."""
    v = tf.Variable(1.0)

    def f(x: tf.Tensor) -> Any:
        handle = v.handle

        @function.Defun(INT)
        def below(i: Any) -> Any:
            return i < 4

        @function.Defun(INT)
        def body(i: Any) -> Any:
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=FLOAT)
            tf.raw_ops.AssignVariableOp(resource=handle, value=2.0 * value + tf.cast(i, FLOAT))
            return i + 1

        count = functional_ops.While([tf.constant(0)], below, body)
        with tf.control_dependencies([count]):
            return x + v.read_value()

    return Program(fn=tf.function(f), args=(X,), state=[v])


def an_imported_graph() -> Program:
    """The functions of a GraphDef come without graphs, those of its loops and branches too."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(FLOAT, [4, 4], name="x")
        total = tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, tf.tanh(y @ x)), [0, x])[1]
        tf.identity(tf.cond(tf.reduce_sum(total) > 0.0, lambda: total * 2.0, lambda: tf.exp(total)), name="y")
    definition = graph.as_graph_def()
    imported = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), [])
    return Program(fn=imported.prune("x:0", "y:0"), args=(X,))


def a_loop_that_is_not_read() -> Program:
    def f(x: tf.Tensor) -> Any:
        @function.Defun(INT, FLOAT)
        def body(i: Any, y: Any) -> Any:
            return tf.sin(y) + tf.cast(i, FLOAT)

        return functional_ops.For(2, 20, 3, [x], body)[0] @ x

    return Program(fn=tf.function(f), args=(X,))


PROGRAMS = [
    ctc_loss, ctc_of_sparse_labels, captures_and_a_call_by_name, until_a_value, a_counted_loop_that_counts_by_three,
    a_call_by_name, side_effects_in_order, an_imported_graph, a_loop_that_is_not_read,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS)
def test_what_it_does_is_what_the_plain_function_does(build: Any) -> None:
    check(build)


def test_a_loop_is_predicted_by_its_rounds() -> None:
    def f(logits: tf.Tensor) -> tf.Tensor:
        steps = logits.shape[0]
        labels, lengths = tf.fill([8, 10], 1), (tf.fill([8], 10), tf.fill([8], steps))
        return tf.nn.ctc_loss(labels, logits, *lengths)

    step_ns = []
    for steps in (20, 200):
        graph = placer.build_graph(tf.function(f), tf.TensorSpec([steps, 8, 32]))
        assert dict(graph.rounds) == dict.fromkeys(("ctc_loss_dense/While", "ctc_loss_dense/While_1"), (steps, "exact"))
        assert {op.count for op in graph if "/While/body/" in op.name} == {steps}
        assert not graph.notes
        step_ns.append(placer.simulate(graph, {"*": "CPU:0"}, "h100").step_time_ns)
    assert step_ns[1] > 5 * step_ns[0]


def test_rounds_that_only_a_run_tells_are_assumed_or_learnt() -> None:
    program = until_a_value()
    assert "counts as 10" in " ".join(placer.build_graph(program.fn, *program.args).notes)
    placed = placer.place(program.fn, devices=two_cpus())
    seen = placed.learn(*program.args)
    y, rounds, shifted = X.numpy() * 5.0, 0, 0
    while y.max() > 0.1:
        y, rounds, shifted = (y - 1.0, rounds + 1, shifted + 1) if y.max() > 2.0 else (y * 0.5, rounds + 1, shifted)
    assert seen.rounds == {"While": rounds}
    assert list(seen.taken.values()) == [(shifted, rounds - shifted)]
    assert placed.plan(*program.args).graph.rounds["While"] == (rounds, "seen")


def test_a_body_that_is_not_read_is_said() -> None:
    placement = plan(a_loop_that_is_not_read())
    assert any(re.search("'For': its body cannot be read, and the loop counts as one round", note) for note in placement.notes)
    assert "assuming" in str(placement).splitlines()[0]


def test_what_is_saved_does_the_same(tmp_path: Path) -> None:
    program = ctc_loss()
    expected = program.fn(*program.args)
    module = tf.Module()
    module.fn = placer.place(program.fn, devices=two_cpus(), pins={"*/While/body/*": "CPU:1"})
    tf.saved_model.save(module, str(tmp_path), signatures=module.fn.get_concrete_function(*program.args))
    [saved] = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](logits=program.args[0]).values()
    np.testing.assert_allclose(saved, expected, rtol=1e-5)
