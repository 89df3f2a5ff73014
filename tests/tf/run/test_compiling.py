"""Functions compiled whole: they give what the plain function gives, and what cannot be compiled is refused by its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from placer.tf.run.compiling import compiled, unchecked
from placer.tf.run.outcomes import Outcome, outcome
from placer.tf.trace.tracing import trace

weights = tf.Variable(np.ones((4, 4), np.float32))
generator = tf.random.Generator.from_seed(3)


def refusal(fn: Any, *args: Any, device: str = "CPU:0") -> str:
    function, reason = compiled(trace(tf.function(fn, autograph=False), *args), device, args, {})
    assert (function is None) == bool(reason)
    return reason


def agrees(fn: Any, *args: Any) -> str:
    """How results and variables of the compiled function differ from those of the plain one; all variables are put back."""
    traced = trace(tf.function(fn), *args)
    function, reason = compiled(traced, "CPU:0", args, {})
    assert function is not None, reason
    return outcome(traced.concrete, traced.concrete, args, {}).difference(outcome(function, traced.concrete, args, {}))


def test_results_structure_and_variables_are_those_of_the_plain_function() -> None:
    def step(x: Any, more: Any) -> Any:
        for _ in tf.range(3):
            weights.assign_sub(0.1 * tf.matmul(x, weights))
        return {"sum": tf.reduce_sum(weights), "kept": (x, more["y"] + 1), "none": None}

    args = (tf.ones([4, 4]), {"y": tf.constant([1, 2])})
    assert agrees(step, *args) == ""
    assert weights.numpy().tolist() == [[1.0] * 4] * 4, "variables are put back"
    traced = trace(tf.function(step), *args)
    function, _ = compiled(traced, "CPU:0", args, {})
    assert function is not None
    tf.nest.assert_same_structure(function(*args), traced.concrete(*args))
    assert weights.numpy()[0, 0] != 1.0, "a call keeps what it writes"
    weights.assign(tf.ones([4, 4]))


@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    seed=st.integers(0, 2**31 - 1),
    draw=st.sampled_from([tf.random.stateless_uniform, tf.random.stateless_normal]),
)
def test_random_numbers_of_a_seed_are_the_same(shape: list[int], seed: int, draw: Any) -> None:
    assert agrees(lambda key: draw(shape, [seed, key]), tf.constant(7)) == ""


def test_a_generator_draws_the_same_numbers_and_goes_on_from_the_same_state() -> None:
    def draws() -> Any:
        return generator.normal([5]), generator.uniform([2, 3], 0, 100, tf.int32), generator.uniform([3])

    before = generator.state.numpy().tolist()
    assert agrees(draws) == ""
    assert generator.state.numpy().tolist() == before


ragged = tf.function(lambda x: x + 1, input_signature=[tf.TensorSpec([None])])
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
elsewhere: Any = None
with tf.device("CPU:1"):
    elsewhere = tf.Variable(1.0, name="elsewhere")


def sampled(x: Any) -> Any:
    return tf.random.log_uniform_candidate_sampler(tf.cast(x, tf.int64), 1, 2, True, 9)


def doubled(x: Any) -> Any:
    return tf.while_loop(lambda x: tf.size(x) < 9, lambda x: [tf.concat([x, x], 0)], [x], [tf.TensorShape([None])])


@pytest.mark.parametrize(
    ("reason", "fn", "args"),
    [
        ("other random numbers than its 'LogUniformCandidateSampler'", sampled, [[[1]]]),
        ("XLA has no EagerPyFunc", lambda x: tf.py_function(lambda a: a, [x], tf.float32), [1.0]),
        ("XLA takes far longer than TensorFlow for its 'Svd'", tf.linalg.svd, [np.ones((2, 64), "f")]),
        ("of type string", tf.strings.lower, ["A"]),
        ("of type string", lambda x: tf.constant("a"), [1.0]),
        ("neither a tensor nor a variable", table.lookup, [[1]]),
        ("its variable 'elsewhere' is on CPU:1", lambda x: x + elsewhere, [1.0]),
        ("other random numbers", lambda x: x + tf.random.normal([2]), [1.0]),
        ("other random numbers", lambda x: x + tf.random.stateless_truncated_normal([2], [1, 2]), [1.0]),
        ("for each value", lambda n: tf.zeros([n, 2]), [3]),
        ("shapes", doubled, [[1]]),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_by_its_reason(reason: str, fn: Any, args: list[Any]) -> None:
    assert reason in refusal(fn, *map(tf.constant, args))


def test_open_sizes_are_refused() -> None:
    assert "is open" in compiled(trace(ragged, tf.ones([3])), "CPU:0", (tf.ones([3]),), {})[1]


def test_a_variable_as_an_argument_may_be_elsewhere_in_the_next_call() -> None:
    assert "another call may bring one" in refusal(lambda v: v.assign_add([1.0, 1.0]), tf.Variable([1.0, 2.0]))


def test_checks_that_are_left_out_are_named() -> None:
    def checked(x: Any) -> Any:
        tf.debugging.assert_positive(x)
        return x

    assert any("Assert" in name for name in unchecked(trace(tf.function(checked), tf.constant(1))))
    assert not unchecked(trace(tf.function(lambda x: x), tf.constant(1)))


@pytest.mark.parametrize(
    ("one", "two", "word"),
    [
        ([1.0, 1e-9], [1.0, 2e-9], ""),
        ([1.0, 2.0], [1.0, 2.1], "differs by"),
        ([1.0, np.nan], [1.0, np.nan], ""),
        ([1.0, np.inf], [1.0, 2.0], "not finite"),
        ([1.0], [1.0, 2.0], "in place of"),
        ([1], [2], "1 of 1 values"),
        ([True], [True], ""),
    ],
)
def test_outcomes_agree_within_the_tolerance_of_their_type(one: list[Any], two: list[Any], word: str) -> None:
    kind = np.float32 if isinstance(one[0], float) else None
    found = Outcome((np.array(one, kind),), ()).difference(Outcome((np.array(two, kind),), ()))
    assert (word in found) if word else found == ""
