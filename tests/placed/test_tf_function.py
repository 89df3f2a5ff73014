"""A placed function is a tf.function: it has the type and the attributes of one, and traces as one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus

ANY = tf.TensorSpec([None], tf.float32)
X = tf.constant([1.0, 2.0, 3.0])


def scaled(x: Any, by: int = 2) -> Any:
    return tf.tanh(x) * by


@pytest.mark.parametrize(
    "options", [{}, {"input_signature": [ANY]}, {"reduce_retracing": True}, {"autograph": False}], ids="-".join
)
def test_its_attributes_are_those_of_the_plain_function(options: dict[str, Any]) -> None:
    plain = tf.function(scaled, **options)
    placed = placer.place(tf.function(scaled, **options), devices=two_cpus())
    assert isinstance(placed, tf.types.experimental.PolymorphicFunction)
    assert isinstance(placed, placer.PlacedFunction)
    for size in range(1, 4):
        x = tf.ones([size])
        np.testing.assert_allclose(placed(x), plain(x), rtol=1e-6)
    for name in ("python_function", "input_signature", "function_type"):
        assert getattr(placed, name) == getattr(plain, name)
    assert placed.function_spec.fullargspec == plain.function_spec.fullargspec
    assert placed.experimental_get_tracing_count() == plain.experimental_get_tracing_count()
    for verbose in (True, False):
        assert placed.pretty_printed_concrete_signatures(verbose) == plain.pretty_printed_concrete_signatures(verbose)


def test_an_attribute_that_a_tf_function_does_not_have_is_missing() -> None:
    placed = placer.place(scaled)
    for name in ("planned", "_planned", "__planned__"):
        assert not hasattr(placed, name)


def test_python_runs_while_it_is_traced_and_ops_run_in_each_call(capfd: pytest.CaptureFixture[str]) -> None:
    drawn: list[float] = []

    def noisy(x: Any) -> Any:
        drawn.append(np.random.default_rng().uniform())
        tf.print("call")
        return x + drawn[-1] + tf.random.uniform([])

    placed = placer.place(noisy, devices=two_cpus(), race="off", learn_sizes=False)
    first, second = placed(X), placed(X)
    assert len(drawn) == placed.experimental_get_tracing_count() == 1
    assert capfd.readouterr().err.count("call") == 2
    assert not np.array_equal(first, second)


def test_many_plans_made_by_calls_are_warned_of_once() -> None:
    placed = placer.place(scaled, devices=two_cpus(), race="off", learn_sizes=False)
    for size in range(1, 10):
        placed.plan(tf.ones([size]))
    with pytest.warns(placer.PlacementWarning, match="6 plans.*input_signature") as warned:
        [placed(X, by) for by in range(3, 11)]
    assert len(warned) == 1
