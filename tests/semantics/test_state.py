"""What a function keeps or changes beyond its results: variables, tables, generators, lists, datasets, queues, the world."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.plan.placement import Placement
from tests.helpers.harness import DEVICES, GPU_HERE, OTHER, Builder, Program, RandomLegal, check, plan, soft_placement
from tests.helpers.machines import two_cpus

X = tf.reshape(tf.linspace(-1.0, 1.0, 16), [4, 4])
W = tf.eye(4) * 0.9 + 0.01
HOST = "CPU:0" if GPU_HERE else OTHER
"""For variables of ops that only CPUs have kernels for."""


def variable(value: Any, device: str, name: str = "v") -> tf.Variable:
    with tf.device(device):
        return tf.Variable(value, name=name)


# -- variables ---------------------------------------------------------------------------------------------------------


def variables_on_two_devices() -> Program:
    a, b = variable(W, "CPU:0", "a"), variable(W, OTHER, "b")

    @tf.function
    def f(x: tf.Tensor) -> Any:
        a.assign_add(tf.matmul(x, b))
        b.assign(a * 0.5)
        return x @ a @ b

    return Program(fn=f, args=(X,), state=[a, b])


def a_variable_assigned_from_another() -> Program:
    a, b = variable(W, OTHER, "a"), variable(W * 2.0, "CPU:0", "b")

    @tf.function
    def f() -> Any:
        before = a.read_value()
        a.assign(b)
        b.assign(before)
        return a - b, before

    return Program(fn=f, state=[a, b])


def a_step_counter_of_int32() -> Program:
    steps, w = variable(0, OTHER, "steps"), variable(W, "CPU:0", "w")

    @tf.function
    def f(x: tf.Tensor) -> Any:
        n = steps.assign_add(1)
        if n % 2 == 0:
            w.assign(w * 0.5)
        return tf.matmul(x, w) / tf.cast(n, tf.float32), n

    return Program(fn=f, args=(X,), state=[steps, w])


def variables_of_every_type() -> Program:
    flags, words = variable([True, False], OTHER, "flags"), variable(["a", "b"], "CPU:0", "words")
    ids, half = variable(tf.constant([1, 2], tf.int64), OTHER, "ids"), variable(tf.constant([1.0, 2.0], tf.bfloat16), OTHER)

    @tf.function
    def f(x: tf.Tensor) -> Any:
        flags.assign(~flags)
        words.assign(tf.strings.join([words, tf.where(flags, "+", "-")]))
        ids.assign_add([1, 1])
        half.assign_add(tf.cast(x[0, :2], tf.bfloat16))
        return words.read_value(), ids * 2, tf.strings.length(words)

    return Program(fn=f, args=(X,), state=[flags, words, ids, half])


def a_variable_of_unknown_shape() -> Program:
    v = tf.Variable(tf.zeros([0, 4]), shape=[None, 4])

    @tf.function
    def f(x: tf.Tensor) -> Any:
        v.assign(tf.concat([v, x], axis=0))
        return tf.shape(v)[0], tf.reduce_sum(v, axis=0)

    return Program(fn=f, args=(X,), state=[v])


def descend(x: tf.Tensor, w: tf.Variable, m: tf.Variable, v: tf.Variable) -> tf.Tensor:
    """A step of Adam without its bias corrections."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(x, w) ** 2)
    g = tape.gradient(loss, w)
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(1e-1 * m / (tf.sqrt(v) + 1e-3))
    return loss


def optimizer_slots_on_the_other_device() -> Program:
    w = variable(W, "CPU:0", "w")
    m, v = variable(tf.zeros([4, 4]), OTHER, "m"), variable(tf.zeros([4, 4]), OTHER, "v")

    return Program(fn=tf.function(lambda x: descend(x, w, m, v)), args=(X,), state=[w, m, v], gradients=False)


def a_sparse_update_for_the_cpu_alone(home: str = HOST) -> Program:
    table, slot, w = (variable(tf.ones([n, 4]), home, name) for n, name in ((8, "table"), (8, "slot"), (2, "w")))

    @tf.function
    def f(ids: tf.Tensor) -> tf.Tensor:
        rows = tf.gather(table, ids)
        y = tf.matmul(rows, w, transpose_b=True)
        tf.raw_ops.ResourceSparseApplyMomentum(
            var=table.handle, accum=slot.handle, lr=0.05, grad=tf.matmul(y, w), indices=ids, momentum=0.9
        )
        return tf.reduce_sum(y)

    return Program(fn=f, args=(tf.constant([1, 5, 1]),), state=[table, slot, w], gradients=False)


