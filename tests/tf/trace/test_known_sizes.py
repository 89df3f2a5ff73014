"""Sizes and rounds that follow from a graph: their values and sources, and no run that exceeds a bound."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import placer
from placer.graph.op_graph import OpGraph
from placer.graph.sizes import Size
from placer.options import MAX_GIVEN
from placer.views.shared.words import headline
from tests.helpers.harness import RandomLegal
from tests.helpers.machines import two_cpus

REPORTS = Path(os.environ.get("PLACER_REPORTS", Path(__file__).parents[4] / "shared" / "reports"))


def truth() -> dict[str, Callable[[], Any]]:
    """The functions of the report on sizes, where that is present."""
    if not (REPORTS / "graph_truth.py").exists():
        return {}
    sys.path.insert(0, str(REPORTS))
    try:
        import graph_truth
    finally:
        sys.path.remove(str(REPORTS))
    return dict(graph_truth.FUNCTIONS)


def size_of(graph: OpGraph, node: str, output: int = 0) -> tuple[str, Any]:
    """Source and bound of an output's shape; for an exact one the shape."""
    size = graph.sizes.get(node, (None,) * (output + 1))[output]
    return ("exact", graph.op(node).signature.outputs[output].shape) if size is None else (size.source, size.bound)


@pytest.mark.parametrize(
    "name",
    [name for name in truth() if name != "epoch_over_a_dataset"]
    or [pytest.param("", marks=pytest.mark.skip(reason="the reports are not here"))],
)
def test_what_a_report_says_of_a_graph_is_known(name: str) -> None:
    fn, args, expected = truth()[name]()
    graph = placer.build_graph(fn, *args)
    for part, (source, number) in expected.get("trips", {}).items():
        [rounds] = [rounds for loop, rounds in graph.rounds.items() if loop.startswith(part)]
        assert rounds == ((10, "assumed") if source == "seen" else (number, source))
    signatures = [(op.name, op.signature) for op in graph]
    for part, (source, rows) in expected.get("rows", {}).items():
        inner = [s for _, op in signatures for s in op.inner if s.op_type.startswith(part)]
        assert all(s.outputs[0].shape and s.outputs[0].shape[0] == rows for s in inner)
        sizes = [size_of(graph, op.name) for op in graph if op.op_type.startswith(part)]
        assert inner or sizes
        for known, bound in sizes:
            assert known == ("assumed" if source == "seen" else source)
            assert source == "seen" or bound[0] == rows


def test_sizes_are_saved(tmp_path: Path) -> None:
    graph = placer.build_graph(lambda x: tf.boolean_mask(x, x > 0.0), tf.ones([9]))
    graph.save(tmp_path / "graph.json")
    loaded = OpGraph.load(tmp_path / "graph.json")
    assert loaded == graph
    assert graph.sizes[graph.outputs[0][0]] == (Size("bound", (9,), low=(1,)),)


# -- programs ------------------------------------------------------------------------------------------------------------


def masked(x: Any, y: Any) -> Any:
    return tf.boolean_mask(x, x[:, 0] > 0.0)


def unique(x: Any, y: Any) -> Any:
    values, _ = tf.unique(tf.cast(x[:, 0] * 3.0, tf.int32))
    return tf.cast(values, tf.float32)[:, None] * tf.ones([1, x.shape[1]])


def parts(x: Any, y: Any) -> Any:
    return tf.dynamic_partition(x, tf.cast(x[:, 0] > 0.5, tf.int32), 2)[1]


def stitched(x: Any, y: Any) -> Any:
    to = tf.cast(x[:, 0] > 0.5, tf.int32)
    rows = tf.dynamic_partition(tf.range(tf.shape(x)[0]), to, 2)
    return tf.dynamic_stitch(rows, [2.0 * part for part in tf.dynamic_partition(x, to, 2)])


def largest(x: Any, y: Any) -> Any:
    return tf.gather(x, tf.math.top_k(x[:, 0], tf.minimum(tf.shape(x)[0], 3)).indices)


def difference(x: Any, y: Any) -> Any:
    return tf.zeros([tf.maximum(tf.shape(x)[0] - tf.shape(y)[0], 0), x.shape[1]])


def tail(x: Any, y: Any) -> Any:
    return x[tf.minimum(tf.shape(y)[0], tf.shape(x)[0]) :]


def head(x: Any, y: Any) -> Any:
    return x[: tf.shape(y)[0]]


def joined(x: Any, y: Any) -> Any:
    return tf.concat([x, y], 0)


def padded(x: Any, y: Any) -> Any:
    return tf.pad(x, [[0, (-tf.shape(x)[0]) % 4], [0, 0]])


