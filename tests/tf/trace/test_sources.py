"""Sizes and rounds that follow from a graph in roundabout ways: lists, datasets, compiled calls, decoders, limits of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.command.main import main
from placer.graph.op_graph import OpGraph
from tests.tf.trace.test_known_sizes import gradient_of_padding, size_of


def result_size(graph: OpGraph, index: int = 0) -> tuple[str, Any]:
    return size_of(graph, *graph.outputs[index])


def inner_ops(graph: OpGraph, op_type: str) -> list[Any]:
    """The signatures of this type inside ops that are placed as a whole, however deep."""

    def walk(signatures: Any) -> Any:
        for signature in signatures:
            yield signature
            yield from walk(signature.inner)

    return [each for op in graph for each in walk(op.signature.inner) if each.op_type == op_type]


def test_a_size_that_a_loop_keeps_for_its_gradient_has_the_bound_that_it_had() -> None:
    graph = placer.build_graph(gradient_of_padding, tf.ones([4, 3]), tf.ones([4, 3]))
    assert {size.source for sizes in graph.sizes.values() for size in sizes if size} == {"bound"}


def test_decoded_labels_are_at_most_one_for_each_time() -> None:
    def fn(logits: Any) -> Any:
        labels, scores = tf.nn.ctc_beam_search_decoder(logits, [7, 7], 4)
        return labels[0].values, tf.sparse.to_dense(labels[0]), scores

    graph = placer.build_graph(fn, tf.zeros([7, 2, 5]))
    assert [result_size(graph, k) for k in range(3)] == [("bound", (14,)), ("bound", (2, 7)), ("exact", (2, 1))]


def test_a_constant_limits_rounds_that_data_decides() -> None:
    def fn(x: Any) -> Any:
        for _ in tf.range(tf.minimum(tf.cast(tf.reduce_sum(x), tf.int32), 70)):
            x = x * 0.5
        return x

    assert placer.build_graph(fn, tf.ones([4])).rounds["while"] == (70, "bound")


DATA = tf.data.Dataset.from_tensor_slices(tf.ones([24, 2])).batch(4)


def growing(data: Any) -> Any:
    """The three largest of all elements, kept in a state that grows up to three."""
    best = tf.zeros([0])
    for x in data:
        tf.autograph.experimental.set_loop_options(shape_invariants=[(best, tf.TensorShape([None]))])
        all_seen = tf.concat([best, tf.reduce_sum(x, 1)], 0)
        best = tf.math.top_k(all_seen, tf.minimum(3, tf.size(all_seen)))[0]
    return best


def test_the_state_of_a_loop_over_a_dataset_has_its_last_size() -> None:
    drop = tf.data.Dataset.from_tensor_slices(tf.ones([24, 2])).batch(4, drop_remainder=True)
    graph = placer.build_graph(growing, drop)
    assert graph.op(graph.outputs[0][0]).signature.outputs[0].shape == (3,)
    assert [op.inputs[0].shape for op in inner_ops(graph, "TopKV2")] == [(7,)]


def looping(data: Any, rounds: Any) -> Any:
    total = tf.constant(0.0)
    for element in data:
        x = element
        for _ in tf.range(rounds):
            x = tf.tanh(x @ tf.ones([2, 2]))
        total += tf.reduce_sum(x)
    return total


def test_a_loop_in_the_function_of_a_dataset_costs_its_rounds() -> None:
    few, many = (placer.build_graph(lambda data, n=n: looping(data, n), DATA) for n in (1, 300))
    assert [(known.value, known.source) for loop, known in many.rounds.items() if loop.endswith("while")] == [(300, "exact")]
    costs = [placer.solve(graph, "cpu2", cost_model="analytic").total_cost_ns for graph in (few, many)]
    assert costs[1] > 50 * costs[0]


def test_rounds_can_be_given_for_a_loop_in_the_function_of_a_dataset() -> None:
    def fn(data: Any) -> Any:
        total = tf.constant(0.0)
        for element in data:
            x = element
            while tf.reduce_sum(x) > 1.0:
                x = x * 0.5
            total += tf.reduce_sum(x)
        return total

    graph = placer.build_graph(fn, DATA)
    [loop] = [loop for loop, known in graph.rounds.items() if known.source == "assumed"]
    assert repr(loop) in placer.solve(graph, "cpu2").summary().splitlines()[0]
    assert placer.build_graph(fn, DATA, rounds={loop: 40}).rounds[loop] == (40, "given")


def test_ops_in_a_compiled_call_have_the_sizes_of_its_arguments() -> None:
    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 8])])
    def compiled(x: Any) -> Any:
        for _ in tf.range(5):
            x = tf.nn.relu(x @ tf.ones([8, 8]))
        return x @ tf.ones([8, 2])

    graph = placer.build_graph(lambda x: compiled(x) * 2.0, tf.ones([32, 8]))
    assert {op.outputs[0].shape for op in inner_ops(graph, "MatMul")} == {(32, 8), (32, 2)}
    [loop] = inner_ops(graph, "StatelessWhile") or inner_ops(graph, "While")
    assert loop.attr("rounds") == 5


def test_memory_counts_bounds_of_what_a_loop_keeps_in_lists() -> None:
    def fn(x: Any) -> Any:
        kept = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False)
        for i in tf.range(16):
            parts = tf.dynamic_partition(x, tf.cast(x[:, 0] > tf.cast(i, tf.float32), tf.int32), 4)
            kept = kept.write(i, parts[0])
        return kept.concat()

    graph = placer.build_graph(fn, tf.ones([4096, 64]))
    peak = placer.solve(graph, "cpu2", pins={"*": "CPU:0"}).totals["CPU:0"].peak_bytes
    assert peak >= 16 * 4096 * 64 * 4  # all rows may be in the first part, in every round


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel whose batch is open."""
    path, module = tmp_path_factory.mktemp("saved"), tf.Module()
    module.w = tf.Variable(tf.ones([8, 4]))
    serve = tf.function(lambda x: {"y": tf.nn.relu(x @ module.w)}, input_signature=[tf.TensorSpec([None, 8], name="x")])
    tf.saved_model.save(module, str(path), signatures=serve)
    return path


def test_open_sizes_of_a_saved_model_can_be_given(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tf.saved_model.load(str(saved))
    graph = placer.build_graph(model.signatures["serving_default"], sizes={"x": [64]})
    assert {op.signature.outputs[0].shape for op in graph if op.op_type == "MatMul"} == {(64, 4)}
    assert main(["solve", str(saved), "--devices", "h100", "--sizes", "x=64"]) == 0
    assert "assum" not in capsys.readouterr().out
    assert main(["solve", str(saved), "--devices", "h100"]) == 0
    assert "assuming sizes of 'x'" in capsys.readouterr().out.splitlines()[0]
