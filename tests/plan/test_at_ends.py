"""Plans where what a graph leaves open is low or high: priced as the graph with these sizes and rounds is, and said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.graph.ends import at_end
from placer.graph.op_graph import OpGraph
from placer.graph.sizes import HIGH_ROUNDS, HIGH_SIDE, End
from placer.plan.placement import Placement
from tests.helpers.machines import two_cpus


def nested(x: Any) -> Any:
    """An open loop with a loop of three rounds inside, and a list that grows in every round."""
    w, rows = tf.ones([8, 8]), tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[4, 8])
    i = 0
    while tf.reduce_sum(tf.abs(x)) > 1.0:
        for _ in tf.range(3):
            x = 0.1 * tf.tanh(x @ w)
        rows = rows.write(i, x)
        i += 1
    return tf.nn.relu(rows.stack())


def bounded(x: Any) -> Any:
    i = 0
    while i < 40 and tf.reduce_sum(x) > 1.0:
        x, i = x * 0.5, i + 1
    return x


def flattened(x: Any) -> Any:
    return tf.nn.relu(tf.reshape(x, [-1, 5])) @ tf.ones([5, 2])


OPEN_ROWS = tf.TensorSpec([None, 10])
GIVEN: list[tuple[Callable[..., Any], Any, End, Mapping[str, Any]]] = [
    (nested, tf.ones([4, 8]), "low", {"rounds": {"while": 1}}),
    (nested, tf.ones([4, 8]), "high", {"rounds": {"while": HIGH_ROUNDS}}),
    (bounded, tf.ones([4]), "low", {"rounds": {"while": 1}}),
    (flattened, OPEN_ROWS, "high", {"sizes": {"x": [HIGH_SIDE]}}),
]


@pytest.mark.parametrize(("fn", "arg", "end", "given"), GIVEN)
def test_an_end_is_the_graph_with_these_sizes_and_rounds(fn: Any, arg: Any, end: End, given: Any) -> None:
    changed, expected = at_end(placer.build_graph(fn, arg), end), placer.build_graph(fn, arg, **given)
    assert changed is not None
    assert {op.name: (op.signature, op.count) for op in changed} == {op.name: (op.signature, op.count) for op in expected}


def test_nothing_changes_at_the_ends_of_a_graph_that_says_all() -> None:
    graph = placer.build_graph(flattened, tf.ones([3, 10]))
    assert [at_end(graph, "low"), at_end(graph, "high")] == [None, None]
    assert placer.solve(graph, "h100").at_ends == ()
    assert at_end(placer.build_graph(bounded, tf.ones([4])), "high") is None


def plan_for_few_rows() -> tuple[OpGraph, Placement]:
    """A plan by a solver that looks at one row, for which the CPU is best; many rows are better on the GPU."""

    def fn(x: Any) -> Any:
        for _ in range(8):
            x = tf.nn.relu(x @ tf.ones([4096, 4096]))
        return x

    graph = placer.build_graph(fn, tf.TensorSpec([None, 4096]))
    return graph, placer.solve(graph, "h100", solver="all_cpu")


def test_another_placement_that_is_best_at_an_end_is_said_first(tmp_path: Path) -> None:
    graph, plan = plan_for_few_rows()
    [high] = plan.at_ends
    assert high.best
    many = at_end(graph, "high")
    assert many is not None
    devices = {name: op.device for name, op in plan.ops.items()}
    assert placer.simulate(many, devices, "h100").step_time_ns == high.step_time_ns
    assert placer.solve(many, "h100").step_time_ns <= high.best_step_time_ns < high.step_time_ns
    said = f"with sizes [{HIGH_SIDE},4096] of 'x', "
    assert said in plan.summary().splitlines()[0]
    assert said in plan.explain("matmul")
    plan.save(tmp_path / "plan.json")
    assert Placement.load(tmp_path / "plan.json") == plan


def test_what_a_run_had_is_said() -> None:
    def fn(x: Any) -> Any:
        while tf.reduce_sum(x) > 1.0:
            x = x * 0.5 if tf.reduce_max(x) > 0.0 else x * 0.25
        return tf.boolean_mask(x, x > 0.0)

    placed = placer.place(fn, devices=two_cpus())
    placed.learn(tf.ones([4]))
    [line] = [line for line in placed.plan(tf.ones([4])).summary().splitlines() if line.startswith("seen")]
    assert "2 rounds of 'while'" in line
    assert "'while/body/cond' took 2 and 0 times" in line or "took 0 and 2 times" in line
    assert "sizes [4,1] of 'boolean_mask/Where'" in line
