"""What a run had is learnt: values equal the run's, and results, state and errors are the plain function's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import placer
from placer.graph.seen import Seen, SeenShape
from placer.graph.sizes import Size
from placer.plan.call_plan import CallPlan
from placer.tf._private.runtime import recorded_partitions
from placer.tf.run.learning import ReportingCall
from placer.tf.trace.tracing import trace, traceable
from tests.helpers.harness import DEVICES, Program, RandomLegal, behaviour, compare, soft_placement, two_cpus
from tests.helpers.programs import Source, programs

ROWS = tf.constant(np.random.default_rng(1).standard_normal((64, 8)).astype("f"))
KEPT = int((ROWS[:, 0] > 0.0).numpy().sum())


def masked(x: Any) -> Any:
    return tf.boolean_mask(x, x[:, 0] > 0.0) @ tf.ones([8, 4])


def open_ended(x: Any) -> Any:
    while tf.reduce_sum(tf.abs(x)) > 1.0:
        x = 0.5 * tf.tanh(x)
    return x


def shrinking(x: Any) -> Any:
    """A loop with a branch, in which a mask keeps fewer rows each round."""
    total = tf.constant(0.0)
    while tf.shape(x)[0] > 8:
        tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None, 8]))])
        x = tf.boolean_mask(x, x[:, 0] > tf.reduce_mean(x[:, 0]))
        total = total + 1.0 if tf.shape(x)[0] > 20 else total - 1.0
    return total, x


def rows_in(x: Any) -> list[int]:
    """The rows that the loop of `shrinking` has after each round."""
    rows, x = [], x.numpy()
    while len(x) > 8:
        x = x[x[:, 0] > x[:, 0].mean()]
        rows.append(len(x))
    return rows


@pytest.mark.parametrize("keep_state", [False, True])
def test_sizes_rounds_and_branches_are_those_of_the_run(keep_state: bool) -> None:
    rows = rows_in(ROWS)
    placed = placer.place(shrinking, devices=two_cpus())
    seen = placed.learn(ROWS, keep_state=keep_state)
    assert seen.rounds == {"while": len(rows)}
    assert seen.taken == {"while/body/cond": (sum(n > 20 for n in rows), sum(n <= 20 for n in rows))}
    [where] = [shape for (op, _), shape in seen.sizes.items() if op.endswith("Where")]
    assert where == SeenShape((-(-sum(rows) // len(rows)), 1), (max(rows), 1))
    graph = placed.plan(ROWS).graph
    assert graph.rounds["while"] == (len(rows), "seen")
    [then] = {op.count for op in graph if op.body == "while/body/cond/then" and op.role == "op"} or {None}
    assert then is None or then == pytest.approx(len(rows) * (seen.taken["while/body/cond"][0] + 1) / (len(rows) + 2))


def test_a_plan_made_from_a_run_says_so_and_is_applied_after_it_was_saved(tmp_path: Path) -> None:
    placed = placer.place(masked, devices=two_cpus())
    placed.learn(ROWS)
    plan = placed.plan(ROWS)
    [product] = [op.name for op in plan.graph if op.op_type == "MatMul"]
    assert plan.graph.op(product).signature.outputs[0].shape == (KEPT, 4)
    size = plan.graph.size_of(product, 0)
    assert size == Size("seen", (KEPT, 4))
    plan.save(tmp_path / "plan.json")
    applied = placer.apply(masked, placer.Placement.load(tmp_path / "plan.json"))
    np.testing.assert_allclose(applied(ROWS), masked(ROWS), rtol=1e-6)
    assert applied.placement.fingerprint == plan.fingerprint


def words(lines: Any) -> Any:
    tokens = tf.strings.split(lines).to_tensor("", shape=(None, 5))
    return tf.one_hot(tf.strings.to_hash_bucket_fast(tokens, 3), 3) @ tf.ones([3, 2])


def unique(x: Any) -> Any:
    return tf.unique(tf.cast(x[:, 0], tf.int32)).y


def parts(x: Any) -> Any:
    return tf.dynamic_partition(x, tf.cast(x[:, 0] > 0.5, tf.int32), 2)


def suppressed(x: Any) -> Any:
    return tf.image.non_max_suppression(tf.sort(x[:, :4], 1), x[:, 4], 30)


def branches(x: Any) -> Any:
    return tf.boolean_mask(x, x > 0.0) if tf.reduce_sum(x) > 1e9 else tf.reshape(x, [-1])


def callback(x: Any) -> Any:
    """An op of unknown rank."""
    return tf.numpy_function(lambda a: a[:3], [x], tf.float32) * 2.0


@pytest.mark.parametrize("fn", [masked, unique, parts, suppressed, branches, callback, words, open_ended])
def test_seen_shapes_of_results_are_those_of_the_run(fn: Any) -> None:
    x = tf.constant(["a b c", "d e"] * 9) if fn is words else ROWS
    placed = placer.place(fn, devices=two_cpus(), learn_sizes=False)
    placed.learn(x)
    graph = placed.plan(x).graph
    results = tf.nest.flatten(traceable(fn)(x))
    for result, (node, output) in zip(results, graph.outputs, strict=True):
        assert graph.op(node).signature.outputs[output].shape == tuple(result.shape)
        size = graph.size_of(node, output)
        assert size is None or size == Size("seen", tuple(result.shape))
    assert "assum" not in placed.plan(x).summary()


@pytest.mark.parametrize("keep_state", [False, True])
def test_state_is_put_back_unless_it_is_to_be_kept(keep_state: bool) -> None:
    count, inside, only_read = tf.Variable(0), tf.Variable(0), tf.Variable(3)
    add = tf.function(lambda: inside.assign_add(only_read))

    def counting(x: Any) -> Any:
        count.assign_add(1)
        for i in tf.range(2):
            if i > 0:
                add()
        return masked(x)

    placed = placer.place(counting, devices=two_cpus())
    placed.learn(ROWS, keep_state=keep_state)
    assert [int(count), int(inside), int(only_read)] == [keep_state, 3 * keep_state, 3]


def test_an_error_of_the_run_is_raised_and_nothing_is_learnt() -> None:
    def fails(x: Any) -> Any:
        tf.debugging.assert_less(tf.shape(tf.boolean_mask(x, x > 0.0))[0], 1)
        return x

    placed = placer.place(fails, devices=two_cpus())
    with pytest.raises(tf.errors.InvalidArgumentError):
        placed.learn(ROWS)
    with pytest.raises(tf.errors.InvalidArgumentError):
        placed(ROWS)


def test_a_function_that_is_left_as_it_is_cannot_learn() -> None:
    with pytest.raises(placer.PlanError, match="left as it is"):
        placer.place(tf.function(masked, jit_compile=True), devices=two_cpus()).learn(ROWS)


# -- the first call ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fn", [masked, open_ended, shrinking])
def test_the_first_call_learns_where_the_graph_leaves_something_open(fn: Any) -> None:
    placed, count = placer.place(fn, devices=two_cpus()), tf.Variable(0)
    counting = placer.place(lambda x: (count.assign_add(1), fn(x)), devices=two_cpus())
    for _ in range(2):
        tf.nest.map_structure(np.testing.assert_allclose, placed(ROWS), traceable(fn)(ROWS))
        counting(ROWS)
    assert int(count) == 2
    graph = placed.placement.graph
    sources = {size.source for sizes in graph.sizes.values() for size in sizes if size}
    assert sources | {rounds.source for rounds in graph.rounds.values()} == {"seen"}


def batches() -> Any:
    """A dataset of 5 batches that does not know how many it has."""
    rows = tf.TensorSpec([4, 8], tf.float32)
    return tf.data.Dataset.from_generator(lambda: iter([tf.ones([4, 8])] * 5), output_signature=rows)


def all_batches(data: Any) -> Any:
    total = tf.constant(0.0)
    for x in data:
        total += tf.reduce_sum(x @ WEIGHTS)
    return total


def until_enough(data: Any) -> Any:
    total = tf.constant(0.0)
    for x in data:
        total += tf.reduce_sum(x @ WEIGHTS)
        if total > 600.0:
            break
    return total


def in_a_loop(data: Any) -> Any:
    """In each of two rounds, a loop over 3 of the elements that are left of 4."""
    total = tf.constant(0.0)
    for _ in tf.range(2):
        for x in data.take(4).map(lambda x: 2.0 * x).skip(1).prefetch(1):
            total += tf.reduce_sum(x @ WEIGHTS)
    return total


WEIGHTS = tf.Variable(tf.ones([8, 8]))


@pytest.mark.parametrize(("fn", "elements"), [(all_batches, 5), (until_enough, 3), (in_a_loop, 3)])
def test_the_elements_of_a_dataset_are_learnt_from_the_first_call(fn: Any, elements: int, tmp_path: Path) -> None:
    unknown = placer.build_graph(fn, batches())
    [loop] = [op.name for op in unknown if op.op_type == "ReduceDataset"]
    assert unknown.rounds[loop].source == "assumed"
    placed = placer.place(fn, devices=two_cpus())
    for _ in range(2):
        np.testing.assert_allclose(placed(batches()), traceable(fn)(batches()))
    plan = placed.placement
    scan = loop.replace("Reduce", "Scan")
    assert {plan.graph.rounds[each] for each in (loop, scan)} == {(elements, "seen")}
    assert dict(plan.graph.op(scan).signature.attrs)["rounds"] == elements
    plan.save(tmp_path / "plan.json")
    applied = placer.apply(fn, placer.Placement.load(tmp_path / "plan.json"))
    np.testing.assert_allclose(applied(batches()), traceable(fn)(batches()))


def test_the_first_call_learns_where_a_branch_is_uneven() -> None:
    def fn(x: Any, large: Any) -> Any:
        if large:
            y = tf.ones([512, 512])
            x = tf.reduce_sum(tf.linalg.matmul(y, tf.linalg.matmul(y, y))) + x
        return x

    def even(x: Any, positive: Any) -> Any:
        return x + 1.0 if positive else x - 1.0

    for function, learns in ((fn, True), (even, False)):
        placed = placer.place(function, devices=two_cpus())
        placed(tf.constant(0.0), tf.constant(False))
        counts = [op.count for op in placed.placement.graph if op.body.endswith("/then") and op.role == "op"]
        np.testing.assert_allclose(counts, 1 / 3 if learns else 1 / 2)


def test_where_the_first_call_does_not_learn() -> None:
    def source(placed: Any) -> str:
        return str(placed.placement.graph.sizes[placed.placement.graph.outputs[0][0]][0].source)

    quiet = placer.place(masked, devices=two_cpus(), learn_sizes=False)
    quiet(ROWS)
    assert source(quiet) == "bound"
    taped = placer.place(masked, devices=two_cpus())
    with tf.GradientTape() as tape:
        tape.watch(ROWS)
        taped(ROWS)
    assert source(taped) == "bound"
    inside = placer.place(masked, devices=two_cpus())
    tf.function(inside)(ROWS)
    assert source(inside) == "bound"


@pytest.mark.parametrize("options", [{"memory_limits": {"CPU:1": "1MiB"}}, {"pins": {"Tanh": "CPU:1"}}])
def test_a_first_call_that_may_not_run_unplaced_learns_under_a_plan(options: dict[str, Any]) -> None:
    count = tf.Variable(0)

    def fn(x: Any) -> Any:
        count.assign_add(1)
        rows = tf.boolean_mask(x, x[:, 0] > 0.0)
        y = tf.zeros([4])
        while tf.reduce_sum(y) < 9.0:
            y += tf.reduce_mean(tf.exp(tf.tanh(rows @ tf.ones([8, 4]))), 0)
            rows = rows if tf.reduce_sum(y) < 4.0 else 2.0 * rows
        return y

    want, _ = traceable(fn)(ROWS), count.assign(0)
    placed = placer.place(fn, devices=two_cpus(), **options)
    with soft_placement(False), recorded_partitions() as recorded:
        np.testing.assert_allclose(placed(ROWS), want, rtol=1e-6)
    ran = {node.op: node.device for f in recorded for part in f.partition_graphs for node in part.node}
    assert all(ran[op].endswith(device) for op, device in options.get("pins", {}).items())
    assert int(count) == 1
    graph = placed.placement.graph
    assert {rounds.source for rounds in graph.rounds.values()} == {"seen"}
    assert {size.bound[0] for sizes in graph.sizes.values() for size in sizes if size and size.bound} >= {KEPT}
    np.testing.assert_allclose(placed(ROWS), want, rtol=1e-6)
    assert int(count) == 2


def test_the_first_call_learns_under_a_plan_where_the_default_placement_may_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.placed.learn._has_accelerator", lambda: True)
    machine = two_cpus()
    small = replace(machine, devices=tuple(replace(device, memory_bytes=32768) for device in machine.devices))

    def fn(x: Any) -> Any:
        rows = tf.tile(x, [6, 1])
        return tf.boolean_mask(rows, rows[:, 0] > 0.0)[:1]

    for devices in (machine, small):
        placed = placer.place(fn, devices=devices)
        np.testing.assert_allclose(placed(ROWS), fn(ROWS))
        graph = placed.placement.graph
        assert {size.source for sizes in graph.sizes.values() for size in sizes if size} == {"seen"}


def test_a_call_that_has_run_gives_its_results_although_no_plan_fits_what_it_had() -> None:
    def fn(x: Any) -> Any:
        while tf.reduce_sum(tf.abs(x)) < 1e6:
            tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None]))])
            x = tf.concat([x, x], 0)
        return x

    placed = placer.place(fn, devices=two_cpus(), memory_limits={"CPU:0": "64KiB", "CPU:1": "64KiB"})
    with pytest.warns(placer.PlacementWarning, match="no upper bound"):
        assert len(placed(tf.ones([4]))) == 2**20
    with pytest.raises(placer.InfeasibleError):
        placed(tf.ones([4]))


def test_random_numbers_go_on_as_they_do_plain() -> None:
    def noisy(x: Any) -> Any:
        return tf.boolean_mask(x, x[:, 0] > 0.0) + tf.random.uniform([], seed=3)

    tf.random.set_seed(1)
    plain = traceable(noisy)
    expected = [plain(ROWS) for _ in range(3)]
    tf.random.set_seed(1)
    placed = placer.place(noisy, devices=two_cpus())
    for want in expected:
        np.testing.assert_array_equal(placed(ROWS), want)


@settings(max_examples=max(12, settings().max_examples // 4))
@given(programs())
def test_learning_never_changes_what_a_random_program_does(source: Source) -> None:
    plain, program = source.build(), source.build()
    expected = behaviour(plain, traceable(plain.fn))
    placed = placer.place(program.fn, devices=DEVICES)
    failed = learnt(placed, program)
    compare("after learning", expected, behaviour(program, placed), program)
    assert failed == any(isinstance(result, Exception) for part, result in expected.items() if part == "call 0")


@settings(max_examples=max(12, settings().max_examples // 4))
@given(programs(), st.integers(0, 99))
def test_a_call_that_reports_and_runs_by_a_plan_does_what_the_function_does(source: Source, seed: int) -> None:
    plain, program = replace(source.build(), gradients=False), replace(source.build(), gradients=False)
    expected = behaviour(plain, traceable(plain.fn))
    try:
        traced = trace(traceable(program.fn), *program.args, **program.kwargs)
    except placer.TraceError:
        return
    plan = placer.solve(placer.build_graph(traced), DEVICES, solver=RandomLegal(seed))
    call = ReportingCall(traced, plan=CallPlan.of(plan))
    with soft_placement(False):
        compare("reporting", expected, behaviour(program, lambda *args, **kwargs: call.run(args, kwargs)[0]), program)


def learnt(placed: Any, program: Program) -> bool:
    """Whether learning raises what the function itself does."""
    try:
        assert isinstance(placed.learn(*program.args, **program.kwargs), Seen)
    except placer.PlanError:
        raise
    except Exception:
        return True
    return False


def test_a_pin_holds_in_the_first_call_of_a_function_with_open_sizes() -> None:
    fn = tf.function(lambda x: tf.reduce_sum(tf.tanh(tf.boolean_mask(x, x > 0.0))))
    placed = placer.place(fn, devices=two_cpus(), pins={"Tanh": "CPU:1"})
    with recorded_partitions() as recorded:
        placed(tf.constant([1.0, -1.0, 2.0]))
    ran = {node.device for f in recorded for graph in f.partition_graphs for node in graph.node if node.op == "Tanh"}
    assert ran
    assert all(device.endswith("CPU:1") for device in ran)
