"""A loop of TensorFlow 1, as old saved graphs hold it, is a cycle: it is left alone, and found out at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer


def old_graph() -> Any:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [3], name="x")
            y = v1.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, tf.tanh(a) + 1.0), [0, x])[1]
            tf.identity(y, name="y")
        finally:
            v1.enable_control_flow_v2()
    return graph.as_graph_def()


def test_a_loop_of_tensorflow_1_is_left_alone() -> None:
    definition = old_graph()
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), [])
    fn = wrapped.prune("x:0", "y:0")
    x = tf.ones([3])
    with pytest.warns(placer.PlacementWarning, match="TensorFlow 1"):
        placed = placer.place(fn)
    np.testing.assert_allclose(placed(x), fn(x))
    with pytest.raises(placer.TraceError, match="depends on itself"):
        placer.build_graph(fn, x)
