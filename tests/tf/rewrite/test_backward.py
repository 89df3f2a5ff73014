"""A tape outside a placed function: a call and its gradient have one plan, run by it, and give what the plain ones give."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.placed.function import PlacedFunction
from tests.helpers.harness import Builder, Program, RandomLegal, scalar, soft_placement, trainable, watched
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])


@pytest.fixture(autouse=True)
def _hard_placement() -> Iterator[None]:
    """Devices are taken at their word, and a call that runs unplaced fails its test unless the warning is expected."""
    with soft_placement(False), warnings.catch_warnings():
        warnings.simplefilter("error", placer.PlacementWarning)
        yield


# -- what is differentiated --------------------------------------------------------------------------------------------


def weights(device: str = "CPU:0", value: float = 0.2) -> tf.Variable:
    with tf.device(device):
        return tf.Variable(tf.fill([4, 4], value) + 0.1 * tf.eye(4))


def layers() -> Program:
    """Two variables on two devices, one argument whose gradient is None, a called function."""
    w, b = weights(), weights("CPU:1")

    @tf.function
    def layer(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ w)

    return Program(fn=tf.function(lambda x, y: layer(layer(x)) @ b), args=(X, X), state=[w, b])


def loop() -> Program:
    """A variable read in each round of a loop with accumulators, nested, whose trip count an argument says."""
    w = weights("CPU:1")

    @tf.function
    def f(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for i in tf.range(n):
            for _ in tf.range(i + 1):
                x = tf.sin(x @ w) * x
            if tf.reduce_sum(x) > 100.0:
                break
        return x, tf.reduce_sum(x)

    return Program(fn=f, args=(X, tf.constant(3)), state=[w])


def control_flow() -> Program:
    w = weights("CPU:1")

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.cond(x[0, 0] < 0.0, lambda x=x: tf.sin(x @ w), lambda x=x: x * x)
        return x

    return Program(fn=f, args=(X,), state=[w])


def branches() -> Program:
    w, u = weights("CPU:1"), weights()

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        y = tf.cond(tf.reduce_sum(x) > -1.0, lambda: tf.sin(x @ w) * x, lambda: tf.cos(x) @ u)
        return tf.switch_case(tf.constant(1) + tf.cast(x[0, 0] > 5, tf.int32), [lambda: y, lambda: tf.exp(-y * y), lambda: y @ w])

    return Program(fn=f, args=(X,), state=[w, u])


def embedding() -> Program:
    """IndexedSlices, whole numbers and an unused argument among arguments and results."""
    table = tf.Variable(tf.random.stateless_normal([20, 4], [1, 2]))

    @tf.function
    def f(ids: tf.Tensor, unused: tf.Tensor) -> dict[str, Any]:
        return {"rows": tf.nn.embedding_lookup(table, ids) * 2, "next": ids + 1, "some": tf.gather(table, ids[:2]), "none": None}

    return Program(fn=f, args=(tf.constant([1, 5, 1, 7]), X), state=[table])


def custom() -> Program:
    """Custom gradients with a closure, in the function and in a loop; a part whose forward pass is repeated."""
    w = weights("CPU:1")
    large = tf.random.stateless_uniform([20, 20], [1, 2])

    @tf.custom_gradient
    def log1pexp(x: tf.Tensor) -> Any:
        e = tf.exp(-x * x)
        return tf.math.log(1 + e), lambda upstream: upstream * e * 3.0

    @tf.custom_gradient
    def scaled(x: tf.Tensor) -> Any:
        return x * 2, lambda upstream: upstream * tf.reduce_mean(large)

    again = tf.recompute_grad(lambda x: tf.tanh(x @ w))

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = tf.sin(log1pexp(x @ w))
        return scaled(log1pexp(again(x))) + x

    return Program(fn=f, args=(X,), state=[w])


def composite() -> Program:
    """A ragged and a sparse tensor go in and come out."""
    w = weights("CPU:1")
    ragged = tf.RaggedTensor.from_row_lengths(tf.range(10.0), [3, 0, 7])

    @tf.function
    def f(r: tf.RaggedTensor, s: tf.SparseTensor) -> tuple[Any, ...]:
        return r * 2.0, s, tf.sparse.sparse_dense_matmul(s, w)

    return Program(fn=f, args=(ragged, tf.sparse.from_dense(X)), state=[w])


def stateful() -> Program:
    """It counts, and changes the variable whose earlier value its gradient needs."""
    w, count = weights("CPU:1"), tf.Variable(0.0)

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        count.assign_add(1.0)
        y = x @ w * count
        w.assign(w * 0.9)
        return y @ w

    return Program(fn=f, args=(X,), state=[w, count])


def unknown_sizes() -> Program:
    w = weights("CPU:1")

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def f(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        array = tf.TensorArray(tf.float32, tf.shape(x)[0])
        for i in tf.range(tf.shape(x)[0]):
            array = array.write(i, tf.reduce_sum(x[i] * w[0]))
        return tf.nn.softmax(x @ w), array.stack()

    return Program(fn=f, args=(X,), state=[w])


def no_gradient() -> Program:
    w = weights("CPU:1")
    return Program(fn=tf.function(lambda x: tf.argmax(x @ w, 1)), args=(X,), state=[w])


KINDS = [layers, loop, branches, embedding, custom, composite, stateful, unknown_sizes, no_gradient]


# -- calls with a result that nothing needs ----------------------------------------------------------------------------

Callee = Callable[[tf.Tensor, tf.Variable], Any]
Site = Callable[[Callable[[tf.Tensor], Any], tf.Tensor], tf.Tensor]


@tf.custom_gradient
def twice_and_thrice(x: tf.Tensor) -> Any:
    return (x * 2.0, x * 3.0), lambda first, second: first + second


CALLEES: dict[str, Callee] = {
    "dense": lambda x, v: (tf.tanh(x), v * 2.0),
    "by index": lambda x, v: (tf.tanh(x), tf.gather(v, [1, 2])),
    "dense and by index": lambda x, v: (tf.tanh(x) * tf.gather(v, [0]), v * 2.0),
    "custom": lambda x, v: (twice_and_thrice(x)[0], twice_and_thrice(v)[1]),
    "in a loop": lambda x, v: (tf.tanh(x), tf.map_fn(lambda row: row * v[0], x)),
    "in a branch": lambda x, v: (tf.tanh(x), tf.cond(x[0, 0] < 0.0, lambda: x, lambda: tf.gather(v, [1, 2, 1, 2]))),
    "a list": lambda x, v: (tf.tanh(x), tf.TensorArray(tf.float32, 1).write(0, v)),
    "no gradient": lambda x, v: (tf.tanh(x), tf.argmax(v)),
    "one result": lambda x, v: (tf.tanh(x) * tf.stop_gradient(v), None),
}
SITES: dict[str, Site] = {
    "straight": lambda g, x: g(x)[0],
    "nested": lambda g, x: tf.function(lambda x: (g(x)[0], x))(x)[0],
    "cond": lambda g, x: tf.cond(x[0, 0] < 0.0, lambda: g(x)[0], lambda: x * 2.0),
    "switch_case": lambda g, x: tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x, lambda: x * 2.0, lambda: g(x)[0]]),
    "while": lambda g, x: tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, g(x)[0]), [0, x])[1],
    "before a while": lambda g, x: tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x * x), [0, g(x)[0]])[1],
    "map_fn": lambda g, x: tf.map_fn(lambda row: g(tf.stack([row] * 4))[0], x),
    "stopped": lambda g, x: (
        g(x)[0] + tf.add_n([tf.reduce_sum(tf.stop_gradient(y)) for y in g(x)[1:] if tf.is_tensor(y)] or [0.0])
    ),
    "not called for its result": lambda g, x: (g(x), x * 2.0)[1],
}


def called(callee: Callee, site: Site) -> Program:
    v = weights("CPU:1")
    g = tf.function(lambda x: callee(x, v))
    return Program(fn=tf.function(lambda x: site(g, x)), args=(X,), state=[v])


# -- ways to take a gradient -------------------------------------------------------------------------------------------


def one_tape(program: Program, fn: Any) -> Any:
    """Two calls under one tape."""
    with tf.GradientTape() as tape:
        inputs = watched(tape, program.args)
        totals = [scalar(fn(*program.args)) for _ in range(2)]
    return [] if totals[0] is None else tape.gradient(totals, [*inputs, *trainable(program)])


def persistent(program: Program, fn: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        inputs = watched(tape, program.args)
        total, other = (scalar(fn(*program.args)) for _ in range(2))
    return [tape.gradient(t, [*inputs, *trainable(program)]) for t in (total, other, total)]


def second_order(program: Program, fn: Any) -> Any:
    with tf.GradientTape() as outer:
        inputs = watched(outer, program.args)
        with tf.GradientTape() as inner:
            watched(inner, program.args)
            total = scalar(fn(*program.args))
        first = inner.gradient(total, [*inputs, *trainable(program)])
        norm = scalar([g for g in first if g is not None])
    return first + outer.gradient(norm, [*inputs, *trainable(program)])


def jacobian(program: Program, fn: Any) -> Any:
    with tf.GradientTape() as tape:
        inputs = watched(tape, program.args)
        result = tf.nest.flatten(fn(*program.args))[0]
    return tape.jacobian(result, [*inputs, *trainable(program)])


def tape_in_a_function_around(program: Program, fn: Any) -> Any:
    @tf.function
    def around() -> Any:
        return [one_tape(program, fn), second_order(program, fn)]

    return around()


def tape_around_a_function_around(program: Program, fn: Any) -> Any:
    @tf.function
    def around(*args: Any) -> Any:
        return fn(*args)

    return one_tape(program, around)


def placed_around(program: Program, fn: Any) -> Any:
    return placer.place(lambda: one_tape(program, fn), devices=two_cpus())()


WAYS = [
    one_tape,
    persistent,
    second_order,
    jacobian,
    tape_in_a_function_around,
    tape_around_a_function_around,
    placed_around,
]


# -- tests -------------------------------------------------------------------------------------------------------------


def same(found: Any, expected: Any) -> None:
    """Equal gradients, dense or by index, where the plain function has any."""
    for have, want in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert type(have) is type(want)
        if want is not None:
            np.testing.assert_allclose(tf.convert_to_tensor(have), tf.convert_to_tensor(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("build", KINDS)
def test_a_call_and_its_gradient_run_as_planned(build: Builder, seed: int) -> None:
    reference, program = build(), build()
    expected = one_tape(reference, reference.fn)
    placed = placer.place(program.fn, devices=two_cpus(), solver=RandomLegal(seed))
    same(one_tape(program, placed), expected)
    assert [v.numpy().tolist() for v in program.state] == [v.numpy().tolist() for v in reference.state]
    seen = placed.observe_gradient(*program.args)
    assert seen.mismatches == ()
    assert build is no_gradient or any(op.startswith("backward/") for op in seen.ran)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("build", [layers, control_flow])
def test_gradients_of_every_order_are_the_plain_ones(build: Builder, way: Callable[[Program, Any], Any]) -> None:
    reference, program = build(), build()
    expected = way(reference, reference.fn)
    same(way(program, placer.place(program.fn, devices=two_cpus(), solver=RandomLegal(0))), expected)


@pytest.mark.parametrize(
    ("callee", "site"),
    [*((callee, "straight") for callee in CALLEES), *((kind, site) for kind in ("dense", "by index") for site in SITES)],
)
def test_a_source_is_connected_where_the_plain_function_connects_it(callee: str, site: str) -> None:
    """None, zeros or slices: a call connects what it takes with each of its results, also if it is no call once it is placed."""

    def build() -> Program:
        return called(CALLEES[callee], SITES[site])

    for way in (one_tape, tape_in_a_function_around):
        reference, program = build(), build()
        expected = way(reference, reference.fn)
        same(way(program, placer.place(program.fn, devices=two_cpus(), solver=RandomLegal(0))), expected)


def test_an_index_into_what_a_call_gives_has_a_dense_gradient() -> None:
    v = weights()
    g = tf.function(tf.identity)
    f = tf.function(lambda: tf.gather(g(v), [0]))
    program = Program(fn=f, state=[v])
    expected = one_tape(program, f)
    assert tf.is_tensor(expected[0])
    same(one_tape(program, placer.place(f, devices=two_cpus())), expected)


def test_a_call_adds_nothing_to_a_gradient_that_needs_all_its_results() -> None:
    v = weights()

    def layer(x: tf.Tensor) -> Any:
        return tf.tanh(x @ v), x + 1.0

    def ops(layer: Callable[[tf.Tensor], Any]) -> list[str]:
        def f(x: tf.Tensor) -> tf.Tensor:
            x, y = layer(x)
            x = tf.cond(x[0, 0] < 0.0, lambda: tf.add(*layer(x)), lambda: x)
            for _ in tf.range(2):
                x = x @ tf.multiply(*layer(x))
            return x * y

        placed = placer.place(tf.function(f), devices=two_cpus())
        one_tape(Program(fn=f, args=(X,), state=[v]), placed)
        return sorted(op.op_type for op in placed.placement.graph if op.count and op.op_type not in ("Identity", "NoOp"))

    assert ops(tf.function(layer)) == ops(layer)


def test_a_plan_under_a_tape_is_for_both_functions_and_prices_what_is_saved() -> None:
    w = weights()
    placed = placer.place(tf.function(lambda x: tf.sin(x @ w)), devices=two_cpus(), pins={"Sin": "CPU:0"}, race="off")
    placed(X)
    untaped = placed.placement
    program = Program(fn=placed, args=(X,), state=[w])
    one_tape(program, placed)
    taped = placed.placement
    assert placed.placements == {"float32[4,4]": untaped, "float32[4,4] (taped)": taped}
    assert {op: plan.device for op, plan in untaped.ops.items()}.items() <= {op: p.device for op, p in taped.ops.items()}.items()
    assert [name for name in taped.ops if name.startswith("gradient_")] == ["gradient_0"]
    placed(X)
    assert placed.placement is untaped

    split = placer.place(placed.__wrapped__, devices=two_cpus(), pins={"matmul": "CPU:0", "backward/*Cos": "CPU:1"})
    one_tape(program, split)
    saved = [t for t in split.placement.transfers if t.tensor == "matmul:0"]
    assert [(t.src, t.dst, t.nbytes) for t in saved] == [("CPU:0", "CPU:1", 64)]


def test_saved_plans_serve_calls_under_a_tape(tmp_path: Path) -> None:
    program, other = loop(), loop()
    placed = placer.place(program.fn, devices=two_cpus(), solver=RandomLegal(0))
    expected = one_tape(program, placed)
    for number, plan in enumerate(placed.placements.values()):
        plan.save(tmp_path / f"{number}.json")
    plans = [placer.Placement.load(path) for path in sorted(tmp_path.iterdir())]
    applied = placer.apply(other.fn, *plans)
    same(one_tape(other, applied), expected)
    assert {op: p.device for op, p in applied.placement.ops.items()} == {op: p.device for op, p in plans[1].ops.items()}

    with pytest.warns(placer.PlacementWarning, match="under a tape: the plan is for .* put the tape inside"):
        same(one_tape(other, placer.apply(other.fn, plans[0])), expected)


def test_threads_under_tapes_share_one_plan() -> None:
    program = layers()
    placed = placer.place(program.fn, devices=two_cpus())
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(one_tape(program, placed))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = one_tape(program, program.fn)
    assert len(found) == 4
    for gradients in found:
        same(gradients, expected)
    assert len(placed.placements) == 2


@pytest.mark.parametrize("rounds", [1, tf.constant(3)])
def test_what_a_batch_norm_saves_is_taken_on_the_device_that_saved_it(rounds: Any) -> None:
    scale, offset = tf.Variable(tf.ones([3])), tf.Variable(tf.zeros([3]))

    @tf.function
    def f(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            for _ in range(rounds) if isinstance(rounds, int) else tf.range(rounds):
                x = tf.compat.v1.nn.fused_batch_norm(x, scale, offset)[0] * x
            total = tf.reduce_sum(x)
        return tape.gradient(total, [scale, offset])

    graph = placer.build_graph(f, tf.ones([2, 4, 4, 3]))
    norms = [op.name for op in graph if op.op_type.startswith("FusedBatchNorm")]
    assert len(norms) == 2
    plans = [placer.solve(graph, "h100", solver=RandomLegal(seed)) for seed in range(4)]
    assert {tuple(plan.ops[name].device for name in norms) for plan in plans} == {("CPU:0", "CPU:0"), ("GPU:0", "GPU:0")}


def accumulated(program: Program, fn: Any) -> Any:
    with tf.autodiff.ForwardAccumulator(program.args[0], tf.ones_like(program.args[0])) as accumulator:
        result = fn(*program.args)
    return [accumulator.jvp(t) for t in tf.nest.flatten(result)]


def chain() -> Program:
    """It needs a few tensors of 1 MB at a time, its gradient all of them."""

    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        for _ in range(12):
            x = tf.sin(x) * x
        return x

    return Program(fn=f, args=(tf.ones([512, 512]),))


@pytest.mark.parametrize(
    ("build", "way", "options", "why"),
    [
        (loop, accumulated, {}, "ForwardAccumulator"),
        (chain, one_tape, {"memory_limits": {"CPU:0": "4MiB", "CPU:1": "4MiB"}}, "memory limits"),
        (loop, one_tape, {"pins": {"backward/*": "CPU:0"}}, "no device can hold .* leaves none; put"),
    ],
)
def test_one_warning_where_a_gradient_cannot_be_placed(
    build: Builder, way: Callable[[Program, Any], Any], options: dict[str, Any], why: str
) -> None:
    program = build()
    placed: PlacedFunction = placer.place(program.fn, *program.args, devices=two_cpus(), **options)
    with pytest.warns(placer.PlacementWarning, match=why) as warned:
        found = [way(program, placed) for _ in range(2)]
    assert len(warned) == 1
    assert "put the tape inside" in str(warned[0].message)
    for gradients in found:
        same(gradients, way(program, program.fn))
