"""Every way to call a function: arguments, structures, signatures, threads, and functions around it."""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import re
import threading
import weakref
from collections import namedtuple
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.harness import GPU_HERE, SPLITS, Builder, Program, RandomLegal, check, plan, runs_alike, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 12), [3, 4])


class Pair(NamedTuple):
    left: Any
    right: Any


Triple = namedtuple("Triple", "a b c")


@dataclasses.dataclass
class Box:
    """A dataclass as TensorFlow takes it."""

    scale: float
    value: Any

    def __tf_flatten__(self) -> tuple[Any, Any]:
        return (self.scale,), (self.value,)

    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: Any) -> Box:
        return cls(*metadata, *components)


class Mask(tf.experimental.ExtensionType):
    values: tf.Tensor
    keep: tf.Tensor


# -- arguments and results ---------------------------------------------------------------------------------------------


def keywords_defaults_and_python_values() -> Program:
    def f(x: Any, repeat: int = 2, *rest: Any, add: float = 0.5, mode: str = "tanh", **more: Any) -> Any:
        for _ in range(repeat):
            x = getattr(tf, mode)(x) + add
        return {"x": x, **more, "rest": list(rest)}

    return Program(fn=f, args=(X, 1, X, 3.0), kwargs={"mode": "sin", "extra": X * 2, "flag": True})


def nested_structures_with_none() -> Program:
    def f(tree: Any, nothing: Any) -> Any:
        assert nothing is None
        (a, (b, c)) = tree["k"], tree["l"]
        return Pair([a + b, None], {"z": (c["deep"] * 2, None), "y": ()})

    return Program(fn=tf.function(f), args=({"k": X, "l": (X + 1, {"deep": X * 3})}, None))


def named_tuples() -> Program:
    return Program(
        fn=tf.function(lambda p, t: Triple(p.right, p.left @ t.b, t.c)), args=(Pair(X, X + 1), Triple(1, tf.eye(4), X))
    )


def dataclasses_in_and_out() -> Program:
    return Program(fn=tf.function(lambda box: Box(2.0, box.value * box.scale)), args=(Box(3.0, X),))


def extension_types() -> Program:
    return Program(fn=tf.function(lambda m: Mask(tf.where(m.keep, m.values, 0.0), ~m.keep)), args=(Mask(X, X > 0),))


def ragged_tensors() -> Program:
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    return Program(fn=tf.function(lambda r: (r * 2.0, tf.reduce_sum(r, axis=1), r.to_tensor())), args=(ragged,))


def sparse_tensors() -> Program:
    sparse = tf.sparse.from_dense([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    return Program(
        fn=tf.function(lambda s, d: (tf.sparse.sparse_dense_matmul(s, d), tf.sparse.transpose(s))), args=(sparse, tf.transpose(X))
    )


def tensor_arrays() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[4])
        for i in tf.range(tf.shape(x)[0]):
            array = array.write(i, tf.tanh(x[i]))
        return array.stack(), array.size()

    return Program(fn=f, args=(X,))


def indexed_slices_out() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.gather(x, [0, 2, 0]) ** 2)
        return tape.gradient(y, x)

    return Program(fn=f, args=(X,), gradients=False)


def python_results() -> Program:
    return Program(fn=tf.function(lambda x: (x + 1, 7, "word", 2.5, None, True, x)), args=(X,))


def nothing_in_or_out() -> Program:
    v = tf.Variable(1.0)

    @tf.function
    def f() -> None:
        v.assign_add(2.0)

    return Program(fn=f, state=[v])


def numpy_and_lists() -> Program:
    return Program(fn=tf.function(lambda x, y, z: x @ y + z), args=(np.eye(3, dtype=np.float32), X, [1.0, 2.0, 3.0, 4.0]))


def a_variable_as_argument() -> Program:
    v, w = tf.Variable(X), tf.Variable(X)

    @tf.function
    def f(to: tf.Variable, x: Any) -> tf.Tensor:
        return to.assign_add(tf.sin(x) * 2.0)

    return Program(fn=f, args=(v, w), state=[v, w])


