"""Layers of a plain TensorFlow function: scopes, both passes, variables, and what an optimizer does for them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus


def test_a_layer_has_its_scope_its_gradients_its_variables_and_its_updates() -> None:
    one, two = (tf.Variable(tf.ones([4, 4]), name=f"net/{name}/w") for name in ("one", "two"))
    moments = [tf.Variable(tf.zeros([4, 4]), name=f"opt/net_{name}_w_momentum") for name in ("one", "two")]
    rate = tf.Variable(0.1, name="opt/rate")

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape, tf.name_scope("net"):
            with tf.name_scope("one"):
                hidden = tf.nn.relu(x @ one)
            with tf.name_scope("two"):
                loss = tf.reduce_sum(hidden @ two)
        gradients = tape.gradient(loss, [one, two])
        with tf.name_scope("opt"):
            scale = 1.0 / tf.linalg.global_norm(gradients)
            for variable, moment, gradient in zip((one, two), moments, gradients, strict=True):
                moment.assign(0.9 * moment + scale * gradient)
                variable.assign_sub(rate * moment)  # the layers have reads of their own of this rate
        return loss

    graph = placer.build_graph(step, tf.ones([2, 4]))
    for layer in ("net/one", "net/two"):
        ops = [graph.op(name) for name, of in graph.layers.items() if of == layer]
        assert {op.resource for op in ops} == {"", f"{layer}/w", f"opt/{layer.replace('/', '_')}_w_momentum"}
        types = {op.op_type for op in ops}
        assert {"MatMul", "AssignVariableOp", "AssignSubVariableOp"} <= types
        assert {op.name.partition("/")[0] for op in ops if op.role == "op"} == {"net", "gradient_tape", "opt"}
    shared = {graph.op(name).op_type for name, of in graph.layers.items() if of.startswith("opt")}
    assert {"Sqrt", "ReadVariableOp"} <= shared
    assert {of for of in graph.layers.values() if of.startswith("opt")} <= {"opt", "opt/global_norm"}
    assert "AssignVariableOp" not in shared

    plan = placer.solve(graph, two_cpus(), pins={"one": "CPU:1", "net/two": "CPU:0"}, variables="move")
    found = {
        layer: {plan.device_of(name) for name, of in graph.layers.items() if of == layer} for layer in ("net/one", "net/two")
    }
    assert found == {"net/one": {"CPU:1"}, "net/two": {"CPU:0"}}
    rows = [line.split()[0] for line in plan.view("layers").splitlines() if line.endswith(("net/one", "net/two"))]
    assert rows == ["CPU:1", "CPU:0"]
