"""Variables that move: what uses them afterwards, and what holds their old storage."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import MoveError
from placer.problem.problem import Assignment, PlacementProblem
from tests.helpers.machines import two_cpus

HERE, THERE = "CPU:0", "CPU:1"
X = tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4])


def where(variable: Any) -> str:
    return f"CPU:{tf.DeviceSpec.from_string(variable.device).device_index}"


def holds(handle: Any) -> bool:
    """Whether there is a value behind a variable's handle."""
    return bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def moving(fn: Callable[..., Any], *names: str, **options: Any) -> placer.PlacedFunction:
    """The function, placed so that its variables of these names move to the other device."""
    return placer.place(fn, devices=two_cpus(), variables="move", pins=dict.fromkeys(names, THERE), **options)


def made(value: Any, name: str) -> tf.Variable:
    with tf.device(HERE):
        return tf.Variable(value, name=name)


@pytest.fixture
def w() -> tf.Variable:
    return made(tf.reshape(tf.range(16.0), [4, 4]) / 16, "w")


# -- what a variable is stays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(tf.constant([[1, 2], [3, 4]], dtype) for dtype in ("float32", "int64", "int32", "bfloat16", "complex64", "uint8")),
        tf.constant([True, False]),
        tf.constant(["a", "b"]),
        tf.zeros([0, 3]),
        tf.constant(2.5),
    ],
    ids=lambda value: f"{value.dtype.name}{value.shape}",
)
def test_value_and_identity_stay(value: tf.Tensor) -> None:
    v = tf.Variable(value, name="v", trainable=False)
    before = (v.name, v.trainable, v.shape, v.dtype, v.ref(), v._unique_id)
    placed = moving(lambda: tf.identity(v), "v")
    np.testing.assert_array_equal(placed().numpy(), value.numpy())
    assert where(v) == THERE
    assert (v.name, v.trainable, v.shape, v.dtype, v.ref(), v._unique_id) == before
    np.testing.assert_array_equal(v.numpy(), value.numpy())
    assert not placed.observe().mismatches


def test_a_variable_of_unknown_shape_still_changes_its_shape() -> None:
    v = tf.Variable(tf.zeros([0, 4]), shape=[None, 4], name="v")
    grow = moving(lambda x: v.assign(tf.concat([v, x], axis=0)), "v")
    for rows in (3, 6):
        grow(X)
        assert v.numpy().shape == (rows, 4)
    assert where(v) == THERE


def test_nothing_moves_before_the_first_call(w: tf.Variable) -> None:
    placed = moving(lambda x: x @ w, "w")
    plan = placed.plan(X)
    assert plan.device_of("w") == THERE
    assert "'w' from CPU:0 to CPU:1" in plan.summary()
    assert where(w) == HERE
    placed(X)
    assert where(w) == THERE


