"""Errors and interrupts in every phase of a race: no call runs twice, and the race goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import placer
from placer.errors import OutOfMemoryError, RewriteError
from placer.placed.race.calls import Race
from placer.placed.signatures import Signatures
from placer.plan.verdict import DEFAULT, PLAN
from placer.tf.rewrite.taping import TapedFunction
from placer.tf.run import timing
from tests.helpers.harness import RandomLegal
from tests.helpers.racing import random_races

X = tf.reshape(tf.range(12, dtype=tf.float32), [3, 4])
ERRORS = [RuntimeError("refused"), RewriteError("refused"), tf.errors.ResourceExhaustedError(None, None, "no memory")]


class ExplainedError(OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]
    """What a call by plan raises that runs out of memory."""

    def __init__(self) -> None:
        super().__init__(None, None, "no memory")


def counting(total: tf.Variable) -> Callable[[tf.Tensor], tf.Tensor]:
    def count(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(1.0)
        return tf.tanh(x) + tf.sin(x)

    return count


def plain(x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(x) + tf.sin(x)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("seed", range(4))
def test_a_candidate_that_cannot_be_made_leaves_and_every_call_runs_once(
    error: Exception, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = tf.Variable(0.0)
    step = placer.place(counting(total), solver=RandomLegal(seed), race="force")
    with random_races(seed):
        step.prepare(X)

        def refuse(*_: Any) -> Any:
            raise error

        monkeypatch.setattr(Signatures, "rewritten", refuse)
        for _ in range(9):
            tf.debugging.assert_near(step(X), plain(X))
    assert float(total) == 9
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used in (DEFAULT, PLAN)


@pytest.mark.parametrize("error", [*ERRORS, ExplainedError()], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("phase", ["before it runs", "after it ran"])
@pytest.mark.parametrize("changes", [False, True])
def test_a_failed_call_runs_again_only_if_it_changes_nothing(
    error: Exception, phase: str, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = tf.Variable(0.0)

    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        fails = isinstance(run, TapedFunction)
        if not fails or phase == "after it ran":
            results = run(*args, **kwargs)
        if fails:
            raise error
        return results, 1e-3

    monkeypatch.setattr(timing, "timed_call", timed)
    step = placer.place(counting(total) if changes else plain, solver=RandomLegal(0), race="force")
    failed = 0
    for _ in range(9):
        try:
            tf.debugging.assert_near(step(X), plain(X))
        except type(error):
            failed += 1
    verdict = step.placement.verdict
    assert verdict is not None
    assert verdict.used == DEFAULT
    if changes:
        assert failed <= 3, "a candidate that never ran leaves soon"
        assert float(total) == 9 - (failed if phase == "before it runs" else 0)
    else:
        assert not failed


@pytest.mark.parametrize(
    ("owner", "name"), [(Signatures, "rewritten"), (timing, "timed_call"), (Race, "_verdict"), (Signatures, "settle")]
)
def test_an_interrupt_at_any_moment_ends_no_race(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, times = getattr(owner, name), [0]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        times[0] += 1
        if times[0] == 1:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    step = placer.place(plain, solver=RandomLegal(1), race="force")
    interrupts = 0
    with random_races(1):
        step.prepare(X)
        monkeypatch.setattr(owner, name, interrupted)
        for _ in range(9):
            try:
                tf.debugging.assert_near(step(X), plain(X))
            except KeyboardInterrupt:
                interrupts += 1
    assert interrupts == 1
    assert step.placement.verdict is not None


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_candidate_whose_gradient_fails_leaves(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tf.Variable(tf.ones([4, 4]))

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.tanh(x @ weights))

    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        if not isinstance(run, TapedFunction) and step.placement.solver != "tf_default":
            raise error
        return run(*args, **kwargs), 1e-3

    monkeypatch.setattr(timing, "timed_call", timed)
    step = placer.place(loss, solver=RandomLegal(2), race="force")
    failed = 0
    for _ in range(30):
        with tf.GradientTape() as tape:
            result = step(X)
        try:
            gradient = tape.gradient(result, weights)
        except type(error):
            failed += 1
            continue
        tf.debugging.assert_near(gradient, tf.transpose(X) @ (1 - tf.tanh(X @ weights) ** 2))
    assert failed <= 6
    assert step.placement.verdict is not None
    assert step.placement.verdict.used == DEFAULT


def test_a_call_for_which_the_default_has_no_memory_runs_by_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(run: Any, args: Any, kwargs: Any, places: Any = None) -> tuple[Any, float]:
        if not isinstance(run, TapedFunction):
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        return run(*args, **kwargs), 1e-3

    monkeypatch.setattr(timing, "timed_call", timed)
    step = placer.place(plain, solver=RandomLegal(0), race="force")
    for _ in range(9):
        tf.debugging.assert_near(step(X), plain(X))
    verdict = step.placement.verdict
    assert verdict is not None
    assert "no memory" in verdict.of(DEFAULT).outcome  # type: ignore[union-attr]