def flat_and_back(x: Any, y: Any) -> Any:
    x = tf.concat([x, tf.ones([1, 3])], 0)
    return tf.reshape(tf.reshape(x, [-1]), [tf.shape(x)[0], -1])


def ratio(x: Any, y: Any) -> Any:
    """Rows and columns are exchanged as another tensor's size decides."""
    rows = tf.maximum(tf.shape(y)[0], 1)
    return tf.reshape(tf.zeros([rows * 6, x.shape[1]]), [6 * rows, -1])


def half(x: Any, y: Any) -> Any:
    return x[: tf.cast(tf.math.ceil(tf.cast(tf.shape(x)[0], tf.float32) * 0.5), tf.int32)]


def summed(x: Any, y: Any) -> Any:
    return tf.broadcast_to(tf.reduce_mean(x, 0), [tf.shape(y)[0] + 2, x.shape[1]])


def kept_in_a_loop(x: Any, y: Any) -> Any:
    for _ in tf.range(3):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, x.shape[1]]))])
        x = x * 0.5
    return x


def grown_in_a_loop(x: Any, y: Any) -> Any:
    for _ in tf.range(3):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, x.shape[1]]))])
        x = tf.concat([x, y], 0)
    return x


def shrunk_in_a_loop(x: Any, y: Any) -> Any:
    for _ in tf.range(2):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, x.shape[1]]))])
        x = x[:-1]
    return x


def looped_over_rows(x: Any, y: Any) -> Any:
    return tf.map_fn(lambda row: row + 1.0, x)


def chosen(x: Any, y: Any) -> Any:
    return tf.cond(tf.reduce_sum(y) > 0.0, lambda: tf.identity(x), lambda: tf.concat([x, x[:1]], 0))


def limited(x: Any, y: Any) -> Any:
    return tf.ones([tf.minimum(tf.cast(tf.reduce_sum(tf.abs(x)), tf.int32), 4), 3])


def rest(x: Any, y: Any) -> Any:
    return tf.ones([tf.cast(tf.reduce_sum(tf.abs(y)), tf.int32) % 5, 3])


def counted(x: Any, y: Any) -> Any:
    bins = tf.math.bincount(tf.cast(tf.abs(x[:, 0]), tf.int32), minlength=2, maxlength=4)
    return tf.cast(bins, tf.float32)[:, None] * tf.ones([1, 3])


def gradient_of_padding(x: Any, y: Any) -> Any:
    """The gradient cuts what was padded away again, by sizes that the forward loop kept in a list."""

    def positive(row: Any) -> Any:
        kept = tf.boolean_mask(row, row > 0.0)
        all_padded = tf.pad(kept, [[0, 3 - tf.size(kept)]])
        all_padded.set_shape([3])
        return all_padded

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.map_fn(positive, x) ** 2)
    return tape.gradient(loss, x)


STEPS = [
    *(masked, unique, parts, stitched, largest, difference, tail, head, joined, padded, flat_and_back, ratio, half, summed),
    *(kept_in_a_loop, grown_in_a_loop, shrunk_in_a_loop, looped_over_rows, chosen),
    *(limited, rest, counted, gradient_of_padding),
]


RANDOM = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
CHOSEN = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5)


def program(steps: list[tuple[Any, int, int]], rows: int, open_rows: bool) -> Any:
    """A function that returns its arguments and what each step makes of two earlier values."""

    def made_by_steps(x: Any, y: Any) -> list[Any]:
        made = [x, y]
        for step, first, second in steps:
            made.append(step(made[first % len(made)], made[second % len(made)]))
            made[-1].set_shape([None, 3])
        return made

    spec = tf.TensorSpec([None if open_rows else rows, 3], tf.float32)
    return tf.function(made_by_steps, input_signature=[spec, tf.TensorSpec([rows + 2, 3], tf.float32)])


def arguments(rows: int, seed: int) -> list[Any]:
    random = np.random.RandomState(seed)
    return [tf.constant(random.standard_normal((n, 3)), tf.float32) for n in (rows, rows + 2)]


@settings(max_examples=40, **RANDOM)
@given(steps=CHOSEN, rows=st.integers(1, 9), seed=st.integers(0, 5), open_rows=st.booleans())
def test_no_run_exceeds_a_bound_or_differs_from_an_exact_size(
    steps: list[tuple[Any, int, int]], rows: int, seed: int, open_rows: bool
) -> None:
    args, concrete = arguments(rows, seed), program(steps, rows, open_rows)
    graph = placer.build_graph(concrete, *args)
    for made, (node, output) in zip(concrete(*args), graph.outputs, strict=True):
        source, shape = size_of(graph, node, output)
        assert len(shape) == 2
        if source == "exact":
            assert shape == tuple(made.shape)
        for side, most in zip(made.shape, shape, strict=True):
            assert most is None or side <= most, (node, source, shape, made.shape)