def the_argument_itself() -> Program:
    return Program(fn=tf.function(lambda x, y: (y, x, x, x + 0.0)), args=(X, X * 2))


# -- objects -----------------------------------------------------------------------------------------------------------


def a_bound_method() -> Program:
    class Scale(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = tf.Variable(2.0)

        def run(self, x: tf.Tensor, times: int = 2) -> tf.Tensor:
            return x * self.by * times

    scale = Scale()
    return Program(fn=scale.run, args=(X,), state=[scale.by])


def a_callable_module() -> Program:
    class Affine(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(tf.eye(4) * 0.5)

        @tf.function
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return tf.nn.relu(x @ self.w)

    affine = Affine()
    return Program(fn=affine, args=(X,), state=[affine.w])


def variables_made_on_the_first_call() -> Program:
    made: list[tf.Variable] = []

    def f(x: tf.Tensor) -> tf.Tensor:
        if not made:
            made.append(tf.Variable(tf.fill([4, 4], 0.5)))
        return x @ made[0].assign_add(tf.eye(4))

    return Program(fn=f, args=(X,), state=lambda: [v.read_value() for v in made])


def a_keras_layer() -> Program:
    layer = keras.layers.Dense(2, activation="relu", kernel_initializer="ones")
    layer.build([None, 4])
    return Program(fn=layer, args=(X,), state=[v.value for v in layer.variables])


def a_keras_model_that_trains() -> Program:
    model = keras.Sequential(
        [
            keras.Input([4]),
            keras.layers.Dense(3, "tanh", use_bias=False, kernel_initializer="ones"),
            keras.layers.BatchNormalization(),
        ]
    )
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - 1.0) ** 2)
        optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]), model.trainable_variables)
        return loss

    return Program(fn=step, args=(X,), state=[v.value for v in (*model.variables, *optimizer.variables)], gradients=False)


# -- shapes ------------------------------------------------------------------------------------------------------------


def unknown_dimensions() -> Program:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def f(x: tf.Tensor) -> Any:
        return tf.reshape(x, [-1, 2]) * tf.cast(tf.shape(x)[0], tf.float32), x[1:]

    return Program(fn=f, args=(X,))


def unknown_rank() -> Program:
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def f(x: tf.Tensor) -> Any:
        return tf.reduce_sum(x) + tf.cast(tf.rank(x), tf.float32), tf.reshape(x, [-1])

    return Program(fn=f, args=(X,))


def relaxed_retracing() -> Program:
    return Program(fn=tf.function(lambda x: tf.nn.softmax(x @ tf.transpose(x)), reduce_retracing=True), args=(X,))


def an_empty_tensor() -> Program:
    return Program(fn=tf.function(lambda x: (tf.reduce_sum(x, axis=0), x @ tf.ones([4, 2]))), args=(X[:0],))


PROGRAMS: list[Builder] = [
    keywords_defaults_and_python_values, nested_structures_with_none, named_tuples, dataclasses_in_and_out, extension_types,
    ragged_tensors, sparse_tensors, tensor_arrays, indexed_slices_out, python_results, nothing_in_or_out, numpy_and_lists,
    a_variable_as_argument, the_argument_itself, a_bound_method, a_callable_module, variables_made_on_the_first_call,
    a_keras_layer, a_keras_model_that_trains, unknown_dimensions, unknown_rank, relaxed_retracing, an_empty_tensor,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS)
def test_placed_is_plain(build: Builder) -> None:
    check(build)


def test_classes_of_attrs_go_in_and_come_out() -> None:
    attr = pytest.importorskip("attr")
    point = attr.make_class("Point", ["at", "weight"])

    def build() -> Program:
        return Program(fn=lambda p: point(p.at * p.weight, p.weight + 1), args=(point(X, 2.0),))

    check(build)


def made_of_an_argument() -> Program:
    module = tf.Module()

    def f(x: tf.Tensor) -> Any:
        if not module.variables:
            module.center = tf.Variable(tf.reduce_mean(x, axis=0))
        module.center.assign_add(tf.reduce_max(x, axis=0))
        return (x - module.center) ** 2

    return Program(fn=f, args=(X,), state=lambda: [v.read_value() for v in module.variables], raises=False)


