"""What a plan rests on and what it could not do is said: in its notes, and as a warning where a wish was not met."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.common.units import format_ns
from tests.helpers.graphs import layers
from tests.helpers.machines import two_cpus


def scoped(x: Any) -> Any:
    with tf.device("/GPU:5"):
        return x * 2.0


def test_a_scope_that_is_relaxed_warns() -> None:
    placed = placer.place(scoped, devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="GPU:5.*relaxed"):
        placed(tf.ones([2]))
    assert any("relaxed" in note for note in placed.placement.notes)


@pytest.mark.parametrize(("shape", "said"), [([None, 4], "unknown sizes count as 1"), (None, "counts as a scalar"), ([3, 4], "")])
def test_unknown_shapes_are_said(shape: list[int | None] | None, said: str) -> None:
    graph = placer.build_graph(tf.sin, tf.TensorSpec(shape, tf.float32, name="x"))
    notes = " ".join(placer.solve(graph, "h100").notes)
    assert said in notes
    assert bool(said) == bool(notes)


def test_a_limit_above_what_the_device_has_is_said() -> None:
    graph = placer.build_graph(tf.sin, tf.ones([2]))
    assert any("GPU:0, 1000 GiB, is above the" in n for n in placer.solve(graph, "h100", memory_limits={"GPU": "1000GiB"}).notes)


def test_an_assumed_trip_count_is_said() -> None:
    def until(x: Any) -> Any:
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: [y * 2.0], [x])[0]

    notes = placer.solve(placer.build_graph(until, tf.ones([2])), "h100").notes
    assert any("counts as 10" in note for note in notes)


def test_what_moving_variables_would_gain_is_said_and_comes_true() -> None:
    weights = tf.Variable(tf.ones([64, 8]))
    graph = placer.build_graph(lambda x: tf.nn.relu(x @ weights), tf.zeros([2, 64]), devices="h100")
    (note,) = (note for note in placer.solve(graph, "h100").notes if note.startswith('variables="move"'))
    moved = placer.solve(graph, "h100", variables="move")
    assert note.count(format_ns(moved.step_time_ns)) == 1
    assert not any(note.startswith('variables="move"') for note in moved.notes)


def test_rounds_and_sizes_of_a_graph_are_not_given_again_with_other_numbers() -> None:
    def loop(x: Any, n: Any) -> Any:
        for _ in tf.range(n):
            x = tf.tanh(x)
        return x

    types = (tf.TensorSpec([None, 8], name="x"), tf.TensorSpec([], tf.int32, name="n"))
    graph = placer.build_graph(loop, *types, devices="h100", rounds={"while*": 20}, sizes={"x": 64})
    for same in ({"rounds": {"while*": 20}}, {"sizes": {"x": 64}}, {"sizes": {"x": [64, 8]}}):
        placer.solve(graph, "h100", **same)
    for other in ({"rounds": {"while*": 300}}, {"sizes": {"x": 32}}):
        with pytest.raises(placer.OptionError, match="are not those of the graph: it was made with others"):
            placer.solve(graph, "h100", **other)


def test_a_compiled_function_is_solved_as_a_whole() -> None:
    compiled = tf.function(lambda x: tf.sin(x @ x), jit_compile=True)
    plan = placer.solve(placer.build_graph(compiled, tf.ones([4, 4])), "h100", pins={"MatMul": "CPU:0"})
    assert {plan.ops[op.name].device for op in plan.graph if op.role != "argument"} == {"CPU:0"}
    assert "XLA" in plan.explain("Sin")


def test_baselines_know_no_pins_and_sums_add_up() -> None:
    w = tf.Variable(tf.ones([256, 256]))
    graph = placer.build_graph(lambda x: tf.strings.length(tf.strings.as_string(tf.nn.relu(x @ w))), tf.ones([256, 256]))
    free, pinned = (placer.solve(graph, "h100", pins=pins) for pins in ({}, {"Relu": "CPU:0", "matmul": "CPU:0"}))
    assert [b.step_time_ns for b in pinned.baselines.values()] == [b.step_time_ns for b in free.baselines.values()]
    for plan in (free, pinned):
        assert plan.total_cost_ns == sum(t.time_ns for t in plan.totals.values()) + sum(t.time_ns for t in plan.transfers)
        assert all(t.src != t.dst or t.nbytes for t in plan.transfers)
    home = free.device_of("matmul/ReadVariableOp")
    assert home == "GPU:0"
    assert free.totals[home].peak_bytes <= 3 * 4 * 256 * 256  # w, x and the product: what is read is in the variable's own memory


@pytest.mark.parametrize(("device", "broken"), [("CPU:0", {"tf_default", "all_gpu"}), ("GPU:0", {"all_cpu"})])
def test_what_pins_and_limits_forbid_is_said_of_every_baseline(device: str, broken: set[str]) -> None:
    plan = placer.solve(layers(), "h100", pins={"MatMul": device})
    said = f"3 of {len(plan.ops)} ops are pinned elsewhere"
    assert {name for name, baseline in plan.baselines.items() if said in baseline.note} == broken
    assert plan.summary().count(said) == len(broken)
    tight = placer.solve(layers(), "h100", pins={"MatMul": "CPU:0", "Relu": "CPU:0"}, memory_limits={"GPU:0": "50KiB"})
    assert re.search(r"all on GPU .* exceeds the limit of GPU:0 .*, 6 of \d+ ops are pinned elsewhere", tight.summary())


def pinned(x: Any) -> Any:
    return tf.matmul(x, x)


def in_a_scope(x: Any) -> Any:
    with tf.device("/CPU:1"):
        return tf.matmul(x, x)


def in_a_loop(x: Any) -> Any:
    for _ in tf.range(2):
        x = tf.matmul(x, x)
    return x


def called(fn: Any) -> Any:
    return lambda x: tf.function(fn)(tf.sin(x)) + 1.0


def looped(fn: Any) -> Any:
    def loop(x: Any) -> Any:
        for _ in tf.range(3):
            x = fn(x)
        return x

    return loop


def differentiated(fn: Any) -> Any:
    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.gradient(y, x)

    return gradient


@pytest.mark.parametrize("around", [lambda fn: fn, called, looped, differentiated])
@pytest.mark.parametrize(
    ("inner", "pins", "said"),
    [
        (pinned, {"MatMul": "CPU:1"}, "pin 'MatMul' demands 'CPU:1'"),
        (in_a_loop, {"MatMul": "CPU:1"}, "pin 'MatMul' demands 'CPU:1'"),
        (in_a_scope, {}, r"tf.device\('/device:CPU:1'\) demands CPU:1"),
        (pinned, {}, "cheaper by .*: .* here, .* on CPU:1"),
    ],
)
def test_what_a_placed_function_decided_is_told_where_it_is_called(
    inner: Any, pins: dict[str, str], said: str, around: Any, tmp_path: Path
) -> None:
    placed = placer.place(inner, devices=two_cpus(), pins=pins)
    calling = placer.place(around(tf.function(placed)), devices=two_cpus())
    again = placer.place(called(calling), devices=two_cpus())
    told = f"the plan of placed function '{inner.__name__}(_with_backward)?' demands CPU:[01]: {said}"
    for fn, words in ((calling, told), (again, f"the plan of placed function .* demands CPU:[01]: {told}")):
        plan = fn.plan(tf.ones([64, 64]))
        plan.save(tmp_path / "plan.json")
        assert placer.Placement.load(tmp_path / "plan.json").graph == plan.graph
        first = next(op.name for op in plan.graph if op.op_type == "MatMul")
        assert re.search(f"why   scope: {words}", plan.explain(first)), plan.explain(first)


def test_a_placed_function_whose_devices_are_not_there_is_named() -> None:
    placed = placer.place(pinned, devices=two_cpus(), pins={"MatMul": "CPU:1"})
    graph = placer.build_graph(called(placed), tf.ones([4, 4]))
    assert any("CPU:1 in the plan of 'pinned' relaxed" in note for note in placer.solve(graph, "h100").notes)


def test_a_compiled_call_costs_what_its_ops_do(tmp_path: Path) -> None:
    def wide(x: Any) -> Any:
        return tf.nn.relu(x @ x) @ x

    compiled = tf.function(wide, jit_compile=True)
    x = tf.ones([4096, 4096])  # starting a product by itself takes a GPU's host longer than making a small one
    graph = placer.build_graph(lambda x: tf.reduce_sum(compiled(x)), x)
    graph.save(tmp_path / "graph.json")
    loaded = placer.OpGraph.load(tmp_path / "graph.json")
    assert loaded.fingerprint == graph.fingerprint
    plan, plain = (placer.solve(g, "h100", cost_model="analytic") for g in (loaded, placer.build_graph(wide, x)))
    call = next(op.name for op in loaded if op.op_type == "PartitionedCall")
    for device, time_ns in plan.ops[call].time_ns.items():
        matmul_ns = plain.ops["matmul"].time_ns[device]
        assert 1.5 * matmul_ns < time_ns < 3 * matmul_ns
