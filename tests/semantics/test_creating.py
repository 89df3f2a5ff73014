"""Variables that do not exist before they are planned."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import TraceError
from placer.problem.problem import Assignment, PlacementProblem
from placer.solvers.primitives.one_kind import all_on
from tests.helpers.machines import two_cpus
from tests.semantics.test_moving import HERE, IMAGES, LABELS, THERE, X, model, moving, state, step_of, where


class Initial:
    """A function that gives an initial value, and knows how often it was called."""

    def __init__(self, value: Any) -> None:
        self.value, self.times = value, 0

    def __call__(self) -> tf.Tensor:
        self.times += 1
        return tf.constant(self.value, tf.float32) * 1.0


def has_value(variable: tf.Variable) -> bool:
    """Asked in a way that gives it none."""
    return bool(tf.raw_ops.VarIsInitializedOp(resource=variable._handle))


class Builder:
    """Makes variables, and knows those that it made."""

    def __init__(self, initials: list[Initial]) -> None:
        self.initials = initials
        self.variables: list[tf.Variable] = []

    def __call__(self) -> Any:
        a, b = (tf.Variable(initial, name=name) for initial, name in zip(self.initials, "ab", strict=True))
        assert not has_value(a)
        assert not has_value(b)
        self.variables += [a, b]
        return lambda x: x @ a + x @ b


def test_variables_are_created_where_the_plan_has_them() -> None:
    initials = [Initial(tf.eye(4).numpy()), Initial(np.ones([4, 4]))]
    build = Builder(initials)
    placed = placer.plan_then_create(build, [tf.TensorSpec([3, 4])], devices=two_cpus(), pins={"a": THERE, "b": HERE})
    a, b = build.variables
    assert [initial.times for initial in initials] == [1, 1]
    assert not placed.placement.notes
    assert [where(v) for v in (a, b)] == [THERE, HERE]
    np.testing.assert_allclose(placed(X), X @ (tf.eye(4) + tf.ones([4, 4])))
    a.assign(tf.zeros([4, 4]))
    np.testing.assert_allclose(placed(X), X @ tf.ones([4, 4]))


def test_no_variable_has_a_value_while_it_is_planned() -> None:
    made: list[tf.Variable] = []
    then = []

    def all_there(problem: PlacementProblem) -> Assignment:
        then.append(has_value(made[0]))
        return all_on(problem, "CPU")

    def build() -> Any:
        made.append(tf.Variable(lambda: tf.eye(4)))
        return lambda x: x @ made[0]

    placer.plan_then_create(build, [X], devices=two_cpus(), solver=all_there)
    assert [*then, has_value(made[0])] == [False, True]


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


def initialised_in_many_ways() -> list[tf.Variable]:
    rng, values, calls = np.random.default_rng(0), iter(range(2)), []  # type: ignore[var-annotated]
    generator = tf.random.Generator.from_seed(1)
    made: list[tf.Variable] = []
    initials: list[Any] = [
        lambda: tf.random.normal([4]),
        lambda: tf.constant(rng.normal(size=[4]), tf.float32),
        lambda: tf.cast(rng.normal(size=[4]), tf.float32),
        lambda: tf.fill([4], float(next(values))),
        lambda: tf.ones([4]) * (calls.append(None) or len(calls)),  # type: ignore[func-returns-value]
        lambda: 2 * tf.constant(np.random.normal(size=[4]), tf.float32),  # noqa: NPY002
        lambda: tf.random.normal([4], seed=8) + len(made),
        lambda: tf.cond(tf.constant(True), lambda: tf.random.normal([4]) + len(made), lambda: tf.zeros([4])),
        lambda: (tf.random.set_seed(9 + len(made)), tf.random.normal([4]))[1],
        lambda: tf.random.uniform([4]) + tf.random.normal([4]),
        lambda: tf.random.normal([4], seed=7),
        lambda: generator.normal([4]),
        lambda: 2 * made[0].read_value(),
        tf.function(lambda: tf.random.normal([4])),
    ]
    for _ in range(2):
        made.extend(tf.Variable(initial) for initial in initials)
        made[-5].assign_add(tf.random.normal([4]) + np.random.normal() + generator.normal([4]))  # noqa: NPY002
        made[0].assign_add(tf.ones([4]))
    return made


@pytest.mark.parametrize("first_call", [False, True], ids=["build", "first call"])
def test_initial_values_are_those_of_the_plain_program(first_call: bool) -> None:
    expected = initialised_in_many_ways()
    keras.utils.set_random_seed(0)
    made: list[tf.Variable] = []

    def function() -> Any:
        if not made:
            with tf.init_scope():
                made.extend(initialised_in_many_ways())
        return [tf.identity(v) for v in made]

    def build() -> Any:
        made.extend(initialised_in_many_ways())
        return function

    placed = moving(function) if first_call else placer.plan_then_create(build, [], devices=two_cpus())
    for k, (left, right) in enumerate(zip(placed(), expected, strict=True)):
        np.testing.assert_allclose(left, right, rtol=1e-5, err_msg=f"variable {k}")


def called(w: tf.Variable) -> Any:
    return tf.function(lambda: tf.reduce_sum(w))()


def called_by_signature(w: tf.Variable) -> Any:
    return tf.function(lambda: tf.reduce_sum(w)).get_concrete_function()()


def called_by_an_initial_value(w: tf.Variable) -> Any:
    inner = tf.function(lambda: tf.reduce_sum(w))
    return tf.Variable(lambda: 1 * inner()).read_value()


def in_a_branch(w: tf.Variable) -> Any:
    return tf.function(lambda x: tf.reduce_sum(w) if x > 0 else x)(tf.constant(1.0))


def in_a_dataset(w: tf.Variable) -> Any:
    return next(iter(tf.data.Dataset.range(1).map(lambda _: tf.reduce_sum(w))))


def written(w: tf.Variable) -> Any:
    tf.function(lambda: w.assign_add(tf.zeros([4, 4])))()
    return tf.reduce_sum(w)


def in_a_graph_named_as_those_of_keras(w: tf.Variable) -> Any:
    @tf.function
    def scratch_graph() -> Any:
        return tf.reduce_sum(w)

    return scratch_graph()


USES = [called, called_by_signature, in_a_branch, written, in_a_graph_named_as_those_of_keras]


@pytest.mark.parametrize("use", [*USES, called_by_an_initial_value, in_a_dataset])
def test_a_function_that_building_calls_has_the_values_it_captures(use: Any) -> None:
    def build() -> Any:
        w = tf.Variable(lambda: tf.eye(4), name="w")
        n = float(use(w))
        return lambda x: n * x @ w

    pins = {} if use is in_a_dataset else {"w": THERE}
    np.testing.assert_allclose(placer.plan_then_create(build, [X], devices=two_cpus(), pins=pins)(X), 4 * X)


@pytest.mark.parametrize("use", USES)
def test_a_function_that_the_first_trace_calls_has_the_values_it_captures(use: Any) -> None:
    made: list[Any] = []

    def f(x: Any) -> Any:
        if not made:
            with tf.init_scope():
                w = tf.Variable(lambda: tf.eye(4), name="w")
                made.extend([w, float(use(w))])
        return made[1] * x @ made[0]

    np.testing.assert_allclose(moving(f, "w")(X), 4 * X)
    assert where(made[0]) == THERE


def test_a_function_that_building_traces_may_be_called_later() -> None:
    def build() -> Any:
        w = tf.Variable(lambda: tf.eye(4), name="w")
        total = tf.function(lambda: tf.reduce_sum(w))
        total.get_concrete_function()
        return lambda x: x @ w, w, total

    placed, w, total = placer.plan_then_create(build, [X], devices=two_cpus(), pins={"w": THERE})
    assert total() == 4
    w.assign(2 * w)
    assert total() == 8
    np.testing.assert_allclose(placed(X), 2 * X)


def test_keras_trains_and_predicts_while_building() -> None:
    def build() -> Any:
        net = model()
        net.fit(IMAGES, LABELS, verbose=0, shuffle=False)
        return net, net.predict(IMAGES, verbose=0)

    placed, predicted = placer.plan_then_create(build, [IMAGES], devices=two_cpus())
    plain, expected = build()
    np.testing.assert_allclose(predicted, expected, rtol=1e-5)
    np.testing.assert_allclose(placed(IMAGES), plain(IMAGES), rtol=1e-5)


def test_shapes_that_keras_asks_for_need_no_values() -> None:
    class Layer(tf.keras.layers.Layer):  # type: ignore[misc]
        def build(self, _: Any) -> None:
            self.w = self.add_weight(shape=(4, 4), initializer=lambda *_, **__: 1 * tf.eye(4))

        def call(self, x: Any) -> Any:
            return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y @ self.w), (0, x))[1]

    def build() -> Any:
        inputs = tf.keras.Input([4])
        net = tf.keras.Model(inputs, Layer()(inputs))
        assert not has_value(net.layers[1].w.value)
        return net

    np.testing.assert_allclose(placer.plan_then_create(build, [X], devices=two_cpus())(X), X)


GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.parametrize("first_call", [False, True], ids=["build", "first call"])
@pytest.mark.parametrize("draw", [tf.zeros, tf.random.normal, GENERATOR.normal])
def test_a_tensor_that_initial_values_share_is_made_before_them(draw: Any, first_call: bool) -> None:
    shared = functools.cache(lambda: draw([4, 4]))
    made: list[tf.Variable] = []

    def make() -> None:
        made[:] = made or [tf.Variable(lambda k=k: k * shared(), name="kept") for k in (1, 2)]

    def function(x: Any) -> Any:
        with tf.init_scope():
            make()
        return x @ made[0] + x @ made[1]

    def build() -> Any:
        make()
        return function

    def call() -> Any:
        return (moving(function) if first_call else placer.plan_then_create(build, [X], devices=two_cpus()))(X)

    with pytest.raises(TraceError, match="the initial value of variable 'kept' uses a tensor"):
        call()
    shared.cache_clear()
    made.clear()
    np.testing.assert_allclose(3 * X @ shared(), call(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lifted", [False, True], ids=["before", "by its first trace"])
@pytest.mark.parametrize("use", ["as planned", "from another function", "in part", "placed", "gradient", "read"])
def test_what_could_not_be_planned_has_its_values_when_it_is_used(use: str, lifted: bool) -> None:
    made: list[tf.Variable] = []
    functions: list[Any] = []

    def build() -> Any:
        made.append(tf.Variable(lambda: tf.eye(4), name="w"))

        @tf.function
        def part(x: Any) -> Any:
            return x @ made[0]

        @tf.function
        def whole(x: Any) -> Any:
            if lifted and len(made) == 1:
                made.append(tf.Variable(tf.ones([4]), name="b"))
            return part(x) * (made[1] if lifted else 1.0)

        functions.extend([part, whole])
        return whole

    with pytest.raises(placer.InfeasibleError):
        placer.plan_then_create(build, [X], devices=two_cpus(), memory_limits={"CPU": 10})
    part, whole = functions
    if use == "as planned":
        result = whole(X)
    elif use == "from another function":
        result = tf.function(lambda x: 1 * whole(x))(X)
    elif use == "in part":
        result = part(X)
    elif use == "placed":
        result = placer.place(whole, devices=two_cpus())(X)
    elif use == "gradient":
        with tf.GradientTape() as tape:
            result = whole(X)
        np.testing.assert_allclose(tape.gradient(result, made[0]), tf.transpose(X) @ tf.ones([3, 4]), rtol=1e-6)
    else:
        result = X @ made[0]
    np.testing.assert_allclose(result, X)
    made[0].assign(2 * made[0])
    np.testing.assert_allclose(whole(X), 2 * X)


def test_what_could_not_be_planned_takes_no_memory_until_it_is_used() -> None:
    made: list[tf.Variable] = []

    def build() -> Any:
        made.append(tf.Variable(lambda: tf.eye(4)))
        return tf.function(lambda x: x @ made[0])

    with pytest.raises(placer.InfeasibleError):
        placer.plan_then_create(build, [X], devices=two_cpus(), memory_limits={"CPU": 10})
    assert not has_value(made[0])


@pytest.mark.parametrize("use", [*USES, called_by_an_initial_value, in_a_dataset])
def test_variables_of_a_failed_build_have_their_values_when_they_are_used(use: Any) -> None:
    made: list[tf.Variable] = []

    def build() -> Any:
        made.append(tf.Variable(lambda: tf.eye(4)))
        raise KeyError("no function")

    with pytest.raises(KeyError):
        placer.plan_then_create(build, [X], devices=two_cpus())
    assert float(use(made[0])) == 4


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
    assert not placed.placement.notes
    assert initial.times <= 1
    assert not placed.observe(X).mismatches


def test_a_variable_that_only_the_first_trace_uses_may_go() -> None:
    scale: list[float] = []

    def f(x: Any) -> Any:
        if not scale:
            with tf.init_scope():
                scale.append(float(tf.Variable(3.0)))
        return x * scale[0]

    placed = moving(f)
    np.testing.assert_allclose(placed(X), 3 * X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = placed(X)
    np.testing.assert_allclose(tape.gradient(y, X), 3 * tf.ones_like(X))


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