@settings(max_examples=15, **RANDOM)
@given(steps=CHOSEN, rows=st.integers(1, 9), seed=st.integers(0, 5), by_plan=st.booleans())
def test_sizes_seen_in_a_first_call_are_those_of_the_run_and_their_plan_gives_its_results(
    steps: list[tuple[Any, int, int]], rows: int, seed: int, by_plan: bool
) -> None:
    args, plain = arguments(rows, seed), program(steps, rows, open_rows=True)
    limits = {"CPU:1": "1GiB"} if by_plan else {}
    placed = placer.place(plain, devices=two_cpus(), solver=RandomLegal(seed), memory_limits=limits)
    expected = plain(*args)
    for _ in range(2):
        for result, want in zip(placed(*args), expected, strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-5)
    graph = placed.placement.graph
    for made, (node, output) in zip(expected, graph.outputs, strict=True):
        assert graph.op(node).signature.outputs[output].shape == tuple(made.shape)
        source, bound = size_of(graph, node, output)
        assert (source, bound) in (("exact", tuple(made.shape)), ("seen", tuple(made.shape))), (node, source, bound)


# -- given, said, counted ------------------------------------------------------------------------------------------------


def batch(x: Any) -> Any:
    return tf.nn.relu(x @ tf.ones([4, 4]))


BATCH = tf.TensorSpec([None, 4], tf.float32, name="x")


def test_types_of_a_call_count_where_the_trace_of_wider_types_serves_it() -> None:
    function = tf.function(batch)
    assert result_shape(placer.build_graph(function, BATCH)) == (None, 4)
    assert result_shape(placer.build_graph(function, tf.TensorSpec([8, 4]))) == (8, 4)


def result_shape(graph: OpGraph) -> tuple[int | None, ...] | None:
    node, output = graph.outputs[0]
    return graph.op(node).signature.outputs[output].shape


@pytest.mark.parametrize("given", [{"x": [64, 4]}, {"x": 64}, {"*": "64"}])
def test_a_given_size_is_carried_on_and_said(given: dict[str, Any]) -> None:
    plan = placer.place(batch, devices="h100", sizes=given).plan(BATCH)
    relu = next(op for op in plan.graph if op.op_type == "Relu")
    assert relu.signature.outputs[0].shape == (64, 4)
    assert plan.graph.size_of(relu.name, 0) == Size("given", (64, 4))
    assert "given, at most [64, 4]" in plan.explain(relu.name)
    assert "assum" not in plan.summary()
    assert "given      sizes [64,4] of 'x'" in plan.summary()


