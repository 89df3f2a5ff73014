"""Variables that do not exist before they are planned."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.heuristics.fixed import all_on
from tests.machines import two_cpus
from tests.semantics.test_moving import HERE, IMAGES, LABELS, THERE, X, model, moving, state, step_of, where


class Initial:
    """A function that gives an initial value, and knows when it was computed."""

    def __init__(self, value: Any) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> tf.Tensor:
        self.times += tf.executing_eagerly()
        return tf.constant(self.value, tf.float32) * 1.0


def test_variables_are_created_where_the_plan_has_them() -> None:
    initials = [Initial(tf.eye(4).numpy()), Initial(np.ones([4, 4]))]

    def build() -> Any:
        a, b = (tf.Variable(initial, name=name) for initial, name in zip(initials, "ab", strict=True))
        assert [initial.times for initial in initials] == [0, 0]
        return lambda x: x @ a + x @ b, a, b

    placed, a, b = placer.plan_then_create(build, [tf.TensorSpec([3, 4])], devices=two_cpus(), pins={"a": THERE, "b": HERE})
    assert [initial.times for initial in initials] == [1, 1]
    assert [where(v) for v in (a, b)] == [THERE, HERE]
    np.testing.assert_allclose(placed(X), X @ (tf.eye(4) + tf.ones([4, 4])))
    a.assign(tf.zeros([4, 4]))
    np.testing.assert_allclose(placed(X), X @ tf.ones([4, 4]))


def test_no_variable_has_a_value_while_it_is_planned() -> None:
    initial, computed = Initial(np.eye(4)), []

    def all_there(problem: PlacementProblem) -> Assignment:
        computed.append(initial.times)
        return all_on(problem, "CPU")

    def build() -> Any:
        w = tf.Variable(initial)
        return lambda x: x @ w

    placer.plan_then_create(build, [X], devices=two_cpus(), solver=all_there)
    assert computed == [0]
    assert initial.times == 1


def test_a_keras_model_is_created_by_its_plan_and_trains_as_plain(tmp_path: Path) -> None:
    def build() -> Any:
        net = model()
        net.optimizer.build(net.trainable_variables)
        return step_of(net), net

    limits = {THERE: 900}
    placed, net = placer.plan_then_create(build, (IMAGES, LABELS), devices=two_cpus(), memory_limits=limits)
    plain = model()
    step = tf.function(step_of(plain))
    for _ in range(5):
        np.testing.assert_allclose(placed(IMAGES, LABELS), step(IMAGES, LABELS), rtol=1e-5)
    for left, right in zip(state(net), state(plain), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)
    assert type(net.layers[0].kernel.value) is type(plain.layers[0].kernel.value)
    path = tf.train.Checkpoint(model=net, optimizer=net.optimizer).save(str(tmp_path / "created"))
    fresh = model()
    fresh.optimizer.build(fresh.trainable_variables)
    tf.train.Checkpoint(model=fresh, optimizer=fresh.optimizer).restore(path).assert_consumed()
    np.testing.assert_array_equal(fresh(IMAGES), net(IMAGES))
    net.fit(IMAGES, LABELS, verbose=0)
    net.export(str(tmp_path / "saved"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.serve(IMAGES), net(IMAGES), rtol=1e-6)


def test_values_that_building_needs_are_there() -> None:
    def build() -> Any:
        a = tf.Variable(lambda: tf.ones([4, 4]), name="a")
        a.assign_add(tf.eye(4))
        b = tf.Variable(lambda: 2 * a.read_value(), name="b")
        return lambda x: x @ a @ b

    placed = placer.plan_then_create(build, [X], devices=two_cpus(), pins={"a": THERE})
    a = tf.ones([4, 4]) + tf.eye(4)
    np.testing.assert_allclose(placed(X), X @ a @ (2 * a), rtol=1e-6)


@pytest.mark.parametrize("lifted", [True, False], ids=["by TensorFlow", "eagerly"])
def test_variables_made_on_the_first_call_are_created_where_planned(lifted: bool) -> None:
    initial = Initial(np.eye(4))
    made: list[tf.Variable] = []

    def f(x: Any) -> Any:
        if not made:
            with contextlib.nullcontext() if lifted else tf.init_scope():
                made.append(tf.Variable(initial if not lifted else initial(), name="made"))
        made[0].assign_add(tf.eye(4))
        return x @ made[0]

    placed = moving(f, "made")
    np.testing.assert_allclose(placed(X), 2 * X)
    np.testing.assert_allclose(placed(X), 3 * X)
    assert where(made[0]) == THERE
    assert initial.times <= 1
    assert not placed.observe(X).mismatches


def test_what_cannot_be_planned_leaves_plain_variables() -> None:
    made: list[tf.Variable] = []

    def f(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(tf.eye(4), name="made"))
        return x @ made[0]

    function = tf.function(f)
    with pytest.raises(placer.InfeasibleError):
        placer.place(function, devices=two_cpus(), variables="move", memory_limits={"CPU": 10})(X)
    np.testing.assert_allclose(function(X), X)


def test_initial_values_from_the_arguments_run_as_plain_at_first() -> None:
    made: list[tf.Variable] = []

    def f(x: Any) -> Any:
        if not made:
            made.append(tf.Variable(x, name="made"))
        return made[0] + x

    placed = moving(f, "made")
    with pytest.warns(placer.PlacementWarning, match="first call"):
        np.testing.assert_allclose(placed(X), 2 * X)
    np.testing.assert_allclose(placed(2 * X), 3 * X)
    assert where(made[0]) == THERE