def scatters_into_a_variable() -> Program:
    v = variable(tf.zeros([6, 4]), OTHER)

    @tf.function
    def f(x: tf.Tensor, ids: tf.Tensor) -> Any:
        v.scatter_add(tf.IndexedSlices(x[:2], ids))
        v.scatter_nd_update(ids[:, None] + 2, x[:2] * 2.0)
        v[1, :2].assign([7.0, 8.0])
        v.batch_scatter_update(tf.IndexedSlices(tf.ones([6, 1]), tf.zeros([6, 1], tf.int32)))
        return tf.gather(v, ids), v.sparse_read(ids), v.gather_nd(ids[:, None])

    return Program(fn=f, args=(X, tf.constant([0, 3])), state=[v], gradients=False)


def an_embedding_that_trains() -> Program:
    model = keras.Sequential([keras.layers.Embedding(9, 4, embeddings_initializer="ones"), keras.layers.Dense(2)])
    model.build([None, 3])
    model.layers[1].set_weights([np.full([4, 2], 0.5, np.float32), np.zeros(2, np.float32)])
    optimizer = keras.optimizers.Adagrad(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def f(ids: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ids, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]))
        return loss

    state = [v.value for v in (*model.variables, *optimizer.variables)]
    return Program(fn=f, args=(tf.constant([[1, 2, 1]]),), state=state, gradients=False)


def read_and_write_in_one_order() -> Program:
    """No output needs most of these: they happen in the order in which they are written, once each."""
    v, w = variable(1.0, "CPU:0"), variable(1.0, OTHER, "w")

    @tf.function
    def f(x: tf.Tensor) -> Any:
        first = v.assign_add(1.0)
        w.assign(v * 2.0)
        v.assign(w * v)
        tf.random.normal([3])
        with tf.control_dependencies([w.assign_add(x[0, 0])]):
            y = tf.identity(x)
        v.assign_sub(w)
        return y, first

    return Program(fn=f, args=(X,), state=[v, w])


# -- tables ------------------------------------------------------------------------------------------------------------


def a_lookup_table_before_an_embedding() -> Program:
    init = tf.lookup.KeyValueTensorInitializer(tf.constant(["red", "green", "blue"]), tf.range(3, dtype=tf.int64))
    table = tf.lookup.StaticHashTable(init, default_value=0)
    emb = variable(W, OTHER, "emb")
    return Program(
        fn=tf.function(lambda words: tf.gather(emb, table.lookup(words)) @ W),
        args=(tf.constant(["blue", "none", "green"]),),
        state=[emb],
    )


def a_vocabulary_with_buckets() -> Program:
    init = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))
    table = tf.lookup.StaticVocabularyTable(init, num_oov_buckets=3)
    return Program(
        fn=tf.function(lambda words: (tf.one_hot(table[words], 5) @ tf.ones([5, 2]), table.size())),
        args=(tf.constant(["b", "zz"]),),
    )


def a_mutable_table() -> Program:
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, default_value=-1)

    @tf.function
    def f(words: tf.Tensor, x: tf.Tensor) -> Any:
        before = table.lookup(words)
        table.insert(words, before + 1 + tf.cast(tf.size(x), tf.int64))
        table.remove(words[:1])
        return before, table.lookup(words), table.size(), tf.cast(before, tf.float32)[:, None] @ x[:1]

    def state() -> Any:
        keys, values = table.export()
        order = tf.argsort(values)
        return tf.gather(keys, order), tf.gather(values, order)

    return Program(fn=f, args=(tf.constant(["u", "v", "w"]), X), state=state)


def a_dense_table() -> Program:
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, default_value=tf.zeros([2]), empty_key=-1, deleted_key=-2)

    @tf.function
    def f(ids: tf.Tensor) -> Any:
        for i in tf.range(2):
            table.insert(ids, table.lookup(ids) + tf.cast(i + 1, tf.float32))
        return table.lookup(ids) * 2.0

    return Program(fn=f, args=(tf.constant([3, 4], tf.int64),), state=lambda: table.lookup(tf.constant([3, 4, 5], tf.int64)))


def a_table_made_in_the_function() -> Program:
    def f(words: tf.Tensor) -> Any:
        handle = tf.raw_ops.AnonymousMutableHashTable(key_dtype=tf.string, value_dtype=tf.float32)
        tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=words, values=tf.range(3.0))
        return tf.raw_ops.LookupTableFindV2(table_handle=handle, keys=words[::-1], default_value=-1.0) * 2.0

    return Program(fn=tf.function(f), args=(tf.constant(["u", "v", "w"]),))


# -- random numbers ----------------------------------------------------------------------------------------------------


