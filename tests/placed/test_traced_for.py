"""A function that is traced for a machine with a GPU has the graph that it has where TensorFlow sees one."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import DeviceError
from tests.helpers import forked

CUDNN = {"CudnnRNNV3", "CudnnRNNBackpropV3"}
X, Y = tf.ones([4, 16, 8]), tf.ones([4, 2])


def training_step() -> Callable[..., Any]:
    import keras

    keras.utils.clear_session()  # names of layers do not depend on the tests before
    model = keras.Sequential(
        [keras.Input((16, 8)), keras.layers.LSTM(32, return_sequences=True), keras.layers.GRU(16), keras.layers.Dense(2)]
    )

    @tf.function
    def recurrent(x: tf.Tensor) -> tf.Tensor:
        return model(x, training=True)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((recurrent(x) - y) ** 2)
        return loss, tape.gradient(loss, model.trainable_variables)

    return step


def types(graph: Any) -> set[str]:
    return {op.op_type for op in graph}


def test_the_graph_is_that_of_a_process_that_sees_a_gpu() -> None:
    program = """
        import tensorflow as tf
        from tensorflow.python.eager import context
        seen = [*tf.config.list_logical_devices(), context.LogicalDevice("/device:GPU:0", "GPU")]
        tf.config.list_logical_devices = lambda kind=None: [d for d in seen if kind in (None, d.device_type)]
        import placer
        from tests.placed.test_traced_for import X, Y, training_step
        print(placer.build_graph(training_step(), X, Y).fingerprint)
    """
    there = forked.run("-c", textwrap.dedent(program))
    assert there.returncode == 0, there.stderr
    step = training_step()
    step(X, Y)  # traced for here, too
    graph = placer.build_graph(step, X, Y, devices="h100")
    assert types(graph) >= CUDNN
    assert graph.fingerprint == there.stdout.strip()
    assert placer.solve(graph, "h100").fingerprint == there.stdout.strip()


def test_calls_here_and_graphs_for_here_are_as_ever() -> None:
    step = training_step()
    before = placer.build_graph(step, X, Y)
    expected = step(X, Y)
    placed = placer.place(step, X, Y, devices="h100")
    assert types(placed.placement.graph) >= CUDNN
    assert not types(placer.place(step, X, Y, devices="h100", trace_for="here").placement.graph) & CUDNN
    with pytest.raises(DeviceError):
        placed(X, Y)
    tf.nest.map_structure(np.testing.assert_array_equal, step(X, Y), expected)
    assert placer.build_graph(step, X, Y).fingerprint == before.fingerprint
    assert not types(before) & CUDNN
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), placer.place(step)(X, Y), expected)


def test_a_function_is_first_traced_for_another_machine() -> None:
    made: list[tf.Variable] = []

    @tf.function
    def scaled(x: tf.Tensor) -> tf.Tensor:
        if not made:
            made.append(tf.Variable(2.0))
        return x * made[0] * (3.0 if tf.config.list_logical_devices("GPU") else 5.0)

    graph = placer.build_graph(scaled, X, devices="h100")
    assert "Mul" in types(graph)
    assert scaled(X)[0, 0, 0] == 10.0
    assert len(made) == 1


def test_what_is_reported_is_the_machine_and_only_to_the_code_that_is_traced() -> None:
    reported: list[tuple[int, int, int]] = []

    def count() -> tuple[int, int, int]:
        gpus = tf.config.list_logical_devices("GPU"), tf.config.list_physical_devices("GPU")
        return len(gpus[0]), len(gpus[1]), len(tf.config.list_logical_devices("CPU"))

    def ask(x: tf.Tensor) -> tf.Tensor:
        reported.append(count())
        other = threading.Thread(target=lambda: reported.append(count()))
        other.start()
        other.join()
        return x + 1.0

    here = count()
    placer.build_graph(ask, X, devices="2xh100")
    assert reported == [(2, 2, here[2]), here]
    reported.clear()
    placer.build_graph(ask, X)
    inner = placer.place(ask)
    placer.build_graph(lambda x: inner(x) + x, X, devices="h100")  # the plan of the placed function inside is for here
    assert reported == [here] * 4
    assert count() == here


def test_a_function_that_is_left_as_it_is_runs_by_a_trace_for_here() -> None:
    @tf.function(jit_compile=True)
    def compiled(x: tf.Tensor) -> tf.Tensor:
        return x * (3.0 if tf.config.list_logical_devices("GPU") else 5.0)

    with pytest.warns(placer.errors.PlacementWarning, match="left as it is"):
        result = placer.place(compiled, devices="h100")(X)
    assert result[0, 0, 0] == 5.0
