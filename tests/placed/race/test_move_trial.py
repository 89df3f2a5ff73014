"""Variables that move unasked: where calls are measured to be faster with them moved, and where nothing else uses them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.placed.race import move_trial
from placer.placed.race.unasked_moves import Gate
from placer.plan.verdict import MOVED, PLAN
from placer.problem.problem import Assignment
from placer.tf.run import timing
from placer.tf.state import moving, temporary_moves
from tests.helpers.machines import two_cpus

HERE, THERE = "CPU:0", "CPU:1"
X = tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4])
CALLS = 100
"""More than a race and a trial take."""


def there(problem: Any) -> Any:
    """Everything on the last device: with the variables, if they may move."""
    return Assignment(np.array([np.flatnonzero(row)[-1] for row in problem.units.allowed]))


def made(value: Any, name: str = "w") -> tf.Variable:
    with tf.device(HERE):
        return tf.Variable(value, name=name)


def where(variable: Any) -> str:
    return f"CPU:{tf.DeviceSpec.from_string(variable.device).device_index}"


def place(fn: Callable[..., Any], **options: Any) -> placer.PlacedFunction:
    return placer.place(fn, **{"devices": two_cpus(), "solver": there, "race": "force", **options})


class Clock:
    """Gives calls made-up times, by where a variable is; notes where it was in timed calls."""

    def __init__(self) -> None:
        self.variable: Any = None
        self.faster = THERE
        self.fail: Callable[[], None] = lambda: None
        self.places: list[str] = []

    def timed_call(self, run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        self.places.append(where(self.variable))
        self.fail()
        results = run(*args, **kwargs)
        return results, 1e-3 if where(self.variable) == self.faster else 2e-3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made_up = Clock()
    monkeypatch.setattr(timing, "timed_call", made_up.timed_call)
    return made_up


@pytest.fixture
def w(clock: Clock) -> Iterator[tf.Variable]:
    clock.variable = made(tf.reshape(tf.range(16.0), [4, 4]) / 16)
    yield clock.variable
    clock.variable = None


def until_moved(step: placer.PlacedFunction, w: tf.Variable, *args: Any) -> None:
    """Calls a function until its variable has moved."""
    for _ in range(CALLS):
        step(*args)
        if where(w) == THERE:
            return
    raise AssertionError("the variable does not move")


@pytest.mark.parametrize("faster", [HERE, THERE])
def test_variables_stay_moved_only_if_calls_are_faster(
    faster: str, clock: Clock, w: tf.Variable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.faster = faster
    monkeypatch.setattr(move_trial, "perf_counter", itertools.count(step=50.0).__next__)
    count = made(0.0, "count")

    def fn(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ w) + count.assign_add(1.0)

    step = place(fn)
    for call in range(1, CALLS + 1):
        np.testing.assert_allclose(step(X), tf.tanh(X @ w) + float(call), rtol=1e-6)
    assert {HERE, THERE} <= set(clock.places)  # it was tried
    assert where(w) == where(count) == faster
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used.endswith(MOVED) == (faster == THERE)
    assert PLAN + MOVED in [candidate.name for candidate in verdict.candidates]
    seconds_of = {THERE: 100.0, HERE: 150.0}  # of the planning and of one or two moves, by that clock
    assert verdict.cost_s == pytest.approx(seconds_of[faster], abs=10.0)
    assert placer.Placement.from_json(step.placement.to_json()).verdict == verdict
    assert not step.observe(X).mismatches
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(step(X))
    with tf.GradientTape() as plain_tape:
        plain = tf.reduce_sum(tf.tanh(X @ w))
    np.testing.assert_allclose(tape.gradient(total, w), plain_tape.gradient(plain, w), rtol=1e-5)
    path = tf.train.Checkpoint(w=w, count=count).write(str(tmp_path / "state"))
    value = w.numpy()
    w.assign(tf.zeros_like(w))
    tf.train.Checkpoint(w=w, count=count).read(path)
    np.testing.assert_array_equal(w, value)
    assert float(step(X)[0, 0] - tf.tanh(X @ w)[0, 0]) == CALLS + 3


def test_a_few_calls_plan_no_trial(clock: Clock, w: tf.Variable) -> None:
    solved: list[Any] = []

    def solver(problem: Any) -> Any:
        solved.append(problem)
        return there(problem)

    step = place(lambda x: x @ w, solver=solver, race="auto")
    for _ in range(5):
        step(X)
    assert len(solved) == 1


def test_a_keras_step_trains_as_plain(clock: Clock) -> None:
    """The slots of its optimizer move, too."""

    def trainer() -> tuple[Callable[..., Any], Any, Any]:
        keras.utils.set_random_seed(3)
        with tf.device(HERE):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
            optimizer = keras.optimizers.Adam(0.01)
            optimizer.build(model.trainable_variables)

        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
            return loss

        return step, model, optimizer

    (plain, *_), (fn, model, optimizer) = trainer(), trainer()
    clock.variable = model.layers[0].kernel.value
    reference, step, y = tf.function(plain), place(fn), tf.reduce_sum(X, axis=1, keepdims=True)
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X, y), reference(X, y), rtol=1e-4, atol=1e-6)
    slots = [variable.value for variable in optimizer.variables if variable.shape == (4, 8)]
    assert {where(variable) for variable in [clock.variable, *slots]} == {THERE}
    np.testing.assert_allclose(model.predict(X, verbose=0), model(X), rtol=1e-4)
    assert {where(variable) for variable in [clock.variable, *slots]} == {HERE}  # `predict` was traced with them
    for _ in range(3):
        np.testing.assert_allclose(step(X, y), reference(X, y), rtol=1e-4, atol=1e-6)


def a_function(step: Any, w: tf.Variable) -> Any:
    other = tf.function(lambda x: x @ w)
    other(X)
    return other


def a_placed_function(step: Any, w: tf.Variable) -> Any:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return x @ w

    other = placer.place(predict, devices=two_cpus())
    other(X)
    return other


def a_tape(step: Any, w: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        _ = w * 2.0
    return tape


def a_dataset(step: Any, w: tf.Variable) -> Any:
    return tf.data.Dataset.range(3).map(lambda i: tf.cast(i, tf.float32) * w)


def another_signature(step: Any, w: tf.Variable) -> Any:
    return step(tf.concat([X, X], axis=0))


def an_export(step: Any, w: tf.Variable) -> Any:
    return step.get_concrete_function(X)


def a_taped_call(step: Any, w: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        total = tf.reduce_sum(step(X))
    return tape.gradient(total, X)


HOLDERS = {
    a_function: "'<lambda>' holds them",
    a_placed_function: "'predict' holds them",
    a_tape: "a GradientTape that watches it holds them",
    a_dataset: "a dataset that was made with it holds them",
    another_signature: "with other arguments",
    an_export: "",
    a_taped_call: "calls under a tape use them",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_variables_that_something_else_uses_stay(holder: Any, clock: Clock, w: tf.Variable) -> None:
    def fn(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ w)

    step = place(fn)
    step(X)
    kept = holder(step, w)
    for _ in range(CALLS):
        step(X)
    assert kept is not None
    assert set(clock.places) == {HERE}
    notes = [note for note in step.placement.notes if note.startswith("With the variables moved, a step is predicted to take")]
    assert all(HOLDERS[holder] in note and note.endswith('Way out: variables="move".') for note in notes)
    assert len(notes) == bool(HOLDERS[holder])  # no trial is planned for a function that has other users from the start


def test_inner_functions_of_the_function_itself_do_not_hinder(clock: Clock, w: tf.Variable) -> None:
    inner = tf.function(lambda x: x @ w)

    def fn(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, tf.tanh(inner(x))), (0, x))[1]

    step = place(fn)
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X), fn(X), rtol=1e-5)
    assert where(w) == THERE


@pytest.mark.parametrize("options", [{"variables": "fixed"}, {"pins": {"w": HERE}}, {"race": "auto"}])
def test_variables_stay_where_the_options_say_so(options: dict[str, Any], clock: Clock, w: tf.Variable) -> None:
    step = place(lambda x: tf.tanh(x @ w), **options)
    for _ in range(CALLS):
        step(X)
    assert THERE not in clock.places


def test_threads_call_during_a_trial(clock: Clock, w: tf.Variable) -> None:
    count = made(0)

    def fn(x: tf.Tensor) -> tf.Tensor:
        count.assign_add(1)
        return tf.tanh(x @ w)

    step, expected = place(fn), tf.tanh(X @ w)
    barrier = threading.Barrier(8)

    def calls(_: int) -> list[Any]:
        barrier.wait()
        return [step(X) for _ in range(CALLS // 4)]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(calls, range(8)):
            for result in results:
                np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert int(count) == 8 * (CALLS // 4)
    for _ in range(CALLS):  # alone, it comes to an end
        np.testing.assert_allclose(step(X), expected, rtol=1e-6)
    assert int(count) == 8 * (CALLS // 4) + CALLS
    assert step.signatures.unasked.trial is None


@pytest.mark.parametrize("changes", [False, True])
def test_a_call_that_fails_with_variables_moved_ends_the_trial(changes: bool, clock: Clock, w: tf.Variable) -> None:
    count = made(0.0)

    def fn(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ w) + (count.assign_add(1.0) if changes else count)

    def fail() -> None:
        if where(w) == THERE:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    clock.fail = fail
    step, failures = place(fn), 0
    for _ in range(CALLS):
        try:
            step(X)
        except tf.errors.ResourceExhaustedError:
            failures += 1
    assert failures == (1 if changes else 0)  # a call that may have changed something is not made again
    assert float(count) == (CALLS - 1 if changes else 0)
    assert where(w) == where(count) == HERE
    verdict = step.placement.verdict
    assert verdict is not None
    assert "no memory" in verdict.of(PLAN + MOVED).outcome  # type: ignore[union-attr]
    assert not step.observe(X).mismatches


def observing(step: placer.PlacedFunction, w: tf.Variable) -> None:
    assert not step.observe(X).mismatches


def taping(step: placer.PlacedFunction, w: tf.Variable) -> None:
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(step(X))
    np.testing.assert_allclose(tape.gradient(total, w), tf.matmul(X, 1 - tf.tanh(X @ w) ** 2, transpose_a=True), rtol=1e-4)


def tracing(step: placer.PlacedFunction, w: tf.Variable) -> None:
    outer = tf.function(lambda x: step(x) * 2.0)
    for _ in range(2):
        np.testing.assert_allclose(outer(X), 2.0 * tf.tanh(X @ w), rtol=1e-6)


def learning(step: placer.PlacedFunction, w: tf.Variable) -> None:
    step.learn(X)


def calling_with_others(step: placer.PlacedFunction, w: tf.Variable) -> None:
    np.testing.assert_allclose(step(X[:2]), tf.tanh(X[:2] @ w), rtol=1e-6)


@pytest.mark.parametrize("use", [observing, taping, tracing, learning, calling_with_others])
def test_another_use_during_a_trial_ends_it(use: Any, clock: Clock, w: tf.Variable) -> None:
    step = place(lambda x: tf.tanh(x @ w))
    until_moved(step, w, X)
    use(step, w)
    assert where(w) == HERE
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X), tf.tanh(X @ w), rtol=1e-6)
    use(step, w)


def plainly(w: tf.Variable) -> Any:
    return tf.function(lambda x: tf.tanh(x @ w))


def compiled(w: tf.Variable) -> Any:
    return tf.function(lambda x: tf.tanh(x @ w), jit_compile=True)


def assigning(w: tf.Variable) -> Any:
    return tf.function(lambda x: tf.tanh(x @ w.assign(w)))


def placed(w: tf.Variable) -> Any:
    return placer.place(lambda x: tf.tanh(x @ w), devices=two_cpus(), variables="fixed")


def with_a_placed_call(w: tf.Variable) -> Any:
    return tf.function(step_of[w.ref()], jit_compile=True)


step_of: dict[Any, placer.PlacedFunction] = {}


@pytest.mark.parametrize("settled", [False, True], ids=["during a trial", "after it"])
@pytest.mark.parametrize("other", [plainly, compiled, assigning, placed, with_a_placed_call])
def test_variables_go_back_when_another_function_is_traced(other: Any, settled: bool, clock: Clock, w: tf.Variable) -> None:
    """XLA does not take variables on several devices, and other functions could be slower."""
    with tf.GradientTape() as tape, tape.stop_recording():
        step = place(lambda x: tf.tanh(x @ w))
        step_of[w.ref()] = step
        if settled:
            for _ in range(CALLS):
                step(X)
        else:
            until_moved(step, w, X)
    assert where(w) == THERE
    expected, function = tf.tanh(X @ w), other(w)
    with tf.device(HERE), tf.GradientTape() as tape:
        result = function(X)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert tape.gradient(result, w) is not None
    assert where(w) == HERE
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X), expected, rtol=1e-6)
    assert where(w) == HERE
    assert type(w) is type(made(0.0))
    assert not step.observe(X).mismatches


def test_variables_that_cannot_be_moved_back_stay(clock: Clock, w: tf.Variable) -> None:
    clock.faster = HERE
    step = place(lambda x: tf.tanh(x @ w))
    until_moved(step, w, X)
    kept = [w.handle]
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X), tf.tanh(X @ w), rtol=1e-6)
    assert kept
    verdict = step.placement.verdict
    assert verdict is not None
    assert where(w) == THERE
    assert verdict.used == PLAN + MOVED
    assert "cannot be moved back" in verdict.end
    assert not step.observe(X).mismatches


def test_a_move_that_fails_half_way_is_undone(clock: Clock, w: tf.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    v, new_handle = made(tf.ones([4, 4]), "v"), moving.new_handle
    monkeypatch.setattr(temporary_moves, "MAX_BYTES", 1000)

    def handle(variable: tf.Variable, device: str) -> Any:
        if variable is v:
            raise tf.errors.ResourceExhaustedError(None, None, "there is no room for a copy")
        return new_handle(variable, device)

    monkeypatch.setattr(moving, "new_handle", handle)
    step = place(lambda x: tf.tanh(x @ w) @ v)
    for _ in range(CALLS):
        np.testing.assert_allclose(step(X), tf.tanh(X @ w) @ v, rtol=1e-6)
    assert where(w) == where(v) == HERE
    assert any("no room" in note for note in step.placement.notes)


def test_large_variables_stay(clock: Clock, w: tf.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_moves, "MAX_BYTES", 10)
    step = place(lambda x: tf.tanh(x @ w))
    for _ in range(CALLS):
        step(X)
    assert set(clock.places) == {HERE}
    assert any("moved by default" in note for note in step.placement.notes)


@pytest.mark.parametrize("size", [8, 2048])
def test_without_a_race_variables_move_if_the_prediction_leaves_no_doubt(size: int, w: tf.Variable) -> None:
    x = tf.zeros([size, size])

    def step(total: tf.Variable) -> placer.PlacedFunction:
        def fn(x: tf.Tensor) -> tf.Tensor:
            for _ in range(4):
                x = tf.tanh(x)
            return tf.reduce_max(total.assign_add(x))

        return placer.place(fn, devices=two_cpus(), race="off")

    free, held = made(tf.ones([size, size])), made(tf.ones([size, size]))
    reader = tf.function(lambda: tf.reduce_max(held))
    assert float(reader()) == 1.0
    for total in (free, held):
        placed = step(total)
        assert [float(placed(x)) for _ in range(3)] == [1.0] * 3
        assert where(total) == (THERE if total is free and size == 2048 else HERE)
        assert not placed.observe(x).mismatches
        assert any("holds them" in note for note in placed.placement.notes) == (total is held and size == 2048)


def test_a_gate_lets_one_thread_be_alone() -> None:
    gate, inside, go = Gate(), threading.Event(), threading.Event()

    def call() -> None:
        with gate:
            inside.set()
            go.wait()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(call)
        inside.wait()
        with gate:
            with gate.alone(0.01) as is_alone:
                assert not is_alone
            go.set()
            first.result()
            with gate.alone(10.0) as is_alone:
                assert is_alone
                second = pool.submit(call)
                while not gate.waiting:
                    pass
                with gate, gate.alone(0.01) as again:  # a call inside of a call does not wait, and cannot be alone
                    assert not again
                assert not second.done()
        second.result()


@pytest.mark.parametrize("held", [False, True])
def test_a_remembered_plan_moves_variables_at_the_first_call(
    held: bool, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))

    def start() -> tuple[placer.PlacedFunction, tf.Variable]:
        w = clock.variable = made(tf.ones([4, 4]))
        return place(lambda x: tf.tanh(x @ w)), w

    first, w = start()
    for _ in range(CALLS):
        first(X)
    assert where(w) == THERE
    second, v = start()
    kept = a_function(second, v) if held else None
    timed = len(clock.places)
    for _ in range(3):
        np.testing.assert_allclose(second(X), tf.tanh(X @ v), rtol=1e-6)
    assert where(v) == (HERE if held else THERE)
    assert (len(clock.places) > timed) == held  # it is planned again, so its calls race
    assert (kept is not None) == held
    assert not second.observe(X).mismatches
    after = tf.function(lambda x: x @ v, jit_compile=True)
    with tf.device(HERE):
        np.testing.assert_allclose(after(X), X @ v, rtol=1e-6)
    np.testing.assert_allclose(second(X), tf.tanh(X @ v), rtol=1e-6)
    assert where(v) == HERE