def a_generator_on_the_other_device() -> Program:
    with tf.device(OTHER):
        generator = tf.random.Generator.from_seed(7)
    with tf.device("CPU:0"):
        (other,) = generator.split(1)

    @tf.function
    def f(x: tf.Tensor) -> Any:
        for _ in tf.range(2):
            x += generator.normal([4, 4])
        return x, generator.uniform([2], maxval=9, dtype=tf.int32), other.truncated_normal([2]), generator.make_seeds(2)

    return Program(fn=f, args=(X,), state=[generator.state, other.state])


def stateless_numbers() -> Program:
    def f(x: tf.Tensor) -> Any:
        seed = tf.random.experimental.stateless_split([1, 2], 2)
        noise = tf.random.stateless_normal([4, 4], seed[0]) + tf.random.stateless_uniform([4, 4], seed[1], alg="threefry")
        ids = tf.random.stateless_uniform([3], [5, 6], maxval=4, dtype=tf.int32)
        return x * noise, tf.gather(x, ids), tf.random.experimental.stateless_shuffle(x, [1, 2])

    return Program(fn=tf.function(f), args=(X,))


def a_layer_that_drops() -> Program:
    keras.utils.set_random_seed(5)
    layer = keras.layers.Dropout(0.5, seed=3)
    return Program(
        fn=tf.function(lambda x: layer(x, training=True) @ W),
        args=(X,),
        state=[v.value for v in layer.variables],
        gradients=False,
    )


# -- lists and other variants ------------------------------------------------------------------------------------------


def lists_of_strings() -> Program:
    @tf.function
    def f(words: tf.Tensor) -> Any:
        low = tf.map_fn(lambda s: tf.strings.lower(s) + "!", words, fn_output_signature=tf.TensorSpec([], tf.string))
        return tf.cast(tf.strings.length(low), tf.float32)[:, None] @ tf.fill([1, 4], 0.5), low

    return Program(fn=f, args=(tf.constant(["Cat", "Horse", "Ox"]),))


def lists_of_lists() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        rows = tf.TensorArray(tf.float32, 0, dynamic_size=True, infer_shape=False)
        for i in tf.range(3):
            row = tf.TensorArray(tf.float32, 0, dynamic_size=True)
            for j in tf.range(i + 1):
                row = row.write(j, x[i, j] * 2.0)
            rows = rows.write(i, row.stack())
        return rows.concat(), rows.size()

    return Program(fn=f, args=(X,))


def a_list_handed_in_and_out() -> Program:
    def f(items: tf.Tensor, x: tf.Tensor) -> Any:
        items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=x @ W)
        length = tf.raw_ops.TensorListLength(input_handle=items)
        last = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=[4, 4], element_dtype=tf.float32)
        return items, length, last + x

    empty = tf.raw_ops.EmptyTensorList(element_shape=[4, 4], max_num_elements=-1, element_dtype=tf.float32)
    return Program(fn=tf.function(f), args=(empty, X), gradients=False)


def optionals() -> Program:
    def f(x: tf.Tensor) -> Any:
        some = tf.experimental.Optional.from_value((x * 2.0, tf.constant("word")))
        none = tf.experimental.Optional.empty(tf.TensorSpec([4, 4]))
        return tf.cond(some.has_value(), lambda: some.get_value()[0], lambda: x), some.get_value()[1], none.has_value()

    return Program(fn=tf.function(f), args=(X,), gradients=False)


def ragged_rows() -> Program:
    ragged = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    fn = tf.function(lambda rows: tf.map_fn(lambda row: row * tf.reduce_sum(row), rows))
    return Program(fn=fn, args=(ragged,), gradients=not GPU_HERE)  # there TensorFlow's own raises an InternalError


def a_critical_section() -> Program:
    section, v = tf.CriticalSection(name="section"), variable(0.0, OTHER)

    @tf.function
    def f(x: tf.Tensor) -> Any:
        def change() -> tf.Tensor:
            return v.assign(v.read_value() * 2.0 + 1.0)

        return section.execute(change) + x, section.execute(change)

    return Program(fn=f, args=(X,), state=[v], gradients=False)


# -- datasets and iterators --------------------------------------------------------------------------------------------


def a_dataset_in_the_function() -> Program:
    w = variable(tf.fill([1, 4], 0.1), OTHER, "w")

    @tf.function
    def f(scale: tf.Tensor) -> Any:
        total = tf.constant(0.0)
        for batch in tf.data.Dataset.range(6).batch(2):
            x = tf.cast(batch, tf.float32)[:, None] * scale
            total += tf.reduce_sum(x @ w)
            w.assign_sub(tf.ones_like(w) * 1e-2)
        return total, w.read_value()

    return Program(fn=f, args=(tf.constant(0.5),), state=[w], gradients=False)