def test_an_exchange_needs_room_for_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage is made and left by assignments, which say what each device holds meanwhile."""
    sizes = [1, 2, 4, 8, 8, 4, 2, 1]
    values = [tf.fill([size, 4], float(size)) for size in sizes]
    variables: list[tf.Variable] = []
    for k, value in enumerate(values):
        with tf.device(HERE if k % 2 else THERE):
            variables.append(tf.Variable(value, name=f"to{k % 2}_{k}", shape=[None, 4]))
    more, most, assign = {HERE: 0, THERE: 0}, {HERE: 0, THERE: 0}, tf.raw_ops.AssignVariableOp

    def assigned(resource: tf.Tensor, value: tf.Tensor, **options: Any) -> None:
        before = tf.raw_ops.ReadVariableOp(resource=resource, dtype=value.dtype) if holds(resource) else tf.zeros([0])
        assign(resource=resource, value=value, **options)
        more[at := where(resource)] += int(tf.size(value) - tf.size(before)) // 4
        most[at] = max(most[at], more[at])

    monkeypatch.setattr(tf.raw_ops, "AssignVariableOp", assigned)
    placed = placer.place(
        lambda: [tf.identity(v) for v in variables], devices=two_cpus(), variables="move", pins={"to0*": HERE, "to1*": THERE}
    )
    for left, right in zip(placed(), values, strict=True):
        np.testing.assert_array_equal(left, right)
    assert [where(v) for v in variables] == [HERE, THERE] * 4
    assert more == {HERE: 0, THERE: 0}
    assert 0 < max(most.values()) <= max(sizes)


# -- who used it before uses it still ----------------------------------------------------------------------------------


def nested(w: tf.Variable) -> Callable[[Any], Any]:
    inner = tf.function(lambda x: x @ w)
    return tf.function(lambda x: tf.nn.relu(inner(x)) + inner(2 * x))


def in_a_loop(w: tf.Variable) -> Callable[[Any], Any]:
    @tf.function
    def f(x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.tanh(x @ w)
        return x

    return f


def in_a_branch(w: tf.Variable) -> Callable[[Any], Any]:
    return tf.function(lambda x: tf.cond(x[0, 0] < 0, lambda: x @ w, lambda: x * w[0]))


def concrete(w: tf.Variable) -> Callable[[Any], Any]:
    return tf.function(lambda x: x @ w).get_concrete_function(X)


def in_a_closure(w: tf.Variable) -> Callable[[Any], Any]:
    kept = {"f": [tf.function(lambda x: x @ w)]}
    return functools.partial(kept["f"][0])


def as_an_argument(w: tf.Variable) -> Callable[[Any], Any]:
    f = tf.function(lambda v, x: x @ v)
    placed = placer.place(f, devices=two_cpus())
    return lambda x: (f(w, x) + placed(w, x)) / 2


def placed_before(w: tf.Variable) -> Callable[[Any], Any]:
    return placer.place(lambda x: x @ w, devices=two_cpus())


def with_a_gradient_of_its_own(w: tf.Variable) -> Callable[[Any], Any]:
    @tf.custom_gradient
    def scaled(x: Any) -> Any:
        def gradient(dy: Any, variables: Any = None) -> Any:
            return dy * w[0, 1], [tf.reduce_sum(dy) * v for v in variables or ()]

        return x * w[0, 1], gradient

    return tf.function(scaled)


USERS = [nested, in_a_loop, in_a_branch, concrete, in_a_closure, as_an_argument, placed_before]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("taped", [False, True], ids=["plain", "taped"])
def test_functions_traced_before_see_every_change(user: Any, taped: bool, w: tf.Variable) -> None:
    f = user(w)

    def called() -> list[np.ndarray]:
        if not taped:
            return [f(X).numpy()]
        with tf.GradientTape() as tape:
            y = f(X)
        return [y.numpy(), tape.gradient(y, w).numpy()]

    before = called()
    placed = moving(lambda x: w.assign_add(tf.matmul(x, x, transpose_a=True)), "w")
    start = tf.identity(w)
    placed(X)
    assert where(w) == THERE
    changed = called()
    w.assign(start)
    for left, right in zip(called(), before, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)
    assert not np.allclose(changed[0], before[0])
    w.assign(start + tf.matmul(X, X, transpose_a=True))
    for left, right in zip(called(), changed, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6)


def test_hundreds_of_variables_of_one_name_move(w: tf.Variable) -> None:
    """Half of them, at once. The functions that use both halves go on with the values of each."""
    variables = [made(tf.constant(float(k)), "v") for k in range(300)]
    moved = variables[::2]
    before = tf.function(lambda x: x + tf.stack([v * (k + 1.0) for k, v in enumerate(variables)]))
    expected = before(tf.zeros([300]))
    placed = moving(lambda x: x + tf.add_n(moved), *(["v"] + [f"v_{k}" for k in range(1, 150)]))
    np.testing.assert_allclose(placed(tf.zeros([])), tf.add_n(moved))
    assert [where(v) for v in variables] == [THERE, HERE] * 150
    np.testing.assert_array_equal(before(tf.zeros([300])), expected)
    for v in variables:
        v.assign_add(1.0)
    np.testing.assert_allclose(before(tf.zeros([300])), expected + tf.range(1.0, 301.0))
    np.testing.assert_allclose(placed(tf.zeros([])), tf.add_n(moved))


@pytest.mark.parametrize("user", USERS)
def test_functions_traced_before_fail_when_told_to(user: Any, w: tf.Variable) -> None:
    f = user(w)
    f(X)
    placed = moving(lambda x: x @ w, "w", stale="invalidate")
    expected = (X @ w).numpy()
    np.testing.assert_allclose(placed(X).numpy(), expected)
    if user in (as_an_argument, placed_before):  # each call brings it; it plans anew
        np.testing.assert_allclose(f(X).numpy(), expected)
    else:
        with pytest.raises(MoveError, match="'w' was moved to CPU:1 after"):
            f(X)
    np.testing.assert_allclose(user(w)(X).numpy(), user(tf.Variable(w))(X).numpy(), rtol=1e-6)
    with tf.GradientTape() as tape:
        y = placed(X)
    assert tape.gradient(y, w) is not None


def test_a_function_that_assigns_writes_where_the_variable_is(w: tf.Variable) -> None:
    assign = tf.function(w.assign)
    assign(tf.zeros([4, 4]))
    placed = moving(lambda x: x @ w, "w")
    placed(X)
    assign(tf.eye(4))
    np.testing.assert_allclose(w.numpy(), np.eye(4))
    np.testing.assert_allclose(placed(X).numpy(), X.numpy())


@pytest.mark.parametrize("user", [*USERS, with_a_gradient_of_its_own])
def test_a_gradient_is_first_taken_after_the_move(user: Any, w: tf.Variable) -> None:
    """TensorFlow builds gradient functions from the old graph when they are first needed."""
    f = user(w)
    f(X)
    moving(lambda x: x @ w, "w")(X)
    w.assign_add(tf.eye(4))
    results = []
    for g, at in ((f, w), (user(alike := tf.Variable(w)), alike)):
        x = tf.Variable(X)
        with tf.GradientTape() as tape:
            y = g(x)
        results += [y, *tape.gradient(y, [x, at], unconnected_gradients="zero")]
    for left, right in zip(results[:3], results[3:], strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(left), tf.convert_to_tensor(right), rtol=1e-6)


# -- Keras, modules, checkpoints, SavedModels ---------------------------------------------------------------------------

IMAGES, LABELS = np.random.default_rng(0).normal(size=(32, 6)).astype(np.float32), np.arange(32) % 3


def model() -> keras.Model:
    keras.utils.set_random_seed(1)
    built = keras.Sequential([keras.layers.Dense(8, "relu", name="hidden"), keras.layers.Dropout(0.2), keras.layers.Dense(3)])
    built.build([None, 6])
    built.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return built


def state(net: keras.Model) -> list[np.ndarray]:
    return [v.numpy() for v in (*net.trainable_variables, *net.optimizer.variables)]


def step_of(net: keras.Model) -> Callable[[Any, Any], Any]:
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = net.loss(y, net(x, training=True))
        net.optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return loss

    return step


def test_keras_fits_moves_and_fits() -> None:
    nets = model(), model()
    losses: list[list[float]] = []
    for net, place in zip(nets, (tf.function, lambda f: moving(f, "*hidden*", "*adam*")), strict=True):
        step, history = place(step_of(net)), []
        history += net.fit(IMAGES, LABELS, 8, 2, verbose=0, shuffle=False).history["loss"]
        history += [float(step(IMAGES, LABELS)) for _ in range(3)]
        history += net.fit(IMAGES, LABELS, 8, 2, verbose=0, shuffle=False).history["loss"]
        history += [float(step(IMAGES, LABELS)), float(net.evaluate(IMAGES, LABELS, verbose=0))]
        losses.append(history)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for left, right in zip(*map(state, nets), strict=True):
        np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-6)
    moved = [v for v in nets[1].optimizer.variables if where(v.value) == THERE]
    assert len(moved) > 4
    assert all(where(v.value) == THERE for v in nets[1].layers[0].variables)


def test_checkpoints_from_before_and_after(tmp_path: Path) -> None:
    net = model()
    net.optimizer.build(net.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=net, optimizer=net.optimizer)
    early = checkpoint.save(str(tmp_path / "early"))
    at_first = state(net)
    step = moving(step_of(net), "*hidden*", "*adam*")
    for _ in range(2):
        step(IMAGES, LABELS)
    late, at_last = checkpoint.save(str(tmp_path / "late")), state(net)
    for path, expected in ((early, at_first), (late, at_last)):
        checkpoint.restore(path).assert_consumed()
        for left, right in zip(state(net), expected, strict=True):
            np.testing.assert_array_equal(left, right)
    fresh = model()
    fresh.optimizer.build(fresh.trainable_variables)
    tf.train.Checkpoint(model=fresh, optimizer=fresh.optimizer).restore(late).assert_consumed()
    np.testing.assert_array_equal(fresh(IMAGES), net(IMAGES))
    assert where(net.layers[0].kernel.value) == THERE
    step(IMAGES, LABELS)


class Module(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.eye(4), name="w")
        self.steps = tf.Variable(0, name="steps")

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def __call__(self, x: Any) -> Any:
        self.steps.assign_add(1)
        return x @ self.w


def test_a_module_is_saved_and_loaded_after_the_move(tmp_path: Path) -> None:
    module = Module()
    module(X)
    placed = moving(module.__call__, "w")
    placed(X)
    module.w.assign(2 * tf.eye(4))
    assert where(module.w) == THERE
    assert {v.name for v in module.variables} == {"w:0", "steps:0"}
    tf.saved_model.save(module, str(tmp_path / "plain"))
    tf.saved_model.save(module, str(tmp_path / "placed"), signatures=placed.get_concrete_function(X))
    for name in ("plain", "placed"):
        loaded = tf.saved_model.load(str(tmp_path / name))
        np.testing.assert_allclose(loaded(X), 2 * X)
        assert loaded.steps.numpy() == 3
    np.testing.assert_allclose(next(iter(loaded.signatures["serving_default"](x=X).values())), 2 * X)


def test_the_variables_of_a_loaded_model_move(tmp_path: Path) -> None:
    tf.saved_model.save(Module(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    loaded(X)
    placed = moving(lambda x: loaded(x) + x @ loaded.w, "w")
    np.testing.assert_allclose(placed(X), 2 * X)
    assert where(loaded.w) == THERE
    loaded.w.assign(3 * tf.eye(4))
    np.testing.assert_allclose(loaded(X), 3 * X)
    np.testing.assert_allclose(placed(X), 6 * X)
    assert loaded.steps.numpy() == 4


# -- who cannot be told -------------------------------------------------------------------------------------------------


def a_dataset(w: tf.Variable) -> Any:
    return tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32) * w[0, 1])


def an_iterator(w: tf.Variable) -> Any:
    return iter(a_dataset(w).batch(2).prefetch(1))


def a_raw_handle(w: tf.Variable) -> Any:
    return {"kept": [w.handle]}


def a_closure_over_the_handle(w: tf.Variable) -> Any:
    handle = w.handle
    return lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def a_copy_of_the_handle(w: tf.Variable) -> Any:
    return tf.identity(w.handle)


def handles_in_a_tensor(w: tf.Variable) -> Any:
    return tf.stack([tf.Variable(1.0).handle] * 5 + [w.handle])


def handles_in_another_shape(w: tf.Variable) -> Any:
    return tf.reshape(w.handle, [1])


def a_handle_in_an_optional(w: tf.Variable) -> Any:
    return tf.experimental.Optional.from_value(tf.identity(w.handle))


def a_dataset_out_of_a_function(w: tf.Variable) -> Any:
    return tf.function(a_dataset)(w)


def a_dataset_made_of_another(w: tf.Variable) -> Any:
    return a_dataset_out_of_a_function(w).map(tf.exp)


def an_iterator_out_of_a_function(w: tf.Variable) -> Any:
    return tf.function(lambda: iter(a_dataset(w)))()


def an_iterator_with_no_object(w: tf.Variable) -> Any:
    return iter(a_dataset(w))._iterator_resource


def datasets_with_no_object(w: tf.Variable) -> Any:
    return tf.stack([tf.data.experimental.to_variant(a_dataset(w))])


def a_dataset_of_a_variant(w: tf.Variable) -> Any:
    return tf.data.experimental.from_variant(tf.data.experimental.to_variant(a_dataset(w)), tf.TensorSpec([]))


def a_function_that_captured_a_variant(w: tf.Variable) -> Any:
    dataset = a_dataset(w)
    return tf.function(lambda: dataset.reduce(0.0, lambda a, b: a + b)).get_concrete_function()


def a_tape(w: tf.Variable) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * w)
    return tape, loss


@pytest.mark.parametrize(
    ("holder", "told"),
    [
        (a_dataset, "a dataset"),
        (an_iterator, "a dataset"),
        (a_raw_handle, "a list"),
        (a_closure_over_the_handle, "a cell"),
        (a_copy_of_the_handle, "a copy of its handle"),
        (handles_in_a_tensor, "perhaps a tensor of handles"),
        (handles_in_another_shape, "a copy of its handle"),
        (a_handle_in_an_optional, "a copy of its handle"),
        (a_dataset_out_of_a_function, "perhaps a dataset that a function made"),
        (a_dataset_made_of_another, "perhaps a dataset that a function made"),
        (an_iterator_out_of_a_function, "perhaps an iterator that a function made"),
        (an_iterator_with_no_object, "perhaps an iterator that a function made"),
        (datasets_with_no_object, "perhaps a dataset that a function made"),
        (a_dataset_of_a_variant, "perhaps a dataset that a function made"),
        (a_function_that_captured_a_variant, "perhaps a dataset that a function made"),
        (a_tape, "a GradientTape"),
    ],
)
def test_a_move_is_refused_naming_who_would_go_stale(holder: Any, told: str, w: tf.Variable) -> None:
    other = made(tf.ones([4, 4]), "other")
    kept = holder(w)
    placed = moving(lambda x: x @ w @ other, "w", "other")
    for _ in range(2):
        with pytest.raises(MoveError, match=f"'w' cannot be moved from CPU:0: its storage is held by {told}.*pin 'w' to CPU:0"):
            placed(X)
        assert [where(v) for v in (w, other)] == [HERE, HERE]
    del kept
    np.testing.assert_allclose(placed(X), X @ w @ other)
    assert [where(v) for v in (w, other)] == [THERE, THERE]


def test_datasets_and_iterators_that_use_something_else_do_not_hinder_it(w: tf.Variable) -> None:
    dataset = a_dataset(made(tf.ones([4, 4]), "other")).batch(2)
    iterator = iter(dataset.prefetch(1))
    windows = list(tf.data.Dataset.range(4).window(2))
    returned = a_dataset_out_of_a_function(made(tf.ones([4, 2]), "another"))
    listed = tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32)
    moving(lambda x: x @ w, "w")(X)
    assert where(w) == THERE
    del dataset, iterator, windows, returned, listed


def a_queue(w: tf.Variable) -> Any:
    queue = tf.queue.FIFOQueue(1, [tf.resource])
    queue.enqueue(w.handle)
    return queue


def a_variable_of_its_handle(w: tf.Variable) -> Any:
    return tf.Variable(tf.identity(w.handle))


def handles_in_an_optional(w: tf.Variable) -> Any:
    return tf.experimental.Optional.from_value(handles_in_a_tensor(w))


def test_what_only_the_runtime_knows_of_is_noticed_as_long_as_it_is_there() -> None:
    holders = {"a": a_queue, "b": a_variable_of_its_handle, "c": handles_in_an_optional}
    a, b, c = (made((k + 2) * tf.eye(4), name) for k, name in enumerate(holders))
    kept = {name: holder(v) for (name, holder), v in zip(holders.items(), (a, b, c), strict=True)}
    placed = moving(lambda x: x @ a @ b @ c, *holders)
    for name in holders:
        for _ in range(2):
            with pytest.raises(MoveError, match=f"'{name}' was moved from CPU:0 to CPU:1, and its old storage.* is still held"):
                placed(X)
        del kept[name]
    np.testing.assert_allclose(placed(X), 24 * X)
    assert [where(v) for v in (a, b, c)] == [THERE] * 3


def test_nothing_is_taken_for_the_values_of_old_storage() -> None:
    values = [[1.5, 2.0], [1, 2], [True, False], ["a", "b"], [1j, 2j]]
    variables = [made(tf.constant(value), f"v{k}") for k, value in enumerate(values)]
    queues = [a_queue(v) for v in variables]
    with pytest.raises(MoveError):
        moving(lambda: [tf.identity(v) for v in variables], "v*")()
    uses: list[Callable[[Any], Any]] = [tf.identity, lambda x: tf.gather(x, [0]), lambda x: tf.concat([x, x], 0), lambda x: x[0]]
    sums: list[Callable[[Any], Any]] = [lambda x: tf.reduce_sum(x, axis=[0]), lambda x: tf.reduce_mean(x, axis=[0])]
    for queue, v in zip(queues, variables, strict=True):
        old = queue.dequeue()
        read = tf.raw_ops.ReadVariableOp(resource=old, dtype=v.dtype)
        for use in (*uses, *sums) if v.dtype not in (tf.bool, tf.string) else uses:
            with contextlib.suppress(tf.errors.InvalidArgumentError):
                assert use(read).shape != use(v).shape
        with pytest.raises(tf.errors.InvalidArgumentError, match="wrong shape"):
            tf.raw_ops.AssignVariableOp(resource=old, value=v, validate_shape=True)


def test_a_handle_in_a_running_function_is_noticed(w: tf.Variable) -> None:
    handle = w.handle
    placed = moving(lambda x: x @ w, "w")
    with pytest.raises(MoveError, match="a local variable of a running function"):
        placed(X)
    del handle


def test_other_threads_may_make_tuples_meanwhile() -> None:
    """CPython raises a SystemError where something else holds a tuple that is being made."""
    errors: list[SystemError] = []
    moved = threading.Event()

    def make() -> None:
        while not moved.is_set():
            try:
                tuple(i for i in range(2000))
            except SystemError as error:
                errors.append(error)

    variables = [made(tf.eye(4), "w") for _ in range(2)]
    functions = [moving(in_a_closure(w), "w") for w in variables]
    for f in functions:
        f.plan(X)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for f in functions:
            f(X)
        assert [where(w) for w in variables] == [THERE, THERE]
    finally:
        moved.set()
        thread.join()
    assert not errors


def test_several_threads_make_first_calls_at_once(w: tf.Variable) -> None:
    def uses(other: tf.Variable) -> Any:
        return lambda x: x @ w @ other

    others = [made((k + 2) * tf.eye(4), f"w{k}") for k in range(3)]
    placed = [moving(uses(other), "w*") for other in others]
    start = threading.Barrier(len(placed))

    def first(f: Any) -> tf.Tensor:
        start.wait()
        return f(X)

    for _ in range(2):
        with ThreadPoolExecutor(len(placed)) as pool:
            for k, result in enumerate(pool.map(first, placed)):
                np.testing.assert_allclose(result, (k + 2) * X @ w, rtol=1e-6)
        w.assign_add(tf.eye(4))
    assert [where(v) for v in (w, *others)] == 4 * [THERE]


def test_a_forward_accumulator_is_not_cut_off(w: tf.Variable) -> None:
    placed = moving(lambda x: x @ w, "w")
    with tf.autodiff.ForwardAccumulator(w, tf.ones_like(w)) as accumulator:
        with pytest.raises(MoveError, match="ForwardAccumulator"):
            placed(X)
        y = X @ w
    np.testing.assert_allclose(accumulator.jvp(y), X @ tf.ones_like(w))


def test_a_tape_opened_before_the_first_call_records_it(w: tf.Variable) -> None:
    placed = moving(lambda x: x @ w, "w")
    with tf.GradientTape() as tape:
        y = placed(X)
    assert where(w) == THERE
    np.testing.assert_allclose(tape.gradient(y, w), tf.transpose(X) @ tf.ones([3, 4]))


def test_under_a_tape_the_plan_that_moves_counts_the_gradient() -> None:
    """Forward, both products fit the second device; with what the gradient needs, one weight does not."""
    a, b = (tf.Variable(tf.random.stateless_uniform([512, 512], [1, i]), name=name) for i, name in enumerate("ab"))
    x = tf.random.stateless_uniform([512, 512], [2, 2])
    limits = {THERE: 6 * 2**20}

    def f(x: Any) -> Any:
        return tf.tanh(tf.tanh(x @ a) @ b)

    alone = placer.solve(placer.build_graph(tf.function(f), x), two_cpus(), variables="move", memory_limits=limits)
    assert [alone.device_of(name) for name in "ab"] == [THERE, THERE]
    placed = placer.place(f, devices=two_cpus(), variables="move", memory_limits=limits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tf.GradientTape() as tape:
            y = placed(x)
        gradients = tape.gradient(y, [a, b])
    assert sorted(map(where, (a, b))) == [HERE, THERE]
    with tf.GradientTape() as tape:
        expected = f(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4)
    for left, right in zip(gradients, tape.gradient(expected, [a, b]), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(placed(x), expected, rtol=1e-4)
    assert [placed.placement.device_of(name) for name in "ab"] == [where(a), where(b)]
    assert not placed.observe(x).mismatches
    assert not placed.observe_gradient(x).mismatches


def test_a_gradient_across_the_first_call_is_not_cut_off(w: tf.Variable) -> None:
    placed = moving(lambda x: x @ w, "w")
    with tf.GradientTape() as tape:
        penalty = tf.reduce_sum(w * w)
        with pytest.raises(MoveError, match="GradientTape"):
            placed(X)
    np.testing.assert_allclose(tape.gradient(penalty, w), 2 * w)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(placed(X)) + tf.reduce_sum(w * w)
    np.testing.assert_allclose(tape.gradient(loss, w), tf.transpose(X) @ tf.ones([3, 4]) + 2 * w)


def test_what_an_assignment_returned_goes_along(w: tf.Variable) -> None:
    assigned = w.assign_add(tf.eye(4))
    moving(lambda x: x @ w, "w")(X)
    w.assign(tf.eye(4))
    np.testing.assert_allclose(assigned.numpy(), np.eye(4))


def test_the_first_call_is_inside_another_function(w: tf.Variable) -> None:
    placed = moving(lambda x: tf.tanh(x @ w), "w")

    @tf.function
    def outer(x: Any) -> Any:
        before = tf.reduce_sum(w)
        with tf.GradientTape() as tape:
            y = placed(x)
        return y, tape.gradient(y, w), before, tf.reduce_sum(w)

    for _ in range(2):
        y, gradient, before, after = outer(X)
        assert where(w) == THERE
        np.testing.assert_allclose(y, np.tanh(X @ w), rtol=1e-6)
        np.testing.assert_allclose(gradient, tf.transpose(X) @ (1 - y**2), rtol=1e-5)
        np.testing.assert_allclose([before, after], 2 * [np.sum(w)], rtol=1e-6)
        w.assign_add(tf.eye(4))


def test_a_variable_of_a_function_around_it_stays_where_a_call_has_it(w: tf.Variable) -> None:
    other = made(tf.eye(4), "other")

    @tf.function
    def outer(v: tf.Variable, x: Any) -> Any:
        return moving(lambda x: x @ v @ other, "other")(x)

    for variable in (w, made(2 * w, "twice")):
        np.testing.assert_allclose(outer(variable, X), X @ variable, rtol=1e-6)
    assert [where(v) for v in (w, other)] == [HERE, THERE]


# -- several placed functions -------------------------------------------------------------------------------------------


def test_a_function_placed_before_plans_anew(w: tf.Variable) -> None:
    first = placer.place(lambda x: x @ w, devices=two_cpus())
    first(X)
    assert first.placement.device_of("w") == HERE
    second = moving(lambda x: 2 * x @ w, "w")
    second(X)
    np.testing.assert_allclose(first(X), X @ w)
    assert first.placement.device_of("w") == THERE
    assert not first.observe(X).mismatches


def test_a_move_that_fails_half_way_is_told_and_leaves_plans_true(w: tf.Variable, monkeypatch: pytest.MonkeyPatch) -> None:
    large, assign = made(tf.ones([4, 400]), "large"), tf.raw_ops.AssignVariableOp

    def assigned(value: tf.Tensor, **options: Any) -> None:
        if int(tf.size(value)) > 1000:
            raise tf.errors.ResourceExhaustedError(None, None, "no room")
        assign(value=value, **options)

    plain = tf.function(lambda x: x @ w)
    first, both = placer.place(lambda x: x @ w, devices=two_cpus()), moving(lambda x: x @ w @ large, "w", "large")
    expected = first(X)
    np.testing.assert_array_equal(plain(X), expected)
    with monkeypatch.context() as refusing:
        refusing.setattr(tf.raw_ops, "AssignVariableOp", assigned)
        with pytest.raises(MoveError, match="'large' cannot be moved to CPU:1, where TensorFlow refuses to make it: no room"):
            both(X)
    assert [where(w), where(large)] == [THERE, HERE]
    np.testing.assert_array_equal(first(X), expected)
    assert first.placement.device_of("w") == THERE
    assert not first.observe(X).mismatches
    np.testing.assert_array_equal(plain(X), expected)
    np.testing.assert_allclose(both(X), expected @ large, rtol=1e-6)
    assert [where(w), where(large)] == [THERE, THERE]


def test_a_plan_that_was_made_before_a_move_is_made_again(w: tf.Variable) -> None:
    first = placer.place(lambda x: x @ w, devices=two_cpus())
    assert first.plan(X).device_of("w") == HERE
    moving(lambda x: 2 * x @ w, "w")(X)
    first(X)
    assert first.placement.device_of("w") == THERE


def test_no_two_plans_take_a_variable_from_each_other(w: tf.Variable) -> None:
    there = moving(lambda x: x @ w, "w")
    there(X)
    with pytest.raises(placer.ConstraintError, match="a placed function that runs relies on it"):
        placer.place(lambda x: 2 * x @ w, devices=two_cpus(), variables="move", pins={"w": HERE})(X)
    free = placer.place(lambda x: 2 * x @ w, devices=two_cpus(), variables="move")
    free(X)
    assert free.placement.device_of("w") == THERE
    np.testing.assert_allclose(free(X), 2 * there(X))


def test_a_pin_that_a_move_would_allow_says_so(w: tf.Variable) -> None:
    for fn, args, told in ((lambda x: x @ w, (X,), True), (lambda v, x: x @ v, (w, X), False)):
        with pytest.raises(placer.ConstraintError, match="Way out") as raised:
            placer.place(fn, *args, devices=two_cpus(), pins={"[wv]": THERE})
        assert ('variables="move"' in str(raised.value)) is told


def test_a_plan_that_was_made_before_another_ran_takes_no_variable_from_it(w: tf.Variable) -> None:
    def last(problem: PlacementProblem) -> Assignment:
        return Assignment(problem.num_devices - 1 - problem.units.allowed[:, ::-1].argmax(axis=1))

    here = placer.place(lambda x: x @ w, devices=two_cpus(), variables="move", pins={"w": HERE})
    pinned, free = moving(lambda x: 2 * x @ w, "w"), moving(lambda x: 3 * x @ w, solver=last)
    assert [f.plan(X).device_of("w") for f in (here, pinned, free)] == [HERE, THERE, THERE]
    here(X)
    with pytest.raises(placer.ConstraintError, match="a placed function that runs relies on it"):
        pinned(X)
    np.testing.assert_allclose(free(X), 3 * X @ w, rtol=1e-6)
    assert where(w) == free.placement.device_of("w") == HERE
    np.testing.assert_allclose(here(X), X @ w)


def test_a_saved_plan_moves_what_it_was_made_to_move(w: tf.Variable, tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return x @ w

    moving(f, "w").plan(X).save(tmp_path / "plan.json")
    placed = placer.apply(f, placer.Placement.load(tmp_path / "plan.json"))
    np.testing.assert_allclose(placed(X), X @ w)
    assert where(w) == THERE


def test_an_argument_stays_where_each_call_has_it(w: tf.Variable) -> None:
    placed = placer.place(lambda v, x: x @ v, devices=two_cpus(), variables="move")
    np.testing.assert_allclose(placed(w, X), X @ w)
    assert where(w) == HERE