def test_given_rounds_hold_for_a_loop_and_its_gradient() -> None:
    def fn(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            while tf.reduce_sum(y) > 1.0:
                y = 0.5 * y
        return tape.gradient(y, x)

    plain = placer.build_graph(fn, tf.ones([4]))
    assert set(plain.rounds.values()) == {(10, "assumed")}
    given = placer.build_graph(fn, tf.ones([4]), rounds={"while": 300})
    assert set(given.rounds.values()) == {(300, "given")}
    with pytest.raises(placer.OptionError, match="build_graph"):
        placer.solve(plain, "h100", rounds={"while": 300})


def test_what_was_given_and_seen_is_the_same_after_a_plan_is_saved(tmp_path: Path) -> None:
    def fn(x: Any, y: Any) -> Any:
        while tf.reduce_sum(y) > 1.0:
            y = 0.5 * y
        while tf.reduce_sum(y) > 0.01:
            y = 0.5 * y
        return tf.boolean_mask(x, x[:, 0] > 0.0), tf.boolean_mask(x, x[:, 1] > 0.0), y

    args = tf.reshape(tf.range(-8.0, 8.0), [8, 2]), tf.ones([4])
    options = {"sizes": {"boolean_mask/*": [3, 1]}, "rounds": {"while": 300}, "devices": two_cpus()}
    placed = placer.place(fn, **options)
    placed(*args)
    learnt = placed.placement
    assert {rounds.source for rounds in learnt.graph.rounds.values()} == {"given", "seen"}
    learnt.graph.save(tmp_path / "graph.json")
    solved = placer.solve(OpGraph.load(tmp_path / "graph.json"), two_cpus())
    for plan in (learnt, solved):
        plan.save(tmp_path / "plan.json")
        loaded = placer.Placement.load(tmp_path / "plan.json")
        applied = placer.apply(fn, loaded)
        for each, result in zip(applied(*args), fn(*args), strict=True):
            np.testing.assert_allclose(each, result)
        for graph in (loaded.graph, applied.placement.graph):
            assert (graph.rounds, graph.sizes) == (learnt.graph.rounds, learnt.graph.sizes)
            assert {size.source for sizes in graph.sizes.values() for size in sizes if size} == {"given", "seen"}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"sizes": {"zz": [3]}}, "sizes, 'zz': 'masked' has no such op or argument; sizes are not known of 'boolean_mask/Where'"),
        ({"sizes": {"boolean_masc/Where": [3, 1]}}, "did you mean boolean_mask/Where"),
        ({"rounds": {"whale": 3}}, "rounds, 'whale': 'masked' has no such loop; did you mean while?"),
        ({"sizes": {"boolean_mask/Where": [9, 1]}}, "'boolean_mask/Where': [9,1] is given, and this tensor is at most [8,1]"),
        ({"sizes": {"boolean_mask/Where": [4, 2]}}, "a number for each dimension, or for each open one"),
        ({"rounds": {"while": 21}}, "'while': 21 are given, and this loop runs at most 20 rounds"),
    ],
)  # fmt: skip
def test_what_is_given_has_a_name_and_keeps_bounds(given: dict[str, Any], error: str) -> None:
    def masked(x: Any) -> Any:
        for _ in tf.range(20):
            x = 0.5 * x
            if tf.reduce_sum(x) < 1.0:
                break
        return tf.boolean_mask(x, x > 0.0)

    with pytest.raises(placer.OptionError, match=re.escape(error)):
        placer.place(masked, devices="h100", **given).plan(tf.ones([8]))
    graph = placer.build_graph(masked, tf.ones([8]))
    if "such" in error or "mean" in error:
        with pytest.raises(placer.OptionError, match=re.escape(error)):
            placer.solve(graph, "h100", **given)
    assert placer.build_graph(masked, tf.ones([8]), rounds={"while": 20}).rounds["while"] == (20, "given")


def test_what_is_given_for_what_the_graph_says_is_not_used_and_that_is_said() -> None:
    def fn(x: Any) -> Any:
        for _ in tf.range(5):
            x = x + 1.0
        return x

    graph = placer.build_graph(fn, tf.ones([2, 4]), sizes={"x": [3, 4]}, rounds={"while": 9})
    assert graph.rounds["while"] == (5, "exact")
    assert {note.split(":")[0] for note in graph.notes} == {"'x'", "'while'"}


@pytest.mark.parametrize(
    "given",
    [
        {"sizes": {"x": "a"}},
        {"sizes": {"x": -1}},
        {"sizes": {"x": 2**63}},
        {"rounds": {"w": 1.5}},
        {"rounds": {"w": 10**30}},
        {"rounds": 3},
    ],
)
def test_what_is_no_size_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(placer.OptionError, match=r"whole number|mapping"):
        placer.Options.of(given)


def test_the_most_rounds_that_can_be_given_have_a_price() -> None:
    def fn(x: Any) -> Any:
        while tf.reduce_sum(x) > 1.0:
            x = 0.5 * x
        return x

    graph = placer.build_graph(fn, tf.ones([4]), rounds={"while": MAX_GIVEN})
    plan = placer.solve(graph, "h100", rounds={"while": MAX_GIVEN})
    assert plan.step_time_ns > MAX_GIVEN


def test_sizes_that_do_not_fit_are_refused_with_what_would() -> None:
    graph = placer.build_graph(batch, BATCH, sizes={"x": [3, 4, 5, 6, 7]})
    assert "'x': the sizes [3,4,5,6,7] are not used, they do not fit its shape [?,4]" in placer.solve(graph, "h100").summary()
    with pytest.raises(placer.OptionError, match="a number for each dimension, or for each open one"):
        placer.solve(graph, "h100", sizes={"x": [3, 4, 5, 6, 7]})


def test_rows_of_split_strings_follow_from_the_number_of_strings() -> None:
    def fn(lines: Any) -> Any:
        return tf.strings.to_hash_bucket_fast(tf.strings.split(lines).to_tensor("", shape=(None, 6)), 9)

    graph = placer.build_graph(fn, tf.constant(["a b"] * 5))
    assert graph.op(graph.outputs[0][0]).signature.outputs[0].shape == (5, 6)