def a_loop_over_a_dataset_with_break() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        total, seen = tf.zeros([4]), 0
        for i, row in tf.data.Dataset.from_tensor_slices(x).enumerate():
            if i == 3:
                break
            total += row * tf.cast(i, tf.float32)
            seen += 1
        return total, seen

    return Program(fn=f, args=(X,), gradients=False)


def a_dataset_handed_in() -> Program:
    w = variable(2.0, OTHER)
    dataset = tf.data.Dataset.range(5).map(lambda i: tf.cast(i, tf.float32) * w).batch(2)

    @tf.function
    def f(items: tf.data.Dataset, x: tf.Tensor) -> Any:
        w.assign_add(1.0)
        return items.reduce(0.0, lambda total, batch: total + tf.reduce_sum(batch) * x[0, 0])

    return Program(fn=f, args=(dataset, X), state=[w], gradients=False)


def an_iterator_handed_in() -> Program:
    iterator = iter(tf.data.Dataset.range(100).map(lambda i: tf.fill([4], tf.cast(i, tf.float32))))

    @tf.function
    def f(items: Any, x: tf.Tensor) -> Any:
        first = next(items)
        for _ in tf.range(2):
            x += next(items)
        return first, x @ W

    return Program(fn=f, args=(iterator, X), state=lambda: next(iterator))


def a_captured_iterator_that_ends() -> Program:
    iterator = iter(tf.data.Dataset.range(3))

    @tf.function
    def f(x: tf.Tensor) -> Any:
        optional = iterator.get_next_as_optional()
        return optional.has_value(), x @ W, next(iterator)

    return Program(fn=f, args=(X,), gradients=False)


def datasets_of_several_kinds() -> Program:
    @tf.function
    def f(x: tf.Tensor) -> Any:
        rows = tf.data.Dataset.from_tensor_slices(x).map(lambda row: tf.nn.relu(row) + x[0], num_parallel_calls=2)
        scanned = rows.scan(tf.zeros([4]), lambda total, row: (total + row, total * row)).prefetch(1)
        zipped = tf.data.Dataset.zip((scanned, rows.filter(lambda row: row[0] > -2.0).repeat(2))).take(3)
        last = zipped.reduce(tf.zeros([4]), lambda total, pair: total + pair[0] - pair[1])
        return last, tf.data.Dataset.from_tensors(x).get_single_element(), rows.cardinality()

    return Program(fn=f, args=(X,), gradients=False)


# -- the world ---------------------------------------------------------------------------------------------------------


def a_queue() -> Program:
    queue = tf.queue.FIFOQueue(100, [tf.float32, tf.string], [[4], []])

    @tf.function
    def f(x: tf.Tensor) -> Any:
        queue.enqueue((x[0], "first"))
        queue.enqueue_many((x[1:3] @ W, ["second", "third"]))
        row, word = queue.dequeue()
        return row * 2.0, word, queue.size()

    return Program(fn=f, args=(X,), state=lambda: [queue.dequeue() for _ in range(3)], gradients=False)


def a_queue_in_order_of_priority() -> Program:
    queue = tf.queue.PriorityQueue(100, [tf.float32], [[]])

    @tf.function
    def f(x: tf.Tensor) -> Any:
        for i in tf.range(3):
            queue.enqueue((tf.cast(3 - i, tf.int64), x[0, i]))
        return queue.dequeue_many(2)

    return Program(fn=f, args=(X,), state=queue.dequeue, gradients=False)


def callbacks_in_order() -> Program:
    log: list[Any] = []

    def note(name: str) -> Callable[[np.ndarray], np.ndarray]:
        def call(a: np.ndarray) -> np.ndarray:
            log.append((name, float(np.sum(a))))
            return np.clip(a, 0.0, 1.0).astype(np.float32)

        return call

    @tf.function
    def f(x: tf.Tensor) -> Any:
        y = tf.ensure_shape(tf.numpy_function(note("one"), [x @ W], tf.float32), [4, 4])
        tf.numpy_function(note("unused"), [y], tf.float32)
        for _ in tf.range(2):
            y = tf.ensure_shape(tf.numpy_function(note("loop"), [y @ W], tf.float32), [4, 4])
        return tf.numpy_function(note("pure"), [y], tf.float32, stateful=False) @ W

    return Program(fn=f, args=(X,), log=log, gradients=False)


def an_eager_callback_with_its_gradient() -> Program:
    v = variable(W, OTHER)

    def call(a: tf.Tensor) -> tf.Tensor:
        return tf.tanh(a) * 2.0 if float(tf.reduce_sum(a)) > -100.0 else a

    @tf.function
    def f(x: tf.Tensor) -> Any:
        return tf.ensure_shape(tf.py_function(call, [x @ v], tf.float32), [4, 4]) @ v

    return Program(fn=f, args=(X,), state=[v])


