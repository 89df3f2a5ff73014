"""Single effects that a step's time is made of, each a small function with its devices written in it.

A prediction that is wrong for whole workloads is wrong for some of these, which says what it misses. ``near`` is CPU:0, ``far``
the first GPU, or a second logical CPU where there is none. `Maximum` is an op that Grappler neither folds nor fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from examples.workloads import Workload

NEAR, FAR = "near", "far"


def effects() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """By name; each builder makes its arguments and variables where it says."""
    for where in (NEAR, FAR):
        yield f"call_{where}", partial(chain, where, 1)
        for length in (10, 100, 1000):
            yield f"chain_{length}_{where}", partial(chain, where, length)
        yield f"chains_4x100_{where}", partial(chain, where, 100, abreast=4)
        yield f"fan_256_{where}", partial(fan, where, 256)
        yield f"arguments_64_{where}", partial(many_arguments, where, 64)
        yield f"variables_64_{where}", partial(many_variables, where, 64, assigned=False)
        yield f"assigned_64_{where}", partial(many_variables, where, 64, assigned=True)
        yield f"shapes_100_{where}", partial(shapes, where, 100)
        yield f"products_20x1024_{where}", partial(products, where, 1024, 20)
        yield f"products_4x5x1024_{where}", partial(products, where, 1024, 5, abreast=4)
        yield f"passes_20x16MiB_{where}", partial(chain, where, 20, elements=2**22)
        yield f"passes_4x5x16MiB_{where}", partial(chain, where, 5, elements=2**22, abreast=4)
        yield f"unique_4x100000_{where}", partial(distinct, where, 100_000, 4)
        yield f"dense_10x256_{where}", partial(dense, where, 256, 10)
        yield f"convolutions_5x64_{where}", partial(convolutions, where, 64, 5)
        yield f"convolutions_back_3x64_{where}", partial(convolutions, where, 64, 3, back=True)
        yield f"loop_64x1_{where}", partial(loop, where, 64, 1)
        yield f"loop_64x10_{where}", partial(loop, where, 64, 10)
        yield f"products_kept_12_{where}", partial(kept_products, where, 12)
        yield f"passes_kept_12x8MiB_{where}", partial(kept_passes, where, 12, 2**21)
        yield f"suppressions_4_apart_{where}", partial(suppressions, where, 4, side=0.02)
        yield f"suppressions_4_crowded_{where}", partial(suppressions, where, 4, side=0.5)
        yield f"sorted_100000_random_{where}", partial(in_order, where, 100_000, drawn=True)
        yield f"sorted_100000_ascending_{where}", partial(in_order, where, 100_000, drawn=False)
    for pause in (0, 10, 30, 100, 1000):
        yield f"products_16_after_{pause}_near", partial(interrupted, NEAR, 16, pause)
    for own in (False, True):
        yield f"vectors_24_{'own' if own else 'one'}_near", partial(vectors, NEAR, 24, own=own)
    yield "products_4x4096_near", partial(weighted, NEAR, 4)
    for src, dst in ((NEAR, FAR), (FAR, NEAR)):
        yield f"chain_200_tapped_40_{src}_{dst}", partial(tapped, src, dst, 200, 5)
        yield f"chain_200_fed_40_{src}_{dst}", partial(fed, src, dst, 200, 5)
    yield "call_both", partial(both, 1, 64)
    yield "chains_100_both", partial(both, 100, 64)
    yield "passes_20x4MiB_both", partial(both, 20, 2**20)
    yield "loop_16_crossing", partial(loop, NEAR, 16, 1, through=FAR)
    yield "strings_26_columns", partial(string_columns, 8192, 26)
    for nbytes in (4, 2**16, 2**22):
        yield f"loop_16_taking_{nbytes}_near_far", partial(loop_taking, NEAR, FAR, 16, nbytes)
        yield f"loop_16_taking_{nbytes}_far_near", partial(loop_taking, FAR, NEAR, 16, nbytes)
    yield "loop_16_gathering_near_far", partial(loop_gathering, NEAR, FAR, 16)
    yield "loop_16_gathering_near_near", partial(loop_gathering, NEAR, NEAR, 16)
    for src, dst in ((NEAR, FAR), (FAR, NEAR)):
        yield f"arguments_64_{src}_{dst}", partial(many_arguments, dst, 64, made=src)
        yield f"variables_64_{src}_{dst}", partial(many_variables, dst, 64, assigned=False, made=src)
        yield f"results_64_{src}_{dst}", partial(many_made, src, dst, 64)
    for nbytes in (4, 2**16, 2**22, 2**26):
        for src, dst in ((NEAR, FAR), (FAR, NEAR)):
            yield f"argument_{nbytes}_{src}_{dst}", partial(crossing_argument, src, dst, nbytes)
            yield f"crossing_{nbytes}_{src}_{dst}", partial(crossings, (src, dst), nbytes)
    yield "crossing_there_and_back", partial(crossings, (NEAR, FAR, NEAR), 4)
    yield "crossing_there_and_back_8", partial(crossings, (NEAR, *(FAR, NEAR) * 8), 4)
    yield "crossing_8_abreast_near_far", partial(crossings, (NEAR, FAR), 4, abreast=8)
    yield "crossing_8_abreast_far_near", partial(crossings, (FAR, NEAR), 4, abreast=8)
    yield "crossing_8_abreast_1MiB_near_far", partial(crossings, (NEAR, FAR), 2**20, abreast=8)
    yield "crossing_8_abreast_1MiB_far_near", partial(crossings, (FAR, NEAR), 2**20, abreast=8)


def on(where: str) -> Any:
    return tf.device("/CPU:0" if where == NEAR else "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:1")


def chain(where: str, length: int, *, elements: int = 64, abreast: int = 1) -> Workload:
    """Ops each of which needs the one before."""

    def run(*starts: Any) -> Any:
        with on(where):
            return [steps(x, length) for x in starts]

    return _workload(run, where, *[_floats(elements, seed=i) for i in range(abreast)])


def steps(x: Any, length: int) -> Any:
    other = x
    for _ in range(length):
        x = tf.raw_ops.Maximum(x=x, y=other)
    return x


def fan(where: str, width: int) -> Workload:
    """One op whose result very many need, joined again."""

    def run(x: Any, *others: Any) -> Any:
        with on(where):
            return tf.add_n([tf.raw_ops.Maximum(x=x, y=other) for other in tf.unstack(others[0])])

    return _workload(run, where, _floats(64), _floats(width, 64))


def many_arguments(where: str, count: int, *, made: str | None = None) -> Workload:
    """``made``: where the arguments are, if not there."""

    def run(*args: Any) -> Any:
        with on(where):
            return tf.raw_ops.AddN(inputs=args)

    return _workload(run, made or where, *[_floats(64, seed=i) for i in range(count)])


def many_made(src: str, dst: str, count: int) -> Workload:
    """Many results of ops here that one op there takes."""

    def run(x: Any, y: Any) -> Any:
        with on(src):
            made = [tf.raw_ops.Maximum(x=x, y=y) for x in tf.unstack(x)]
        with on(dst):
            return tf.raw_ops.AddN(inputs=made)

    return _workload(run, src, _floats(count, 64), _floats(64))


def many_variables(where: str, count: int, *, assigned: bool, made: str | None = None) -> Workload:
    """``made``: where the variables are, if not there."""
    with on(made or where):
        variables = [tf.Variable(_floats(64, seed=i)) for i in range(count)]

    def run(x: Any) -> Any:
        with on(where):
            if not assigned:
                return tf.raw_ops.AddN(inputs=[x, *variables])
            for variable in variables:
                variable.assign_add(x)
            return tf.identity(x)

    return _workload(run, where, _floats(64), state=variables)


def shapes(where: str, length: int) -> Workload:
    """Ops on int32 scalars, which stay in host memory."""

    def run(x: Any) -> Any:
        with on(where):
            for _ in range(length):
                x = tf.raw_ops.Maximum(x=x, y=x)
            return x

    return _workload(run, where, tf.constant(3))


def products(where: str, side: int, length: int, *, abreast: int = 1) -> Workload:
    def run(*starts: Any) -> Any:
        with on(where):
            ends = []
            for x in starts:
                y = x
                for _ in range(length):
                    y = x @ y
                ends.append(y[0, 0])
            return ends

    return _workload(run, where, *[_floats(side, side, seed=i) / side for i in range(abreast)])


def interrupted(where: str, count: int, pause: int) -> Workload:
    """Products that all cores work on, before each so many tiny ops that one core does."""

    def run(x: Any, tiny: Any) -> Any:
        with on(where):
            y = x
            for _ in range(count):
                with tf.control_dependencies([y]):
                    tiny = steps(tiny, pause)
                with tf.control_dependencies([tiny]):
                    y = x @ y
            return y[0, 0], tf.reduce_max(tiny)

    return _workload(run, where, _floats(256, 256) / 256, _floats(64))


def vectors(where: str, count: int, *, own: bool) -> Workload:
    """A vector times matrices of 4 MiB: each with its ``own``, as layers have them, or all with one."""
    with on(where):
        matrices = [tf.Variable(_floats(1024, 1024, seed=i) / 1024) for i in range(count if own else 1)]

    def run(x: Any) -> Any:
        with on(where):
            for i in range(count):
                x = x @ matrices[i % len(matrices)]
            return x

    return _workload(run, where, _floats(1, 1024), state=matrices)


def weighted(where: str, count: int) -> Workload:
    """Wide layers without anything between them."""
    with on(where):
        matrices = [tf.Variable(_floats(4096, 4096, seed=i) / 4096) for i in range(count)]

    def run(x: Any) -> Any:
        with on(where):
            for matrix in matrices:
                x = x @ matrix
            return tf.reduce_max(x)

    return _workload(run, where, _floats(512, 4096), state=matrices)


def tapped(src: str, dst: str, length: int, every: int) -> Workload:
    """A chain some of whose results are taken elsewhere, beside it."""

    def run(x: Any, other: Any) -> Any:
        sent = []
        for _ in range(length // every):
            with on(src):
                x = steps(x, every)
            sent.append(x)
        with on(dst):
            return [tf.raw_ops.Maximum(x=y, y=other) for y in sent]

    return _workload(run, src, _floats(64), _floats(64, seed=1))


def fed(src: str, dst: str, length: int, every: int) -> Workload:
    """A chain that takes something at times that was made elsewhere, beside it."""

    def run(x: Any, *starts: Any) -> Any:
        y = x
        for _ in range(length // every):
            with on(src):
                x = tf.raw_ops.Maximum(x=x, y=starts[0])
            with on(dst):
                y = tf.raw_ops.Maximum(x=steps(y, every - 1), y=x)
        return y

    return _workload(run, src, _floats(64), _floats(64, seed=1))


def distinct(where: str, count: int, abreast: int) -> Workload:
    """Ops that one core does."""

    def run(*keys: Any) -> Any:
        with on(where):
            return [tf.unique(k).idx[0] for k in keys]

    rng = np.random.default_rng(0)
    return _workload(run, where, *[tf.constant(rng.integers(0, count, count)) for _ in range(abreast)])


def kept_products(where: str, length: int) -> Workload:
    """Products as a training step has them: each with weights of its own, all results kept to the end."""
    with on(where):
        weights = [tf.Variable(_floats(512, 512, seed=i) / 512) for i in range(length)]

    def run(x: Any) -> Any:
        with on(where):
            made = [x]
            for w in weights:
                made.append(made[-1] @ w)
            return firsts(made)

    return _workload(run, where, _floats(4096, 512), state=weights)


def kept_passes(where: str, length: int, elements: int) -> Workload:
    """Passes over memory whose results are all kept to the end."""

    def run(x: Any) -> Any:
        with on(where):
            made = [x]
            for _ in range(length):
                made.append(tf.raw_ops.Maximum(x=made[-1], y=x))
            return firsts(made)

    return _workload(run, where, _floats(elements))


def firsts(made: list[Any]) -> Any:
    """The sum of their first numbers, each looked at when the last is there, so that all are kept until then."""
    with tf.control_dependencies(made[-1:]):
        return tf.add_n([tf.reshape(y, [-1])[0] for y in made])


def suppressions(where: str, abreast: int, *, side: float) -> Workload:
    """Of 4,096 boxes anywhere in a picture; ``side``: theirs, which says how many lie over each other."""

    def run(boxes: Any, *scores: Any) -> Any:
        with on(where):
            return [tf.image.non_max_suppression(boxes, each, 100)[0] for each in scores]

    corners = np.random.default_rng(0).random((4096, 2), np.float32)
    boxes = tf.constant(np.concatenate([corners, corners + np.float32(side)], axis=1))
    return _workload(run, where, boxes, *[_floats(4096, seed=i) for i in range(abreast)])


def in_order(where: str, count: int, *, drawn: bool) -> Workload:
    """Sorting numbers ``drawn`` at random, or there in order already."""

    def run(x: Any) -> Any:
        with on(where):
            return tf.math.top_k(x, count).indices[0]

    x = np.random.default_rng(0).random(count, np.float32)
    return _workload(run, where, tf.constant(x if drawn else np.sort(x)[::-1].copy()))


def string_columns(rows: int, columns: int) -> Workload:
    """A matrix of strings taken apart, its columns hashed."""

    def run(table: Any) -> Any:
        with on(NEAR):
            return [tf.strings.to_hash_bucket_fast(column, 1000)[0] for column in tf.unstack(table, axis=1)]

    words = np.array([f"word{i % 5000}" for i in range(rows * columns)]).reshape(rows, columns)
    return _workload(run, NEAR, tf.constant(words))


def dense(where: str, width: int, layers: int) -> Workload:
    """What Grappler fuses on a CPU."""
    with on(where):
        weights = [tf.Variable(_floats(width, width, seed=i) / width) for i in range(layers)]
        biases = [tf.Variable(_floats(width, seed=i)) for i in range(layers)]

    def run(x: Any) -> Any:
        with on(where):
            for w, b in zip(weights, biases, strict=True):
                x = tf.nn.relu(tf.nn.bias_add(x @ w, b))
            return tf.reduce_mean(x)

    return _workload(run, where, _floats(256, width), state=[*weights, *biases])


def convolutions(where: str, channels: int, layers: int, *, back: bool = False) -> Workload:
    with on(where):
        filters = [tf.Variable(0.05 * _floats(3, 3, channels, channels, seed=i)) for i in range(layers)]

    def run(x: Any) -> Any:
        with on(where), tf.GradientTape() as tape:
            for w in filters:
                x = tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME"))
            x = tf.reduce_mean(x)
        with on(where):
            return [tf.reduce_sum(g) for g in tape.gradient(x, filters)] if back else x

    return _workload(run, where, _floats(16, 56, 56, channels), state=filters)


def loop(where: str, rounds: int, ops: int, *, through: str | None = None) -> Workload:
    """A while loop; ``through``: a further op of its body is there."""

    def run(x: Any) -> Any:
        with on(where):
            for _ in tf.range(rounds):
                x = steps(x, ops)
                if through:
                    with on(through):
                        x = steps(x, 1)
            return x

    return _workload(run, where, _floats(64))


def loop_taking(src: str, dst: str, rounds: int, nbytes: int) -> Workload:
    """A loop each round of which takes the value of a variable that is on another device."""
    with on(src):
        variable = tf.Variable(_floats(nbytes // 4))

    def run(x: Any) -> Any:
        with on(dst):
            for _ in tf.range(rounds):
                x = tf.raw_ops.Maximum(x=x, y=tf.reduce_max(variable))
            return x

    return _workload(run, dst, _floats(64), state=[variable])


def loop_gathering(src: str, dst: str, rounds: int) -> Workload:
    """A loop each round of which takes one row of a variable of 16 MiB."""
    with on(src):
        variable = tf.Variable(_floats(2**16, 64))

    def run(row: Any) -> Any:
        with on(dst):
            for _ in tf.range(rounds):
                row = tf.argmax(tf.gather(variable, row), output_type=tf.int32)
            return row

    return _workload(run, dst, tf.constant(1), state=[variable])


def both(length: int, elements: int) -> Workload:
    """A chain here and one there that do not need each other."""

    def run(x: Any, y: Any) -> Any:
        with on(FAR):
            there = steps(y, length)
        with on(NEAR):
            return there, steps(x, length)

    with on(NEAR):
        x = tf.identity(_floats(elements))
    with on(FAR):
        return Workload(tf.function(run), (x, tf.identity(_floats(elements))), (), trains=False)


def crossing_argument(src: str, dst: str, nbytes: int) -> Workload:
    """An argument used where it is not."""

    def run(x: Any) -> Any:
        with on(dst):
            return tf.reduce_max(tf.raw_ops.Maximum(x=x, y=x))

    return _workload(run, src, _floats(nbytes // 4))


def crossings(stations: tuple[str, ...], nbytes: int, *, abreast: int = 1) -> Workload:
    """Tensors made at the first station that an op at each further one takes."""

    def run(*starts: Any) -> Any:
        ends = []
        for start in starts:
            x = start
            for where in stations:
                with on(where):
                    x = tf.raw_ops.Maximum(x=x, y=x)
            ends.append(x)
        with on(stations[-1]):
            return [tf.reduce_max(x) for x in ends]

    return _workload(run, stations[0], *[_floats(nbytes // 4, seed=i) for i in range(abreast)])


def _workload(run: Callable[..., Any], where: str, *args: Any, state: Any = ()) -> Workload:
    with on(where):
        return Workload(tf.function(run), tuple(tf.identity(x) for x in args), tuple(state), trains=False)


def _floats(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, np.float32))