def made_after_a_write() -> Program:
    """What the second variable starts from is there only once the call got that far; what it does is done once."""
    module, count = tf.Module(), tf.Variable(1.0)

    def f(x: tf.Tensor) -> Any:
        count.assign_add(1.0)
        if not module.variables:
            module.scale = tf.Variable(count + tf.reduce_sum(x))
        return x * module.scale + count

    return Program(fn=f, args=(X,), state=lambda: [count.read_value(), *(v.read_value() for v in module.variables)], raises=False)


@pytest.mark.parametrize("build", [made_of_an_argument, made_after_a_write])
def test_variables_that_start_from_the_first_calls_arguments(build: Builder) -> None:
    with pytest.warns(placer.PlacementWarning, match="left as it is in its first call"):
        runs_alike(build)
    with pytest.raises(placer.TraceError, match="call it before you plan it"):
        plan(build())


@pytest.mark.parametrize("inside", [False, True])
def test_such_variables_made_under_a_tape_or_inside_a_function(inside: bool) -> None:
    results = []
    for wrap in (lambda fn: placer.place(fn, devices=two_cpus()), tf.function):
        program, found = made_of_an_argument(), []
        fn = wrap(program.fn)
        call = tf.function(lambda x, fn=fn: fn(x) * 2.0) if inside else fn
        for _ in range(3):
            with tf.GradientTape() as tape:
                tape.watch(X)
                y = call(X)
            found += [y, tape.gradient(y, X), *program.state()]
        results.append(found)
    for placed, plain in zip(*results, strict=True):
        np.testing.assert_allclose(placed, plain, rtol=1e-5)