def a_callback_that_raises() -> Program:
    def call(a: np.ndarray) -> np.ndarray:
        raise ValueError("the callback says no")

    return Program(fn=tf.function(lambda x: tf.numpy_function(call, [x @ W], tf.float32)), args=(X,), gradients=False)


def asserts_that_hold_and_one_that_does_not() -> Program:
    v = variable(0.0, OTHER)

    @tf.function
    def f(x: tf.Tensor) -> Any:
        tf.debugging.assert_greater(x, -2.0)
        n = v.assign_add(1.0)
        tf.debugging.Assert(n < 2.0, ["called too often", n, x])
        v.assign_add(10.0)
        return tf.debugging.check_numerics(x @ W, "not a number")

    return Program(fn=f, args=(X,), state=[v], gradients=False)


def prints_in_order() -> Program:
    folder = tempfile.TemporaryDirectory()
    printed = Path(folder.name) / "printed"
    stream = f"file://{printed}"

    @tf.function
    def f(x: tf.Tensor) -> Any:
        tf.print("first", x[0], output_stream=stream)
        for i in tf.range(2):
            x = x @ W
            tf.print("round", i, tf.shape(x), output_stream=stream)
        if x[0, 0] < 0.0:
            tf.print(tf.constant("below"), tf.reduce_sum(x) > 0.0, output_stream=stream)
        return x

    return Program(fn=f, args=(X,), state=lambda: (printed.read_text().splitlines(), folder)[0], gradients=False)


def a_summary_writer() -> Program:
    folder = tempfile.TemporaryDirectory()
    writer = tf.raw_ops.SummaryWriter(shared_name=folder.name)
    tf.raw_ops.CreateSummaryFileWriter(writer=writer, logdir=folder.name, max_queue=1, flush_millis=10, filename_suffix=".v2")

    @tf.function
    def f(x: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        y = x @ W
        tf.raw_ops.WriteScalarSummary(writer=writer, step=step, tag="mean", value=tf.reduce_mean(y))
        for i in tf.range(2, dtype=tf.int64):
            tf.raw_ops.WriteScalarSummary(writer=writer, step=step + i, tag="round", value=y[0, 0])
        tf.raw_ops.WriteHistogramSummary(writer=writer, step=step, tag="all", values=y)
        return y

    def written() -> list[Any]:
        tf.raw_ops.FlushSummaryWriter(writer=writer)
        (path,) = Path(folder.name).glob("*.v2")
        events = [tf.compat.v1.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(path))]
        return [(e.step, v.tag, round(v.simple_value, 4)) for e in events for v in e.summary.value]

    return Program(fn=f, args=(X, tf.constant(1, tf.int64)), state=written, gradients=False)


def files_written_and_read() -> Program:
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/file"

    @tf.function
    def f(x: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.io.write_file(path, tf.io.serialize_tensor(x @ W))]):
            back = tf.io.parse_tensor(tf.io.read_file(path), tf.float32)
        with tf.control_dependencies([back]):
            tf.io.write_file(path, tf.strings.as_string(tf.round(tf.reduce_sum(back**2))))
        return tf.ensure_shape(back, [4, 4]) @ W

    return Program(fn=f, args=(X,), state=lambda: (Path(path).read_text(), folder)[0], gradients=False)


PROGRAMS: list[Builder] = [
    variables_on_two_devices, a_variable_assigned_from_another, a_step_counter_of_int32, variables_of_every_type,
    a_variable_of_unknown_shape, optimizer_slots_on_the_other_device, a_sparse_update_for_the_cpu_alone,
    scatters_into_a_variable, an_embedding_that_trains, read_and_write_in_one_order, a_lookup_table_before_an_embedding,
    a_vocabulary_with_buckets, a_mutable_table, a_dense_table, a_table_made_in_the_function, a_generator_on_the_other_device,
    stateless_numbers, a_layer_that_drops, lists_of_strings, lists_of_lists, a_list_handed_in_and_out, optionals, ragged_rows,
    a_critical_section, a_dataset_in_the_function, a_loop_over_a_dataset_with_break, a_dataset_handed_in,
    an_iterator_handed_in, a_captured_iterator_that_ends, datasets_of_several_kinds, a_queue, a_queue_in_order_of_priority,
    callbacks_in_order, an_eager_callback_with_its_gradient, a_callback_that_raises, asserts_that_hold_and_one_that_does_not,
    prints_in_order, a_summary_writer, files_written_and_read,
]  # fmt: skip


@pytest.mark.parametrize("build", PROGRAMS)
def test_placed_is_plain(build: Builder) -> None:
    check(build)


