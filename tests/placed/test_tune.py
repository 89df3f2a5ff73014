"""Tuning: the fastest candidate by the clock is used, results and state are the plain function's, and refusals say why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.command.main import main
from placer.placed.tuned import Tuned
from placer.plan.verdict import DEFAULT, PLAN
from placer.problem.problem import Assignment
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.run import outcomes, timing
from placer.tf.run.compiling import CompiledFunction

X = tf.reshape(tf.range(12, dtype=tf.float32), [3, 4]) / 12
weights = tf.Variable(np.ones((4, 4), np.float32))


@pytest.fixture(autouse=True)
def _reset() -> None:
    weights.assign(np.ones((4, 4), np.float32))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], float]], None]:
    """Gives calls made-up times: a function of what runs the call. Nothing else takes time of a budget."""

    def use(seconds_of: Callable[[Any], float]) -> None:
        now_s = 0.0

        def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
            nonlocal now_s
            seconds = seconds_of(run)
            now_s += seconds
            return run(*args, **kwargs), seconds

        monkeypatch.setattr(timing, "timed_call", timed)
        monkeypatch.setattr("placer.placed.tune.monotonic", lambda: now_s)

    return use


def compiled_is_fastest(run: Any) -> float:
    return 0.01 if isinstance(run, CompiledFunction) else 0.02


def placed_is_fastest(run: Any) -> float:
    return 0.01 if isinstance(run, TapedFunction) else 0.02


def default_is_fastest(run: Any) -> float:
    return 0.02 if isinstance(run, TapedFunction | CompiledFunction) else 0.01


def split(problem: Any) -> Any:
    """Every second unit on the second device: a plan that is never the default."""
    device = np.where(problem.units.allowed[:, -1], np.arange(problem.num_units) % 2, 0)
    return Assignment(device)


def train(x: Any) -> Any:
    y = tf.tanh(x @ weights)
    weights.assign_sub(0.1 * tf.matmul(x, y, transpose_a=True))
    return {"sum": tf.reduce_sum(y), "y": y}


def tuned(fn: Any, *args: Any, budget_s: float = 10.0, **options: Any) -> tuple[placer.PlacedFunction, Tuned]:
    step = placer.place(fn, **{"solver": split, **options})
    return step, step.tune(*args, budget_s=budget_s)


def test_a_compiled_winner_runs_eager_calls_and_the_placement_runs_all_others(clock: Any) -> None:
    clock(compiled_is_fastest)
    step, report = tuned(train, X)
    assert report.verdict.used == step.placement.verdict.used == "compiled on CPU:0"  # type: ignore[union-attr]
    assert weights.numpy().tolist() == [[1.0] * 4] * 4, "variables are put back"

    def three_calls(fn: Any) -> list[Any]:
        weights.assign(np.ones((4, 4), np.float32))
        eager = fn(X)
        with tf.GradientTape() as tape:
            tape.watch(X)
            total = fn(X)["sum"]
        inside = tf.function(lambda x: fn(x)["y"])(X)
        return [eager["sum"], eager["y"], total, tape.gradient(total, X), inside, weights.read_value()]

    for found, wanted in zip(three_calls(step), three_calls(tf.function(train)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert not step.observe(X).mismatches


def test_a_saved_verdict_compiles_again(clock: Any, tmp_path: Any) -> None:
    clock(compiled_is_fastest)
    step, _ = tuned(train, X)
    step.placement.save(tmp_path / "plan.json")
    again = placer.apply(train, placer.Placement.load(tmp_path / "plan.json"))
    weights.assign(np.ones((4, 4), np.float32))
    found = again(X)
    weights.assign(np.ones((4, 4), np.float32))
    np.testing.assert_allclose(found["y"], tf.function(train)(X)["y"], rtol=1e-5)
    assert again.placement.verdict == step.placement.verdict


@pytest.mark.parametrize(("seconds_of", "used"), [(placed_is_fastest, PLAN), (default_is_fastest, DEFAULT)])
def test_the_fastest_placement_is_used(clock: Any, seconds_of: Any, used: str) -> None:
    clock(seconds_of)
    step, report = tuned(train, X, devices=None)
    assert report.verdict.used == used
    assert step.placement.verdict == report.verdict
    assert step.placement.step_time_ns == report.verdict.of(used).predicted_ns  # type: ignore[union-attr]
    found = step(X)
    weights.assign(np.ones((4, 4), np.float32))
    np.testing.assert_allclose(found["y"], tf.function(train)(X)["y"], rtol=1e-5)
    printed = str(report)
    assert all(candidate.name in printed for candidate in report.verdict.candidates)
    assert json.loads(json.dumps(report.to_json()))["verdict"]["used"] == used


def test_a_budget_that_is_too_short_still_times_default_and_plan(clock: Any) -> None:
    clock(compiled_is_fastest)
    _, report = tuned(train, X, budget_s=1e-6)
    assert all(report.verdict.of(name).median_ns for name in (DEFAULT, PLAN))  # type: ignore[union-attr]
    assert any("budget" in note for note in report.notes)


def test_compiling_can_be_turned_off_and_disagreeing_results_are_noted(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock(compiled_is_fastest)
    step = placer.place(lambda x: tf.tanh(tf.sin(x) * 1.1), solver=split)
    assert not step.tune(X, budget_s=5, compile="off").verdict.compiled_for
    monkeypatch.setitem(outcomes.TOLERANCES, "float32", 0.0)
    report = step.tune(X, budget_s=5)
    assert not report.verdict.compiled_for
    assert "would not agree" in str(report)


def test_checks_that_compiling_leaves_out_are_noted(clock: Any) -> None:
    clock(compiled_is_fastest)

    def checked(x: Any) -> Any:
        tf.debugging.assert_non_negative(x, name="sign")
        return tf.sqrt(x)

    _, report = tuned(checked, X)
    assert report.verdict.compiled_for == "CPU:0"
    assert "does not make the checks 'sign" in str(report)


@pytest.mark.parametrize("kind", ["compiled", "placement"])
def test_a_second_tuning_keeps_what_calls_run_unless_it_finds_something_faster(clock: Any, kind: str) -> None:
    step_of_split = 3

    def split_differently(problem: Any) -> Any:
        there = np.arange(problem.num_units) % step_of_split == 0
        return Assignment(np.where(problem.units.allowed[:, -1], there, 0))

    def ops_there(run: Any) -> int:
        return sum("CPU:1" in op.device for op in run.graph.get_operations()) if isinstance(run, TapedFunction) else 0

    fastest = 0
    clock(lambda run: compiled_is_fastest(run) if kind == "compiled" else 0.01 if ops_there(run) == fastest else 0.02)
    step = placer.place(lambda x: tf.tanh(tf.sin(x * 1.1) * 1.1), solver=split_differently, race="off", variables="fixed")
    fastest = ops_there(step.prepare(X).run)
    assert fastest
    compiling: Any = "try" if kind == "compiled" else "off"
    first = step.tune(X, budget_s=10, compile=compiling).verdict
    assert first.used == ("compiled on CPU:0" if kind == "compiled" else PLAN)
    used = step.placement.ops
    step_of_split = 2
    second = step.tune(X, budget_s=1e-6, compile=compiling).verdict
    assert second.compiled_for == first.compiled_for
    if kind == "placement":
        assert {name: op.device for name, op in step.placement.ops.items()} == {name: op.device for name, op in used.items()}
    assert second.used == first.used + ("" if kind == "compiled" else ", used before")
    assert "tuned in" in step.placement.summary()


def test_a_keyword_that_tune_does_not_have_is_named() -> None:
    with pytest.raises(
        placer.OptionError, match=r"'budget' is no parameter of .* did you mean budget_s\?.*compile, side_effects"
    ):
        placer.place(train).tune(X, budget=3.0)


# -- variables in other places -----------------------------------------------------------------------------------------


def test_variables_are_where_the_used_candidate_needs_them(clock: Any) -> None:
    with tf.device("CPU:1"):
        state = tf.Variable([1.0, 2.0], name="state")
    reads = tf.function(lambda: state + 0.0)
    reads()

    def fn(x: Any) -> Any:
        return state.assign_add(x * tf.sin(state))

    args = (tf.constant([1.0, 1.0]),)
    clock(lambda run: 0.01 if state.device.endswith("CPU:0") and isinstance(run, CompiledFunction) else 0.02)
    step, report = tuned(fn, *args, solver="auto", variables="move", pins={"Sin": "CPU:1"})
    assert report.verdict.used == "compiled on CPU:0, variables moved", str(report)
    assert "variables have other places now: 'state' on CPU:0" in str(report)
    assert state.device.endswith("CPU:0")
    assert state.numpy().tolist() == [1.0, 2.0]
    np.testing.assert_allclose(step(*args), [1 + np.sin(1.0), 2 + np.sin(2.0)], rtol=1e-6)
    np.testing.assert_allclose(reads(), state, err_msg="functions that were traced before see what it writes")


def test_a_candidate_runs_only_with_variables_where_it_needs_them(
    clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))  # ops are measured, so the function is planned again
    with tf.device("CPU:1"):
        state = tf.Variable([1.0, 2.0])
    plans = 0

    def other_each_time(problem: Any) -> Any:
        nonlocal plans
        plans += 1
        there = np.arange(problem.num_units) % (2 + plans) == 0
        return Assignment(np.where(problem.units.allowed[:, -1] & (there | ~problem.units.allowed[:, 0]), 1, 0))

    clock(lambda run: 0.01 if state.device.endswith("CPU:0") and isinstance(run, CompiledFunction) else 0.02)
    _, report = tuned(
        lambda x: tf.tanh(tf.sin(x * 1.1) * state) + 1.0, tf.constant([1.0, 1.0]), solver=other_each_time, variables="move"
    )
    assert any("after" in candidate.name for candidate in report.verdict.candidates), str(report)
    assert report.verdict.used == "compiled on CPU:0, variables moved", str(report)


def test_variables_go_back_if_the_used_candidate_needs_them_where_they_were(clock: Any) -> None:
    with tf.device("CPU:1"):
        state = tf.Variable([1.0, 2.0])
    clock(lambda run: 0.01 if state.device.endswith("CPU:1") else 0.02)
    step = placer.place(lambda x: x * state, variables="move")
    report = step.tune(tf.constant([1.0, 1.0]), budget_s=5)
    assert state.device.endswith("CPU:1"), str(report)
    assert step(tf.constant([1.0, 1.0])).numpy().tolist() == [1.0, 2.0]


def test_variables_that_something_else_holds_stay_and_the_candidate_says_why(clock: Any) -> None:
    with tf.device("CPU:1"):
        state = tf.Variable([1.0, 2.0])
    held = tf.data.Dataset.range(3).map(lambda k: tf.cast(k, tf.float32) + state)
    clock(lambda run: 0.01 if state.device.endswith("CPU:0") else 0.02)
    step = placer.place(lambda x: x * tf.sin(state), variables="move", pins={"Sin": "CPU:1"})
    report = step.tune(tf.constant([1.0, 1.0]), budget_s=5)
    assert state.device.endswith("CPU:1")
    assert "cannot be moved" in str(report)
    assert held


# -- state -------------------------------------------------------------------------------------------------------------


def test_random_states_that_belong_to_copies_begin_anew(clock: Any) -> None:
    clock(placed_is_fastest)

    def draws() -> Any:
        return tf.random.uniform([4], seed=5)

    tf.random.set_seed(1)
    wanted = tf.function(draws)
    expected = [wanted().numpy().tolist() for _ in range(2)]
    tf.random.set_seed(1)
    step, report = tuned(draws)
    assert "other random numbers" in str(report)
    assert [step().numpy().tolist() for _ in range(2)] == expected


def test_sizes_are_learnt_first(clock: Any) -> None:
    clock(placed_is_fastest)
    step, report = tuned(lambda x: tf.boolean_mask(x, x > 0.45), X)
    assert "sizes and rounds of one call" in report.learnt
    assert step(X).numpy().tolist() == X.numpy()[X > 0.45].tolist()


iterator = iter(tf.data.Dataset.range(100))
counts = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)
queue = tf.queue.FIFOQueue(100, [tf.float32])


@pytest.mark.parametrize(
    ("op", "fn"),
    [
        ("EagerPyFunc", lambda x: tf.py_function(lambda a: a, [x], tf.float32)),
        ("PrintV2", lambda x: (tf.print(x), x)[1]),
        ("WriteFile", lambda x: (tf.io.write_file("/dev/null", tf.strings.as_string(x)), x)[1]),
        ("IteratorGetNext", lambda x: x + tf.cast(next(iterator), tf.float32)),
        ("LookupTableInsertV2", lambda x: (counts.insert(tf.cast(x, tf.int64), tf.cast(x, tf.int64)), x)[1]),
        ("QueueEnqueueV2", lambda x: (queue.enqueue(x), x)[1]),
    ],
)
def test_effects_that_cannot_be_put_back_are_refused_by_name(op: str, fn: Any) -> None:
    with pytest.raises(placer.OptionError, match=rf"\({op}\).*allow"):
        placer.place(tf.function(fn, autograph=False)).tune(tf.constant(1.0), budget_s=1)


def test_effects_can_be_allowed(clock: Any) -> None:
    clock(default_is_fastest)
    step = placer.place(lambda x: tf.py_function(lambda a: a + 1, [x], tf.float32))
    assert step.tune(tf.constant(1.0), budget_s=1, side_effects="allow").verdict.used
    assert step(tf.constant(1.0)).numpy() == 2.0


@pytest.mark.parametrize("wrong", [{"budget_s": 0}, {"compile": "yes"}, {"side_effects": "maybe"}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(placer.OptionError, match=next(iter(wrong))):
        placer.place(train).tune(X, **wrong)


def test_tuning_is_not_a_part_of_a_function_or_a_tape() -> None:
    step = placer.place(train)
    with tf.GradientTape(), pytest.raises(placer.PlanError, match="outside of functions, tapes"):
        step.tune(X)
    with pytest.raises(placer.PlanError, match="outside of functions, tapes"):
        tf.function(step.tune, autograph=False)(X)


def test_a_function_that_fails_or_is_left_alone_is_not_tuned() -> None:
    refuses = placer.place(tf.function(lambda x: tf.debugging.check_numerics(x, "x")))
    with pytest.raises(placer.PlacerError, match=r"cannot be run: failed: .*"):
        refuses.tune(tf.constant(float("nan")), budget_s=0.5)
    with pytest.warns(placer.PlacementWarning), pytest.raises(placer.PlanError, match="left as it is"):
        placer.place(tf.function(lambda x: x + 1, jit_compile=True)).tune(X)
    with pytest.raises(placer.PlanError, match="plans that were given"):
        placer.apply(train, placer.place(train).plan(X)).tune(X)


def test_the_command_tunes_with_ordinary_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    target = ["tune", f"{__name__}:train", "--budget-s", "0.5"]
    assert main([*target, "--signature", "float32[3,4]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["used"] in [candidate["name"] for candidate in found["verdict"]["candidates"]]
    assert main([*target, "--signature", "float32[3,4]", "--compile", "off"]) == 0
    assert "candidate" in capsys.readouterr().out
    assert main([*target, "--signature", "float32[3,?]"]) == 2
    assert main([*target, "--compile", "yes"]) == 2
