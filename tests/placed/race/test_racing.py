"""Calls that race: each runs once, results are those of the plain function, and the fastest candidate is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.placed.race.calls import Watch
from placer.plan.verdict import DEFAULT, PLAN
from placer.problem.problem import Assignment
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.run import timing
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.range(12, dtype=tf.float32), [3, 4])


def by_plan(run: Any) -> bool:
    """Whether a function runs by a plan, and not as TensorFlow places it."""
    return isinstance(run, TapedFunction)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], float]], list[Any]]:
    """Gives calls made-up times: a function of what runs the call. Returns the list of what ran."""
    ran: list[Any] = []

    def use(seconds_of: Callable[[Any], float]) -> list[Any]:
        def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
            ran.append(run)
            return run(*args, **kwargs), seconds_of(run)

        monkeypatch.setattr(timing, "timed_call", timed)
        return ran

    return use


def two_devices(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x) + tf.sin(x) * 2.0


def split(problem: Any) -> Any:
    """Every second unit on the second device: a plan that is never the default."""
    device = np.where(problem.units.allowed[:, -1], np.arange(problem.num_units) % 2, 0)
    return Assignment(device)


def settled(step: placer.PlacedFunction, *args: Any) -> int:
    """Calls a function until its race is over; returns the number of calls."""
    for call in range(1, 60):
        step(*args)
        if step.placement.verdict is not None:
            return call
    raise AssertionError("the race does not end")


@pytest.mark.parametrize("winner", [DEFAULT, PLAN])
def test_the_fastest_is_kept_and_the_verdict_says_so(winner: str, clock: Any) -> None:
    clock(lambda run: 1e-3 if by_plan(run) == (winner == PLAN) else 2e-3)
    step = placer.place(two_devices, solver=split, race="force")
    assert settled(step, X) <= 40
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used == winner
    assert verdict.speedup == pytest.approx(2.0 if winner == PLAN else 1.0)
    assert step.placement.summary().splitlines()[0].startswith("two_devices: measured")
    ran = {device for name, device in step.observe(X).ran.items() if step.placement.graph.op(name).role == "op"}
    assert ran == ({"CPU:0", "CPU:1"} if winner == PLAN else {"CPU:0"})
    tf.debugging.assert_near(step(X), two_devices(X))
    assert placer.Placement.from_json(step.placement.to_json()).verdict == verdict


def test_each_call_runs_once_and_in_order(clock: Any) -> None:
    clock(lambda run: 1e-3)
    total, log = tf.Variable(0.0), []

    def add(x: tf.Tensor) -> tf.Tensor:
        tf.py_function(lambda value: log.append(float(value)), [x], [])
        return total.assign_add(x) * tf.tanh(x)

    step = placer.place(add, solver=split, race="force")
    for i in range(50):
        step(tf.constant(float(i)))
    assert log == [float(i) for i in range(50)]
    assert float(total) == sum(range(50))
    assert step.placement.verdict is not None


def test_a_candidate_that_fails_leaves_and_its_call_is_made_again(clock: Any) -> None:
    def seconds(run: Any) -> float:
        if by_plan(run):
            raise tf.errors.UnimplementedError(None, None, "no such kernel")
        return 1e-3

    clock(seconds)
    step = placer.place(two_devices, solver=split, race="force")
    settled(step, X)
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used == DEFAULT
    assert "no such kernel" in verdict.of(PLAN).outcome  # type: ignore[union-attr]


def test_a_failed_call_that_changed_something_is_not_made_again(clock: Any) -> None:
    total = tf.Variable(0.0)

    def add(x: tf.Tensor) -> tf.Tensor:
        return total.assign_add(tf.reduce_sum(tf.tanh(x)))

    def seconds(run: Any) -> float:
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")

    clock(seconds)
    step = placer.place(add, solver=split, race="force")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="no memory"):
        step(X)
    tf.debugging.assert_near(total, tf.reduce_sum(tf.tanh(X)))  # the call ran once


def test_an_error_of_the_function_itself_reaches_the_caller_and_drops_nothing(clock: Any) -> None:
    clock(lambda run: 1e-3)

    def checked(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="not positive")]):
            return tf.tanh(x)

    step = placer.place(checked, solver=split, race="force")
    for _ in range(10):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
            step(-X)
    settled(step, X + 1)
    assert all(not c.outcome.startswith("failed") for c in step.placement.verdict.candidates)  # type: ignore[union-attr]


def test_threads_race_together(clock: Any) -> None:
    clock(lambda run: 1e-3 if by_plan(run) else 2e-3)
    total = tf.Variable(0)

    def count(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(1)
        return tf.tanh(x)

    step = placer.place(count, solver=split, race="force")
    barrier = threading.Barrier(8)

    def calls(_: int) -> list[Any]:
        barrier.wait()
        return [step(X) for _ in range(12)]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(calls, range(8)):
            for result in results:
                tf.debugging.assert_near(result, tf.tanh(X))
    assert int(total) == 96
    assert step.placement.verdict is not None
    assert step.placement.verdict.used == PLAN


def test_calls_race_again_when_they_have_become_slower(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_s, now_s = [1e-3], [0.0]
    clock(lambda run: plan_s[0] if by_plan(run) else 2e-3)
    monkeypatch.setattr(Watch, "WATCH_EVERY", 2)
    monkeypatch.setattr("placer.placed.race.calls.monotonic", lambda: now_s[0])
    step = placer.place(two_devices, solver=split, race="force")
    settled(step, X)
    assert step.placement.verdict.used == PLAN  # type: ignore[union-attr]
    plan_s[0] = 10e-3
    for _ in range(2 * Watch.MAX_SLOW_CALLS):
        now_s[0] += Watch.MIN_SLOW_S
        step(X)
    settled(step, X)
    assert step.placement.verdict.used == DEFAULT  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["off", "seeded", "deterministic", "chosen solver"])
def test_what_may_not_race_runs_by_its_plan(kind: str, clock: Any) -> None:
    ran = clock(lambda run: 1e-3)

    def fn(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x) * (tf.random.uniform([], seed=3) if kind == "seeded" else 1.0)

    race = {"off": "off", "seeded": "force"}.get(kind, "auto")
    step = placer.place(fn, solver=split, race=race)
    if kind == "deterministic":
        tf.config.experimental.enable_op_determinism()
    try:
        for _ in range(5):
            step(X)
    finally:
        if kind == "deterministic":
            from tensorflow.python.framework.config import disable_op_determinism

            disable_op_determinism()
    assert not ran
    assert step.placement.verdict is None
    if kind == "seeded":
        assert any("do not race" in note for note in step.placement.notes)


def test_a_candidate_over_a_memory_limit_never_runs(clock: Any) -> None:
    ran = clock(lambda run: 1e-3)
    big = tf.ones([512, 512])
    step = placer.place(two_devices, race="force", memory_limits={"CPU:0": "1MiB"})
    for _ in range(5):
        step(big)
    assert not ran
    assert any("exceeds a memory limit" in note for note in step.placement.notes)


@pytest.mark.parametrize("winner", [DEFAULT, PLAN])
def test_a_call_under_a_tape_races_together_with_its_gradient(winner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tf.Variable(tf.ones([4, 4]))

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.tanh(x @ weights) + tf.sin(x))

    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        """Forward functions take as long as each other; the gradient decides."""
        results = run(*args, **kwargs)
        name = step.placement.solver
        return results, 1e-3 if isinstance(run, TapedFunction) or (name == "tf_default") == (winner == DEFAULT) else 5e-3

    monkeypatch.setattr(timing, "timed_call", timed)
    step = placer.place(loss, solver=split, race="force")
    with tf.GradientTape() as plain_tape:
        plain = loss(X)
    expected = plain_tape.gradient(plain, weights)
    for _ in range(45):
        with tf.GradientTape() as tape:
            result = step(X)
        tf.debugging.assert_near(tape.gradient(result, weights), expected)
        tf.debugging.assert_near(result, plain)
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used == winner
    assert step.placements["float32[3,4] (taped)"].verdict == verdict
    assert step.placements["float32[3,4]"].verdict is None  # no call without a tape was made


def test_calls_under_a_tape_whose_gradient_is_not_taken_do_not_race_for_ever(clock: Any) -> None:
    ran = clock(lambda run: 1e-3)
    step = placer.place(two_devices, solver=split, race="force")
    for _ in range(50):
        with tf.GradientTape() as tape:
            tape.watch(X)
            step(X)
    timed = len(ran)
    with tf.GradientTape() as tape:
        tape.watch(X)
        step(X)
    assert len(ran) == timed


@pytest.mark.parametrize(("rounds", "is_beyond_doubt"), [((4, 12), True), ((10, 5), False), ((12, 3), False)])
def test_without_a_race_a_plan_is_used_only_if_it_gains_beyond_doubt(rounds: tuple[int, int], is_beyond_doubt: bool) -> None:
    """Two chains of products, one on each device by the plan. A seeded draw keeps the function from racing."""
    weights = tf.constant(np.random.default_rng(0).standard_normal((512, 512)), tf.float32)

    def chains(x: tf.Tensor) -> tf.Tensor:
        results = []
        for k, products in enumerate(rounds):
            y = x
            for i in range(products):
                y = tf.matmul(y, weights, name=f"chain_{k}_{i}")
            results.append(y)
        return tf.add_n(results) * tf.random.uniform([], seed=3)

    def by_chain(problem: Any) -> Assignment:
        device = np.zeros(problem.num_units, np.int64)
        device[problem.ops.unit[[name.startswith("chain_1") for name in problem.ops.names]]] = 1
        return Assignment(device)

    x = tf.ones([512, 512])
    step = placer.place(chains, solver=by_chain, race="force", devices=two_cpus())
    step(x)
    devices = {plan.device for plan in step.placement.ops.values()}
    assert devices == ({"CPU:0", "CPU:1"} if is_beyond_doubt else {"CPU:0"})
    assert step.placement.verdict is None
    assert any("do not race" in note for note in step.placement.notes)
    ran = {device for name, device in step.observe(x).ran.items() if "chain" in name}
    assert ran == devices


@pytest.mark.parametrize("copy_s", [0.0, 5e-3])
def test_copies_of_results_to_where_they_are_needed_count(copy_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        results = run(*args, **kwargs)
        copies = timing.copied_to(places or (), results)
        assert all("CPU:0" in copy.backing_device for copy in copies)
        return results, (1e-3 if by_plan(run) else 2e-3) + copy_s * len(copies)

    def result_there(problem: Any) -> Any:
        return Assignment(np.where(problem.units.allowed[:, -1], 1, 0))

    monkeypatch.setattr(timing, "timed_call", timed)
    step = placer.place(two_devices, solver=result_there, race="force")
    settled(step, X)
    assert step.placement.verdict.used == (DEFAULT if copy_s else PLAN)  # type: ignore[union-attr]
    assert ("CPU:0" in step(X).backing_device) == bool(copy_s), "a call returns what its candidate gives"


def test_results_are_needed_in_host_memory_if_they_are_small_and_the_arguments_are_there() -> None:
    with tf.device("CPU:1"):
        there, large = tf.identity(X), tf.zeros([1 << 20])
    results = {"small": there, "large": large, "none": None}

    def needed(*args: Any) -> list[str]:
        return [place[-5:] for place in timing.needed_places(results, args, {})]

    assert needed(X, np.ones(3), 2) == ["CPU:1", "", "CPU:0"]  # in the order of their names: large, none, small
    assert needed(X, there) == ["CPU:1", "", "CPU:1"]


def test_results_are_copied_without_a_record_and_handles_are_not() -> None:
    with tf.device("CPU:1"):
        results = {
            "a": X + 1.0,
            "list": tf.raw_ops.EmptyTensorList(element_shape=[-1], max_num_elements=1, element_dtype=tf.float32),
        }
    there = timing.places_of(results)
    assert [place[-5:] for place in there] == ["CPU:1", ""]
    x = tf.Variable(X)
    with tf.GradientTape() as tape:
        here = {"a": x * 2.0, "list": results["list"], "none": None}
        (copy,) = timing.copied_to(there, here)
    assert copy.backing_device == there[0]
    assert tape.gradient(copy, x) is None


def test_the_cost_of_a_race_is_what_it_took_beyond_as_many_calls_of_the_winner(clock: Any) -> None:
    calls: dict[bool, int] = {True: 0, False: 0}
    spent: list[float] = []

    def seconds(run: Any) -> float:
        calls[by_plan(run)] += 1
        spent.append((100.0 if calls[by_plan(run)] == 1 else 10.0) * (1 if by_plan(run) else 3))
        return spent[-1]

    clock(seconds)
    step = placer.place(two_devices, solver=split, race="force")
    settled(step, X)
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used == PLAN
    assert verdict.calls == len(spent)
    assert verdict.cost_s == pytest.approx(sum(spent) - (100.0 + 10.0 * (len(spent) - 1)), abs=5.0)  # making takes real time