def test_such_variables_are_initialised_before_a_second_thread_reads_them() -> None:
    program, plain = made_of_an_argument(), made_of_an_argument()
    placed, expected = placer.place(program.fn, devices=two_cpus()), tf.function(plain.fn)
    threads = [threading.Thread(target=placed, args=(X,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        expected(X)
    np.testing.assert_allclose(program.state(), plain.state(), rtol=1e-5)


# -- methods -----------------------------------------------------------------------------------------------------------

placing = placer.optimized_placement(devices=two_cpus())


@dataclasses.dataclass(frozen=True)
class Alike:
    """Instances that are equal and do different things."""

    name: str
    by: float = dataclasses.field(compare=False)

    @placing
    def scaled(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.by


@dataclasses.dataclass
class Unhashable:
    by: float

    @placing
    def scaled(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.by


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by

    @placing
    def scaled(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.by


class Scale(tf.experimental.ExtensionType):
    by: tf.Tensor

    @placing
    def scaled(self, x: tf.Tensor) -> tf.Tensor:
        return x * self.by


@pytest.mark.parametrize("make", [lambda by: Alike("same", by), Unhashable, Slotted, Scale])
def test_each_instance_has_a_method_of_its_own(make: Any) -> None:
    two, three = make(2.0), make(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(two.scaled(X), X * 2.0)
        np.testing.assert_array_equal(three.scaled(X), X * 3.0)
    assert two.scaled.placement


def test_a_method_keeps_no_instance_alive() -> None:
    instance = Alike("gone", 2.0)
    instance.scaled(X)
    seen = weakref.ref(instance)
    del instance
    gc.collect()
    assert seen() is None


# -- errors ------------------------------------------------------------------------------------------------------------


MACHINE = two_cpus()  # made here, since AutoGraph would convert all that reads it from its file


def picked(x: Any, i: Any) -> Any:
    return tf.gather(tf.sin(x), i) * 2.0


def picked_by_a_function(x: Any, i: Any) -> Any:
    return tf.function(picked)(x + 1.0, i)


def picked_by_a_placed_function(x: Any, i: Any) -> Any:
    return placer.place(picked_by_a_function, devices=MACHINE)(x, i)


def picked_in_a_branch(x: Any, i: Any) -> Any:
    return picked(x, i) if tf.reduce_sum(x) > 0.0 else x


def picked_in_a_loop(x: Any, i: Any) -> Any:
    for _ in tf.range(2):
        x += tf.reduce_sum(picked(x, i))
    return x


def picked_under_a_tape(x: Any, i: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = picked(x, i)
    return tape.gradient(y, x)


def under_a_tape(fn: Any) -> Any:
    def call(x: Any, i: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            return tape.gradient(fn(x, i), x)

    return call


PICKING = [picked, picked_by_a_function, picked_in_a_branch, picked_in_a_loop, picked_under_a_tape, picked_by_a_placed_function]


@pytest.mark.skipif(GPU_HERE, reason="a GPU's gather does not raise")
@pytest.mark.parametrize("around", [lambda fn: fn, tf.function, under_a_tape], ids=["alone", "in a function", "under a tape"])
@pytest.mark.parametrize("fn", PICKING, ids=lambda fn: fn.__name__)
def test_an_error_names_the_lines_of_the_source_that_it_names_of_the_plain_function(fn: Any, around: Any) -> None:
    lines = []
    for wrap in (tf.function, functools.partial(placer.place, devices=MACHINE)):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            around(wrap(fn))(tf.ones([3]), tf.constant([7]))
        told = raised.value.message.split("Detected at")[1]  # an op on the way to several devices is told of several times
        lines.append(re.findall(r'File "(.*)", line (\d+), in (?!test_an_error|call|<module>)(\w+)', told))
    plain, placed = lines
    assert placed == plain
    assert fn not in PICKING[:2] or (__file__, str(inspect.getsourcelines(picked)[1] + 1), "picked") in placed


# -- signatures and threads --------------------------------------------------------------------------------------------


ARRAY_TYPES = (np.float32, np.float64, np.int32, np.bool_, np.complex64, ">f4", "S2", tf.bfloat16.as_numpy_dtype)


@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: [array, {"k": array}], tf.constant])
def test_arrays_are_told_apart_by_type_and_shape_and_not_by_value(wrap: Any) -> None:
    arrays = [np.zeros(shape, kind) for kind in ARRAY_TYPES for shape in ((), (2,), (2, 1), (0,))]
    arrays += [np.float32(1), np.float64(1), np.int32(1), np.asfortranarray(np.ones([2, 2])), np.ones([4, 2])[::2]]
    traces: list[Any] = []

    def handed_on(x: Any) -> Any:
        traces.append(x)
        return tf.nest.map_structure(tf.identity, x)

    found = []
    for fn in (tf.function(handed_on), placer.place(handed_on, devices=two_cpus())):
        before = len(traces)
        results = [fn(wrap(array)) for array in (*arrays, *map(np.ones_like, arrays), *arrays)]
        found.append((len(traces) - before, tf.nest.flatten(results)))
    (plain_traces, plain), (placed_traces, placed) = found
    assert placed_traces == plain_traces
    for have, want in zip(placed, plain, strict=True):
        assert have.dtype is want.dtype
        np.testing.assert_array_equal(have.numpy(), want.numpy())


def counted() -> tuple[Any, list[Any]]:
    traces: list[Any] = []

    def f(x: tf.Tensor, repeat: int = 2) -> tf.Tensor:
        traces.append(x.shape)
        for _ in range(repeat):
            x = tf.nn.relu(x @ tf.eye(4))
        return x

    return f, traces


@pytest.mark.parametrize("options", [{}, {"reduce_retracing": True}, {"input_signature": [tf.TensorSpec([None, 4])]}])
def test_one_plan_a_signature_and_at_most_one_trace_more_than_plain(options: dict[str, Any]) -> None:
    calls = [(tf.ones([n, 4]),) for n in (8, 8, 64, 8, 2)]
    f, plain_traces = counted()
    plain = tf.function(f, **options)
    for args in calls:
        plain(*args)
    g, traces = counted()
    placed = placer.place(tf.function(g, **options), devices=two_cpus())
    for args in calls:
        np.testing.assert_array_equal(placed(*args), plain(*args))
    assert len(traces) <= len(plain_traces) + 1
    assert len(placed.placements) <= len(traces)


def test_python_values_have_plans_of_their_own() -> None:
    f, traces = counted()
    placed = placer.place(f, devices=two_cpus())
    for repeat in (1, 3, 1, 3):
        placed(X, repeat=repeat)
    assert len(traces) == len(placed.placements) == 2
    once, thrice = (sum(op.op_type == "MatMul" for op in p.graph) for p in placed.placements.values())
    assert (once, thrice) == (1, 3)


def test_the_same_shape_with_another_dtype_or_a_variable_is_another_signature() -> None:
    placed = placer.place(lambda x: x + x, devices=two_cpus())
    for x in (X, tf.cast(X, tf.float64), tf.cast(X, tf.int32), tf.Variable(X), X):
        have = placed(x)
        assert have.dtype == x.dtype
        np.testing.assert_array_equal(have, 2 * x.numpy())
    assert len(placed.placements) == 4


def test_threads_share_one_trace_and_one_plan() -> None:
    f, traces = counted()
    placed = placer.place(f, devices=two_cpus(), solver=RandomLegal(0))
    start = threading.Barrier(8)
    results: list[Any] = []

    def call() -> None:
        start.wait()
        results.extend(placed(X).numpy() for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traces) == len(placed.placements) == 1
    assert len(results) == 40
    for result in results:
        np.testing.assert_array_equal(result, np.maximum(X, 0))


# -- functions around it -----------------------------------------------------------------------------------------------


def layer_with(solver: Any) -> tuple[Any, Any, tf.Variable]:
    w = tf.Variable(tf.linspace(-1.0, 1.0, 16)[:, None] * tf.ones([1, 4]), name="w")

    def layer(x: tf.Tensor, scale: float = 1.0) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.tanh(tf.concat([x, tf.sin(x), x * x, x + scale], axis=1) @ w)
        return x

    return tf.function(layer), placer.place(tf.function(layer), devices=two_cpus(), solver=solver), w


def inside_a_tf_function(f: Any, w: Any) -> Any:
    return tf.function(lambda x: f(x) + f(x * 2.0, scale=3.0))(X)


def inside_a_placed_function(f: Any, w: Any) -> Any:
    return placer.place(lambda x: tf.exp(f(tf.sin(x))), devices=two_cpus(), solver=RandomLegal(3))(X)


def inside_a_loop_and_a_branch(f: Any, w: Any) -> Any:
    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(3):
            x = tf.cond(i > 0, lambda x=x: f(x), lambda x=x: x + 1.0)
        return x

    return outer(X)


def second_order(f: Any, w: Any) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(X)
        with tf.GradientTape() as inner:
            inner.watch(X)
            y = tf.reduce_sum(f(X) ** 2)
        dx, dw = inner.gradient(y, [X, w])
        z = tf.reduce_sum(dx**2) + tf.reduce_sum(dw**2)
    return outer.gradient(z, [X, w])


def a_persistent_tape(f: Any, w: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        a, b = f(X), f(X + 1.0)
        c = a * b
    return [tape.gradient(t, s) for t in (a, b, c) for s in (X, w)]


def jacobian(f: Any, w: Any) -> Any:
    with tf.GradientTape() as tape:
        y = f(X)[:, :2]
    return tape.jacobian(y, w)


def forward_mode(f: Any, w: Any) -> Any:
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as accumulator:
        y = f(X)
    return accumulator.jvp(y)


def a_tape_in_a_tf_function(f: Any, w: Any) -> Any:
    @tf.function
    def gradients(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x) ** 2)
        return tape.gradient(y, [x, w])

    return gradients(X)


def a_dataset_map(f: Any, w: Any) -> Any:
    return list(tf.data.Dataset.from_tensors(X).repeat(2).map(f))


def vectorized(f: Any, w: Any) -> Any:
    return tf.vectorized_map(lambda row: f(row[None])[0], X)


AROUND = [
    inside_a_tf_function, inside_a_placed_function, inside_a_loop_and_a_branch, second_order, a_persistent_tape, jacobian,
    forward_mode, a_tape_in_a_tf_function, a_dataset_map, vectorized,
]  # fmt: skip


@pytest.mark.parametrize("solver", SPLITS[:2], ids=["auto", "random"])
@pytest.mark.parametrize("around", AROUND)
def test_whatever_is_around_a_placed_function(around: Any, solver: Any) -> None:
    plain, placed, w = layer_with(solver)
    wanted, found = around(plain, w), around(placed, w)
    for want, have in zip(tf.nest.flatten(wanted), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def called(f: Any) -> Any:
    return lambda x: tf.function(f)(tf.sin(x))


def called_in_a_loop(f: Any) -> Any:
    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = f(x)
        return x

    return loop


def called_in_a_branch(f: Any) -> Any:
    return lambda x: tf.cond(tf.reduce_sum(x) < 100.0, lambda: f(x), lambda: x)


def under_one_tape(f: Any, w: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    return tape.gradient(y, [X, w])


@pytest.mark.parametrize("tapes", [under_one_tape, second_order, a_persistent_tape, jacobian])
@pytest.mark.parametrize("calls", [called, called_in_a_loop, called_in_a_branch])
def test_gradients_of_any_order_go_through_a_plain_function_that_calls_a_placed_one(calls: Any, tapes: Any) -> None:
    w = tf.Variable(tf.linspace([-0.5] * 4, [0.5] * 4, 4))

    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x @ w)

    placed = placer.place(f, devices=two_cpus(), pins={"MatMul": "CPU:1"})
    wanted, *found = (tapes(tf.function(calls(fn)), w) for fn in (f, placed, placed))  # again, with what the first made
    for have in found:
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5), wanted, have)


def test_a_call_from_a_dataset_is_left_alone_however_deep() -> None:
    plain, placed, _ = layer_with(RandomLegal(0))
    inner = tf.function(lambda x: placed(x) * 2.0)
    with pytest.warns(placer.PlacementWarning, match="a dataset calls it") as warned:
        (found,) = tf.data.Dataset.from_tensors(X).map(lambda x: placed(x) + inner(x))
    assert len([w for w in warned if w.category is placer.PlacementWarning]) == 1
    assert not placed.placements
    np.testing.assert_allclose(found, plain(X) * 3.0, rtol=1e-4, atol=1e-5)
    placed(X)
    assert len(placed.placements) == 1


def test_a_placed_function_as_an_argument_is_itself() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.sin(x)

    placed = [placer.place(f, devices=two_cpus(), pins={"Sin": device}) for device in ("CPU:0", "CPU:1")]
    apply = tf.function(lambda fn, x: fn(x))
    np.testing.assert_allclose(apply(f, X), apply(placed[0], X), rtol=1e-6)
    np.testing.assert_allclose(apply(f, X), placer.place(apply, devices=two_cpus())(placed[1], X), rtol=1e-6)
    apply(placed[1], X)
    assert [p.placement.ops["Sin"].device for p in placed] == ["CPU:0", "CPU:1"]


def test_what_a_call_raises_is_what_the_plain_function_raises() -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        return x[:, 0] @ x

    with pytest.raises(ValueError, match="Shape must be rank 2"):
        placer.place(f, devices=two_cpus())(X)
    with pytest.raises(placer.TraceError, match=r"f failed while it was traced: ValueError"):
        placer.place(f, X, devices=two_cpus())
    with pytest.raises(KeyError, match="mine"):
        placer.place(lambda x: {}["mine"] * x, devices=two_cpus())(X)
    with pytest.raises(TypeError, match="missing a required argument"):
        placer.place(lambda x: x, devices=two_cpus())()


def test_what_inspects_functions_takes_it_for_the_function() -> None:
    def f(x: Any, by: float = 2.0, *, also: float = 1.0) -> Any:
        return x * by + also

    placed = placer.place(f, devices=two_cpus())
    assert inspect.signature(placed) == inspect.signature(f)
    assert inspect.getfullargspec(placed) == inspect.getfullargspec(f)
    inputs = keras.Input([4])
    model = keras.Model(inputs, keras.layers.Lambda(placed, arguments={"by": 3.0})(inputs))
    np.testing.assert_allclose(model(X), X * 3.0 + 1.0)


def test_a_plan_is_there_before_any_call() -> None:
    with soft_placement(False):
        program = unknown_dimensions()
        plan(program)
        placed = placer.place(program.fn, devices=two_cpus())
        assert placed.plan(X) is placed.plan(tf.ones([5, 4])) is placed.placement