# -- where it lives ----------------------------------------------------------------------------------------------------


def devices_of(placement: Placement, *op_types: str) -> set[str]:
    found = {placement.ops[op.name].device for op in placement.graph if op.op_type in op_types}
    assert found, f"no {op_types}"
    return found


def crossing(placement: Placement) -> dict[str, int]:
    """Bytes by tensor of all that is copied in a step."""
    return {t.tensor: t.nbytes for t in placement.transfers if not t.tensor.startswith("^")}


@pytest.mark.parametrize("home", ["CPU:0", "CPU:1"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_variable_and_all_that_takes_its_handle_are_where_it_was_made(home: str, seed: int) -> None:
    """Read from the handle, whatever scopes say: captured, passed in, used in loops and branches, of any type."""
    v, n, passed = variable(W, home, "v"), variable(0, home, "n"), variable(W, home, "passed")

    @tf.function
    def f(x: tf.Tensor, other: tf.Variable) -> tf.Tensor:
        with tf.device("/CPU:0"):
            for _ in tf.range(2):
                v.assign_add(x)
                if n.assign_add(1) > 2:
                    other.assign(v * 2.0)
        return tf.gather(v, [0, 1]) @ other

    placed = placer.place(f, devices=two_cpus(), solver=RandomLegal(seed))
    with soft_placement(False):
        assert not placed.observe(X, passed).mismatches
    placement = placed.placement
    assert devices_of(placement, "AssignAddVariableOp", "AssignVariableOp", "ResourceGather") == {home}
    assert {placement.device_of(name) for name in ("v", "n")} == {home}
    assert {r.device for r in placement.graph.resources.values()} == {home}


@pytest.mark.parametrize("dtype", ["int32", "string"])
def test_a_variable_that_no_gpu_can_hold_is_planned_for_the_host_and_frees_the_weights(dtype: str) -> None:
    """So is one that is only read; the weights' group has no part in it."""
    w, kept = tf.Variable(tf.ones([4096, 4096]), name="w"), tf.Variable(tf.zeros([4], dtype), name="kept")

    @tf.function
    def f(x: tf.Tensor) -> Any:
        return x @ w @ w, tf.identity(kept)

    placement = plan(Program(fn=f, args=(tf.ones([512, 4096]),)))
    assert (placement.device_of("kept"), placement.device_of("w")) == ("CPU:0", "GPU:0")
    assert devices_of(placement, "MatMul") == {"GPU:0"}
    assert f"no GPU kernel of VarHandleOp for dtype={dtype}" in placement.explain("kept")
    with pytest.raises(placer.ConstraintError, match=rf"'kept'.*GPU:0.*{dtype}"):
        plan(Program(fn=f, args=(tf.ones([512, 4096]),)), pins={"kept": "GPU:0"})


def test_tables_iterators_and_locks_are_planned_for_the_host() -> None:
    """TensorFlow makes them there, even those whose ops have GPU kernels."""
    for build in (a_lookup_table_before_an_embedding, an_iterator_handed_in, a_captured_iterator_that_ends, a_critical_section):
        placement = plan(build())
        graph = placement.graph
        found = {placement.ops[op.name].device for op in graph if op.resource and graph.resources[op.resource].kind != "variable"}
        assert found == {"CPU:0"}, build


def test_the_ops_of_a_sparse_update_have_the_devices_that_all_of_them_have() -> None:
    placement = plan(a_sparse_update_for_the_cpu_alone())
    assert devices_of(placement, "ResourceSparseApplyMomentum", "ResourceGather") == {"CPU:0"}
    assert placement.device_of("table") == placement.device_of("slot") == "CPU:0"
    assert "no GPU kernel of ResourceSparseApplyMomentum" in placement.why("ResourceGather").text
    assert max(crossing(placement).values()) < 8 * 4 * 4


@pytest.mark.skipif(not GPU_HERE, reason="needs a GPU that holds the variables")
def test_a_sparse_update_where_no_kernel_is_fails_placed_as_it_does_plain() -> None:
    program = a_sparse_update_for_the_cpu_alone(OTHER)
    with pytest.raises(tf.errors.InvalidArgumentError):
        program.fn(*program.args)
    with pytest.raises(placer.ConstraintError, match=r"ResourceSparseApplyMomentum(.|\n)*'table' lives on GPU:0"):
        placer.place(program.fn, devices=DEVICES)(*program.args)


def test_offloaded_slots_never_cross_where_copies_count() -> None:
    """The gradient goes down and the update comes up, and the plan says how many bytes that is."""
    n = 512
    w, m, v = (tf.Variable(tf.fill([n, n], 0.01), name=name) for name in ("w", "m", "v"))

    train = tf.function(lambda x: descend(x, w, m, v))
    pins = {"w": "GPU:0", "m": "CPU:0", "v": "CPU:0", "MatMul": "GPU:0"}
    placement = plan(Program(fn=train, args=(tf.ones([32, n]),)), pins=pins, objective="total_cost")
    large = {name: nbytes for name, nbytes in crossing(placement).items() if nbytes >= 4 * n * n}
    assert sum(large.values()) == 2 * 4 * n * n
    assert devices_of(placement, "Sqrt") == {"CPU:0"}


# -- what crosses ------------------------------------------------------------------------------------------------------


def test_only_ids_cross_from_a_table_and_only_a_scalar_to_a_writer() -> None:
    table = plan(a_lookup_table_before_an_embedding(), pins={"emb": "GPU:0", "MatMul": "GPU:0", "ResourceGather": "GPU:0"})
    assert devices_of(table, "LookupTableFindV2") == {"CPU:0"}
    moved = {table.graph.op(name.rpartition(":")[0]).op_type: nbytes for name, nbytes in crossing(table).items()}
    assert moved == {"LookupTableFindV2": 3 * 8}

    writer = tf.raw_ops.SummaryWriter(shared_name="scalar")

    def f(x: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        y = x @ tf.fill([1024, 1024], 0.1)
        tf.raw_ops.WriteScalarSummary(writer=writer, step=step, tag="mean", value=tf.reduce_mean(y))
        return y

    program = Program(fn=tf.function(f), args=(tf.ones([1024, 1024]), tf.constant(1, tf.int64)))
    written = plan(program, pins={"MatMul": "GPU:0", "matmul": "GPU:0"})
    assert devices_of(written, "WriteScalarSummary") == {"CPU:0"}
    assert {nbytes for name, nbytes in crossing(written).items() if not name.startswith("x:")} == {4}


def test_lists_of_strings_and_datasets_stay_on_the_host_and_the_product_need_not() -> None:
    """With the loops that carry them and what walks them; a walk whose body holds math is one op."""
    words = plan(lists_of_strings(), pins={"MatMul": "GPU:0"})
    for op in words.graph:
        kernel = op.kernels[words.ops[op.name].device.partition(":")[0]]
        for specs, host in ((op.signature.inputs, kernel.host_inputs), (op.signature.outputs, kernel.host_outputs)):
            held = [k for k, spec in enumerate(specs) if spec.dtype in ("string", "variant")]
            assert words.ops[op.name].device == "CPU:0" or set(held) <= set(host), op.name
    assert devices_of(words, "MatMul") == {"GPU:0"}
    with pytest.raises(placer.ConstraintError, match="holds strings, which TensorFlow keeps on the host"):
        plan(optionals(), pins={"OptionalFromValue": "GPU:0"})
    walked = plan(a_dataset_in_the_function())
    made = {op.op_type for op in walked.graph if "Dataset" in op.op_type}
    assert len(made) >= 3
    assert devices_of(walked, *made) == {"CPU:0"}
    assert not any(op.op_type == "MatMul" for op in walked.graph)
    copied = [walked.graph.op(name.rpartition(":")[0]) for name in crossing(walked)]
    assert not [op.name for op in copied if "variant" in str(op.signature.outputs)]


def test_a_callback_runs_once_a_call_however_often_it_is_planned() -> None:
    calls: list[float] = []

    def note(a: np.ndarray) -> np.ndarray:
        calls.append(float(a.sum()))
        return a

    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(note, [x * 2.0], tf.float32), x.shape) + 1.0

    placed = placer.place(f, devices=two_cpus(), solver=RandomLegal(0))
    for x in (X, X[:2]):
        placed.plan(x)
        placer.build_graph(f, x)
        placer.place(f, x, devices=two_cpus())
    assert not calls
    for number, x in enumerate((X, X, X[:2], X), start=1):
        placed(x)
        assert len(calls) == number


@pytest.mark.parametrize("callback", [tf.numpy_function, tf.py_function])
def test_a_callback_is_on_this_process_first_cpu_with_one_copy_down_and_one_up(callback: Callable[..., Any]) -> None:
    def f(x: tf.Tensor) -> tf.Tensor:
        y = callback(lambda a: a, [tf.matmul(x, W, name="before")], tf.float32)
        return tf.matmul(tf.ensure_shape(y, [4, 4], name="after"), W)

    placement = plan(Program(fn=tf.function(f), args=(X,)), pins={"MatMul": "GPU:0", "after": "GPU:0"})
    copies = [(t.tensor, t.src, t.dst) for t in placement.transfers if t.tensor in ("before:0", "PyFunc:0", "EagerPyFunc:0")]
    (call,) = [op.name for op in placement.graph if op.op_type in ("PyFunc", "EagerPyFunc")]
    assert sorted(copies) == sorted([("before:0", "GPU:0", "CPU:0"), (f"{call}:0", "CPU:0", "GPU:0")])


# -- random numbers that keep a seed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_stateful_numbers_with_a_seed_are_those_of_the_plain_function(seed: int) -> None:
    """From its first call on: each trace of a function starts its generators anew."""

    def build() -> Any:
        tf.random.set_seed(11)

        @tf.function
        def f(x: tf.Tensor) -> Any:
            total = tf.zeros([4, 4])
            for _ in tf.range(2):
                total += tf.random.normal([4, 4], seed=1)
            return total @ x, tf.random.uniform([3], maxval=9, dtype=tf.int64), tf.random.shuffle(tf.range(5), seed=3)

        return f

    plain = build()
    expected = [plain(X) for _ in range(3)]
    placed = placer.place(build(), devices=two_cpus(), solver=RandomLegal(seed))
    with soft_placement(False):
        found = [placed(X) for _ in range(3)]
    for want, have in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)


def test_a_plan_gives_the_same_numbers_after_a_reset() -> None:
    with tf.device("CPU:1"):
        generator = tf.random.Generator.from_seed(7)
    placed = placer.place(lambda x: x + generator.normal([4, 4]), devices=two_cpus(), solver=RandomLegal(2))
    first = [placed(X) for _ in range(3)]
    generator.reset_from_seed(7)
    for want, have in zip(first, [placed(X) for _ in range(3)], strict=True):
        np.testing.assert_array_equal(have, want)
    assert not np.array_equal(first[0], first[1])


# -- names -------------------------------------------------------------------------------------------------------------


def towers() -> Program:
    table = tf.Variable(tf.zeros([20_000, 64]), name="table")
    tower = keras.layers.Dense(4, name="tower")
    tower.build([None, 1024])

    @tf.function
    def f(ids: tf.Tensor) -> tf.Tensor:
        rows = tf.nn.embedding_lookup(table, ids)
        return tower(tf.reshape(rows, [-1, 1024]))

    return Program(fn=f, args=(tf.zeros([32, 16], tf.int64),), state=[table])


@pytest.mark.parametrize("limits", [{"GPU:0": "4MiB"}, {"GPU:0": "4MiB", "CPU:0": "1GiB"}])
def test_an_overfull_device_is_an_error_that_names_the_variable(limits: dict[str, str]) -> None:
    with pytest.raises(placer.InfeasibleError, match=r"GPU:0 .*over its limit of 4\.00 MiB.*'table' \(4\.88 MiB\)"):
        plan(towers(), memory_limits=limits)
    placement = plan(towers(), memory_limits=limits, pins={"table": "CPU:0"})
    assert all(0 <= t.peak_bytes <= t.limit_bytes for t in placement.totals.values())
    assert devices_of(placement, "ResourceGather") == {"CPU:0"}
    assert max(crossing(placement).values(), default=0) <= 32 * 16 * 64 * 4


def test_what_is_held_at_the_peak_is_named_as_the_user_calls_it() -> None:
    """No variable alone is over the limit: with what passes through it is."""
    with pytest.raises(placer.InfeasibleError, match=r"At the peak.*'table' \(4\.88 MiB\)"):
        plan(towers(), memory_limits={"GPU:0": "5MiB", "CPU:0": "5MiB"}, pins={"*": "GPU:0"})


def test_a_variables_name_finds_it_in_a_plan() -> None:
    placement = plan(towers(), pins={"table": "CPU:0"})
    assert placement.device_of("table") == placement.device_of("ResourceGather") == "CPU:0"
    assert "pin 'table' demands 'CPU:0'" in placement.explain("table")
    kernel = next(name for name in placement.graph.resources if "tower/kernel" in name)
    assert "variable" in placement.why(kernel).text
    with pytest.raises(placer.OptionError, match=r"did you mean .*tower/kernel"):
        placement.explain("tower/kernell")


def test_the_copies_that_a_variables_device_forces_can_be_read_off() -> None:
    rows, dim = 1000, 32
    table = variable(tf.zeros([rows, dim]), "CPU:0", "small_table")
    w = tf.Variable(tf.fill([dim, 256], 0.02), name="w")

    @tf.function
    def f(ids: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.gather(table, ids) @ w)

    placement = plan(Program(fn=f, args=(tf.zeros([128], tf.int32),)), pins={"small_table": "CPU:0", "MatMul": "GPU:0"})
    told = placement.explain("ResourceGather")
    assert "small_table" in told
    assert "copied to GPU:0" in told
    assert 128 * dim * 4 in crossing(placement).values()