def test_words_of_an_unknown_number_of_strings_are_planned_and_only_what_was_given_is_said() -> None:
    def fn(lines: Any) -> Any:
        return tf.strings.length(tf.strings.split(lines).to_tensor(""))

    def summary(**given: Any) -> str:
        return placer.solve(placer.build_graph(fn, tf.TensorSpec([None], tf.string), devices="h100", **given), "h100").summary()

    assert "assuming sizes of 'lines'" in summary()
    assert "with , " not in summary()
    assert re.findall("^given .*", summary(sizes={"lines": 8}), re.MULTILINE) == ["given      sizes [8] of 'lines'"]


def test_a_plan_says_in_its_first_line_what_it_assumes() -> None:
    plan = placer.solve(placer.build_graph(batch, BATCH), "h100")
    first = plan.summary().splitlines()[0]
    assert first.endswith("assuming sizes of 'x'")
    assert headline(plan) in first
    with pytest.warns(placer.PlacementWarning, match="'x:0'.*no upper bound"):
        placer.solve(plan.graph, "h100", memory_limits={"GPU": "1GiB"})


def test_memory_counts_bounds_and_time_counts_likely_sizes() -> None:
    def fn(x: Any) -> list[Any]:
        return [2.0 * part for part in tf.dynamic_partition(x, tf.cast(x[:, 0] > 0.5, tf.int32), 2)]

    graph = placer.build_graph(fn, tf.ones([4096, 64]))
    mul = next(op for op in graph if op.op_type == "Mul")
    assert mul.signature.outputs[0].shape == (2048, 64)
    assert graph.size_of(mul.name, 0) == Size("bound", (4096, 64), low=(1, 64))
    peak = placer.solve(graph, "cpu2", pins={"*": "CPU:0"}).totals["CPU:0"].peak_bytes
    assert peak >= 3 * 4096 * 64 * 4  # the argument and two parts, each of which may have every row


def test_memory_counts_the_largest_and_time_the_mean_of_what_was_seen() -> None:
    kept = [512 * i for i in range(1, 9)]

    def fn(x: Any) -> Any:
        """In each round, a mask keeps more rows."""
        total = tf.constant(0.0)
        for i in tf.range(8):
            rows = tf.boolean_mask(x, x[:, 0] <= tf.cast(i, tf.float32))
            total += tf.reduce_sum(tf.tanh(rows @ tf.ones([8, 128])))
        return total

    x = tf.repeat(tf.range(8.0)[:, None], 8, 1)
    x = tf.repeat(x, 512, 0)
    options = {"devices": two_cpus(), "pins": {"while/*": "CPU:1"}, "race": "off"}
    learnt = placer.place(fn, **options)
    learnt(x)
    at_mean, at_largest = (
        placer.place(fn, **options, sizes={"while/body/boolean_mask/*": [rows]}).plan(x) for rows in (sum(kept) // 8, max(kept))
    )
    assert learnt.placement.step_time_ns == at_mean.step_time_ns < at_largest.step_time_ns
    peaks = [plan.totals["CPU:1"].peak_bytes for plan in (at_mean, learnt.placement, at_largest)]
    assert peaks[0] < peaks[1] == peaks[2]


def test_a_dataset_of_uneven_batches_has_a_bound() -> None:
    w = tf.Variable(tf.ones([8, 8]))

    def fn(data: Any) -> Any:
        total = tf.constant(0.0)
        for x in data:
            total += tf.reduce_sum(x @ w)
        return total

    data = tf.data.Dataset.from_tensor_slices(tf.ones([20, 8])).batch(8).prefetch(2)
    graph = placer.build_graph(fn, data)
    assert set(graph.rounds.values()) == {(3, "exact")}
    [scan] = [op for op in graph if op.op_type == "ScanDataset"]
    assert [op.outputs[0].shape for op in scan.signature.inner if op.op_type == "MatMul"] == [(8, 8)]
    once = placer.build_graph(fn, data.take(1))
    slow, fast = (placer.solve(g, "cpu2", cost_model="analytic").total_cost_ns for g in (graph, once))
    assert slow > 2 * fast


def test_no_size_is_below_zero_where_a_loop_uses_rows_up() -> None:
    def uses_up(x: Any) -> Any:
        shapes = [tf.TensorShape([]), tf.TensorShape([None])]
        return tf.while_loop(lambda i, _: i < 5, lambda i, x: [i + 1, x[3:]], [0, x], shapes)[1]

    graph = placer.build_graph(tf.function(uses_up), tf.ones([10]))
    assert placer.place(uses_up)(tf.ones([10])).shape == [0]
    assert all(d is None or d >= 0 for op in graph for spec in op.signature.outputs for d in spec.shape or ())
