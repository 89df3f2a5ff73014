"""Measuring single ops: what is run is the op that was asked for, on state of its own. No figure is held to a limit."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import placer
from cost_models.auto import installed_tensorflow
from cost_models.base import OpSignature, TensorSpec
from cost_models.machine_files import load_machine
from cost_models.measurements import Measurement, Row
from cost_models.measuring import chains, timing
from cost_models.measuring.chains import Bench, plain_graphs
from cost_models.ops import UnmeasurableError, types_where, work_of
from cost_models.ops.optype import no_values
from cost_models.store import Store
from placer.graph.op_graph import Kernel
from placer.tf.devices import local_machine
from placer.verbs.profile import Profile, profile

CPU = load_machine("cpu2").device("CPU:0")


def many_ops(x: Any, image: Any, ids: Any, words: Any, table: Any, slot: Any) -> list[Any]:
    """One of each of many op types: x [8, 12], image [2, 16, 16, 3], ids [8] int32, words [8], table [40, 6]."""
    raw = tf.raw_ops
    ids64 = tf.cast(ids, tf.int64)
    kernel = tf.reshape(tf.tile(x[:3, :1], [9, 4]), [3, 3, 3, 4])
    square = tf.matmul(x, x, transpose_b=True)
    spread = square + 100 * tf.eye(8)
    with tf.GradientTape() as tape:
        tape.watch([x, image, kernel])
        y = tf.nn.bias_add(tf.nn.relu(tf.nn.conv2d(image, kernel, 2, "SAME")), x[0, :4])
        y, *_ = tf.compat.v1.nn.fused_batch_norm(y, x[0, :4], x[1, :4])
        y = tf.nn.max_pool2d(y, 2, 2, "VALID") + tf.nn.avg_pool2d(y, 2, 2, "VALID")
        y = tf.image.resize(y, [8, 8]) + tf.image.resize(y, [8, 8], method="nearest")
        z = tf.nn.softmax_cross_entropy_with_logits(x, tf.nn.softmax(x)) + tf.nn.sparse_softmax_cross_entropy_with_logits(ids, x)
        z += tf.reduce_sum(tf.gather(x, ids, axis=1)[:, 1:5, tf.newaxis], axis=[1, 2]) + tf.reduce_max(
            tf.pad(x, [[0, 0], [1, 2]]), 1
        )
        z += tf.reduce_mean(tf.einsum("ij,kj->ik", x, x), 0) + tf.nn.embedding_lookup(table, ids)[:, 0]
        loss = tf.reduce_sum(y) + tf.reduce_sum(z) + tf.reduce_sum(tf.concat(tf.split(x, 3, axis=1)[1:], axis=1)[..., ::2])
        loss += tf.reduce_sum(tf.nn.depthwise_conv2d(image, tf.reshape(x[0, :6], [1, 2, 3, 1]), [1, 1, 1, 1], "VALID"))
    results = tape.gradient(loss, [x, image, kernel, table])
    results += [tf.transpose(image, [0, 3, 1, 2]), tf.transpose(x), tf.split(x, [2, 10], axis=1), tf.stack([x, x]), tf.unstack(x)]
    results += [
        tf.slice(x, [1, 0], [4, 5]),
        tf.one_hot(ids, 5),
        tf.cumsum(x, 1),
        tf.argmax(x, 1),
        tf.math.top_k(x, 3),
        tf.sort(x),
    ]
    results += [tf.unique(ids64), tf.where(x > 0), tf.reverse(x, [1]), tf.roll(x, [1], [0]), tf.broadcast_to(x[:1], [8, 12])]
    results += [tf.fill([3, 2], x[0, 0]), tf.range(ids[0] + 7), tf.linspace(x[0, 0], x[0, 1], 9), tf.zeros_like(x), tf.abs(-x)]
    results += [tf.math.unsorted_segment_sum(x, ids, 4), tf.math.segment_max(x, tf.sort(ids)), tf.gather_nd(x, ids[:, None])]
    results += [tf.scatter_nd(ids[:, None], x, [9, 12]), tf.tensor_scatter_nd_add(x, ids[:, None], x), tf.math.bincount(ids)]
    results += [tf.dynamic_partition(x, ids, 8), tf.dynamic_stitch([tf.range(8)], [x]), tf.math.in_top_k(ids, x, 2)]
    results += [tf.image.non_max_suppression(x[:, :4], x[:, 0], 3), tf.image.crop_and_resize(image, x[:2, :4], [0, 1], [4, 4])]
    results += [tf.linalg.cholesky(spread), tf.linalg.inv(spread), tf.linalg.solve(spread, x), tf.linalg.qr(x), tf.linalg.svd(x)]
    results += [tf.linalg.eigh(spread), tf.linalg.diag(x), tf.linalg.diag_part(square), tf.linalg.band_part(square, 1, 1)]
    results += [tf.signal.rfft(x), tf.signal.irfft(tf.signal.rfft(x)), tf.signal.fft(tf.cast(x, tf.complex64))]
    results += [
        tf.strings.to_hash_bucket_fast(words, 9),
        tf.strings.lower(words),
        tf.strings.join([words, words]),
        tf.strings.length(words),
    ]
    results += [
        tf.strings.substr(words, 0, 1),
        tf.strings.regex_replace(words, "a", "b"),
        tf.strings.to_number(tf.strings.as_string(ids)),
    ]
    results += [
        tf.random.stateless_uniform([4, 3], [1, 2]),
        tf.random.stateless_uniform([4], [1, 2], 0, 9, tf.int32),
        tf.random.normal([5]),
    ]
    results += [
        tf.random.uniform([5], 0, 9, tf.int32),
        tf.nn.log_softmax(x),
        tf.nn.l2_loss(x),
        tf.math.erf(x),
        tf.clip_by_value(x, 0, 1),
    ]
    results += [
        tf.reduce_min(x),
        tf.reduce_prod(x, 1),
        tf.reduce_all(x > 0, 0),
        tf.reduce_any(x > 0),
        tf.argmin(x),
        tf.math.cumprod(x),
    ]
    results += [tf.math.segment_sum(x, ids), tf.sparse.segment_mean(x, ids, ids), tf.pad(x, [[1, 1], [0, 0]], "REFLECT")]
    results += [
        tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.eye(8)), x),
        tf.reverse_sequence(x, ids, 1),
        tf.expand_dims(x, 1),
    ]
    results += [tf.image.combined_non_max_suppression(tf.reshape(x, [2, 12, 1, 4]), tf.reshape(x[:6], [2, 12, 3]), 5, 5)]
    volume = image[..., tf.newaxis]
    with tf.GradientTape() as tape:
        tape.watch([volume, kernel, square])
        y = tf.nn.conv3d(volume, tf.reshape(kernel, [3, 3, 3, 1, 4]), [1, 2, 2, 1, 1], "SAME")
        loss = tf.reduce_sum(tf.nn.avg_pool3d(y, 2, 2, "VALID")) + tf.linalg.logdet(
            tf.linalg.triangular_solve(spread, square) @ spread
        )
    results += tape.gradient(loss, [volume, kernel, square])
    results += [tf.image.resize(image, [4, 4], "bicubic"), tf.image.resize(image, [4, 4], "area"), tf.signal.rfft2d(x)]
    results += [
        tf.random.truncated_normal([3]),
        tf.random.uniform([3]),
        tf.random.stateless_normal([3], [1, 2]),
        tf.linalg.set_diag(square, x[:, 0]),
    ]
    results += [raw.UnsortedSegmentMax(data=x, segment_ids=ids, num_segments=4), tf.tensor_scatter_nd_update(x, ids[:, None], x)]
    table.scatter_nd_update(ids[:, None], table[:8])
    table.scatter_update(tf.IndexedSlices(table[:8], ids))
    raw.ResourceSparseApplyMomentum(var=table.handle, accum=slot.handle, lr=0.1, grad=table[:8], indices=ids, momentum=0.9)
    table.scatter_add(tf.IndexedSlices(table[:8], ids))
    table.assign_add(table * 0.5)
    adam = {"beta1_power": 0.9, "beta2_power": 0.9, "lr": 0.1, "beta1": 0.9, "beta2": 0.9, "epsilon": 1e-7}
    raw.ResourceApplyAdam(var=table.handle, m=slot.handle, v=slot.handle, grad=table * 0.1, **adam)
    raw.ResourceApplyGradientDescent(var=table.handle, alpha=0.1, delta=table * 0.1)
    raw.ResourceSparseApplyAdagrad(var=table.handle, accum=slot.handle, lr=0.1, grad=table[:8], indices=ids)
    return results


@pytest.fixture(scope="module")
def graph() -> placer.OpGraph:
    table, slot = tf.Variable(tf.ones([40, 6])), tf.Variable(tf.ones([40, 6]))
    args = [tf.ones([8, 12]), tf.ones([2, 16, 16, 3]), tf.range(8), tf.constant(["a"] * 8)]
    return placer.build_graph(tf.function(lambda *args: many_ops(*args, table, slot)), *args)


def works(graph: placer.OpGraph) -> Iterator[OpSignature]:
    """The different ops with something to measure."""
    for signature in dict.fromkeys(op.signature for op in graph if op.role == "op"):
        work = work_of(signature)
        if work.kernels or work.cpu_serial_ns:
            yield signature


def test_an_op_is_given_what_makes_it_do_what_its_signature_says(graph: placer.OpGraph) -> None:
    """A bench runs the op once and compares its results' shapes; only what has no fixed shape may be refused."""
    benched, refused = set(), {}
    with plain_graphs():
        for signature in works(graph):
            try:
                Bench(signature, "CPU:0")
                benched.add(signature.op_type)
            except UnmeasurableError as error:
                refused.setdefault(signature.op_type, []).append((str(error), signature))
    for op_type, reasons in refused.items():
        for reason, signature in reasons:
            assert "not known" in reason, f"{op_type}: {reason}: {signature}"
    assert len(benched) >= 125
    assert len(benched & types_where(lambda entry: entry.recipe is not no_values)) >= 80


def floats(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape)


T = (("T", "float32"),)
DOZEN = [
    OpSignature("AddV2", (floats(256, 256), floats(256)), (floats(256, 256),), T),
    OpSignature("MatMul", (floats(64, 32), floats(16, 32)), (floats(64, 16),), (*T, ("transpose_b", True))),
    OpSignature("Softmax", (floats(32, 100),), (floats(32, 100),), T),
    OpSignature("Cumsum", (floats(64, 64), TensorSpec("int32", ())), (floats(64, 64),), T),
    OpSignature("Sum", (floats(640, 32), TensorSpec("int32", (1,))), (floats(32),), T),
    OpSignature("Transpose", (floats(80, 16, 40), TensorSpec("int32", (3,))), (floats(40, 16, 80),), T),
    OpSignature(
        "Unique", (TensorSpec("int64", (500,)),), (TensorSpec("int64", (None,)), TensorSpec("int32", (500,))), (("T", "int64"),)
    ),
    OpSignature("StringToHashBucketFast", (TensorSpec("string", (100,)),), (TensorSpec("int64", (100,)),), (("num_buckets", 7),)),
    OpSignature(
        "Conv2D",
        (floats(1, 16, 16, 3), floats(3, 3, 3, 8)),
        (floats(1, 8, 8, 8),),
        (*T, ("padding", "SAME"), ("strides", (1, 2, 2, 1))),
    ),
    OpSignature("AssignAddVariableOp", (TensorSpec("resource", ()), floats(64, 640)), (), (("dtype", "float32"),)),
    OpSignature(
        "ResourceGather",
        (TensorSpec("resource", ()), TensorSpec("int32", (320,))),
        (floats(320, 8),),
        (("Tindices", "int32"), ("dtype", "float32")),
    ),
    OpSignature("RandomStandardNormal", (TensorSpec("int32", (2,)),), (floats(160, 16),), (("T", "int32"), ("dtype", "float32"))),
]


@pytest.mark.parametrize("signature", DOZEN, ids=lambda signature: signature.op_type)
def test_a_dozen_ops_take_time(signature: OpSignature) -> None:
    found = measured(signature)
    assert 0 < found.time_ns < 10**9
    assert found.time_ns == found.dispatch_ns + found.compute_ns
    assert min(found.dispatch_ns, found.compute_ns, found.spread) >= 0


def measured(signature: OpSignature, device: Any = CPU, effort_s: float = 0.05) -> Any:
    """On a busy machine a tiny op can get lost between others' work; a longer look finds it."""
    for patience in (1, 10, 60):
        try:
            return timing.measure(signature, device, patience * effort_s)
        except UnmeasurableError as error:
            why = error
    raise why


def test_dispatch_and_compute_are_told_apart_behind_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way a GPU is measured, on a CPU, where nothing overlaps: both are the whole."""
    monkeypatch.setattr(chains, "DELAY_SIDE", 64)
    asynchronous = placer.load_machine("h100").device("GPU:0")
    product = OpSignature("MatMul", (floats(256, 256), floats(256, 256)), (floats(256, 256),), T)
    found = measured(product, type(asynchronous)(**{**fields_of(asynchronous), "name": "CPU:1", "kind": "CPU"}))
    assert found.time_ns == max(found.dispatch_ns, found.compute_ns) > 0


def fields_of(device: Any) -> dict[str, Any]:
    return {name: getattr(device, name) for name in device.__dataclass_fields__}


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (OpSignature("PrintV2", (TensorSpec("string", ()),), ()), "side effects"),
        *(
            (OpSignature(op_type, (floats(2),), (floats(2),), (("token", "t"),)), "side effects")
            for op_type in sorted(types_where(lambda entry: entry.unseen_code == "python"))
        ),
        (OpSignature("Abort", (), ()), "side effects"),
        (OpSignature("DebugIdentity", (floats(2),), (floats(2),), (*T, ("debug_urls", ("file:///tmp/a",)))), "side effects"),
        (OpSignature("LookupTableFindV2", (TensorSpec("resource", ()), floats(2)), (floats(2),)), "side effects|no variable"),
        (OpSignature("StatelessWhile", (floats(2),), (floats(2),)), "calls a function"),
        (OpSignature("PartitionedCall", (floats(2),), (floats(2),)), "calls a function"),
        (OpSignature("BranchMerge", (floats(2),), (floats(2),)), "no op of its own"),
        (OpSignature("Relu", (floats(2, None),), (floats(2, None),), T), "not known"),
        (OpSignature("Relu", (floats(2),), (floats(3),), T), r"a result has the shape \[2\], not \[3\]"),
        (OpSignature("Relu", (floats(2**34),), (floats(2**34),), T), "192.0 GiB to measure, and .* GiB of memory are free"),
        (OpSignature("MatMul", (floats(2, 3), floats(2, 3)), (floats(2, 3),), T), "TensorFlow refuses"),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_what_cannot_be_run_by_itself_is_refused_with_the_reason(signature: OpSignature, why: str) -> None:
    with pytest.raises(UnmeasurableError, match=why):
        timing.measure(signature, CPU)


def test_the_users_functions_are_not_compiled_again_for_a_measurement() -> None:
    """Their random numbers would begin anew, in other threads while it lasts and in all after it."""
    draw = tf.function(lambda: tf.random.uniform([], seed=3))
    drawn = [float(draw())]
    with plain_graphs(), ThreadPoolExecutor(1) as elsewhere:
        drawn.append(elsewhere.submit(lambda: float(draw())).result())
    drawn.append(float(draw()))
    assert len({*drawn}) == 3


def test_large_variables_made_for_a_measurement_are_gone_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Watched(Bench):
        def __init__(self, op: OpSignature, device: str) -> None:
            super().__init__(op, device)
            made.extend(weakref.ref(variable.handle) for variable in self._variables.values())

    monkeypatch.setattr(timing, "Bench", Watched)
    monkeypatch.setattr(timing, "_spread", lambda *_: 0.0)  # a read takes next to no time, which is easily lost in the noise
    read = OpSignature("ReadVariableOp", (TensorSpec("resource", ()),), (floats(2**12, 2**13),), (("dtype", "float32"),))
    timing.measure(read, CPU, 0.01)
    assert [handle() for handle in made] == [None]


def test_profiling_measures_each_op_once_and_leaves_the_users_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    weights = tf.Variable(tf.ones([64, 64]))
    options = tf.config.optimizer.get_experimental_options()

    @placer.optimized_placement
    def step(x: Any) -> Any:
        weights.assign_sub(0.1 * tf.matmul(x, x))
        tf.print("this must not be seen")
        return tf.nn.softmax(tf.matmul(tf.matmul(x, weights), weights) + x[0])

    x = tf.ones([64, 64])
    assert step.profile(x, budget_s=1e-6).remaining > 0
    first = step.profile(x, budget_s=60)
    again = step.profile(x, budget_s=60)
    assert first.remaining == again.remaining == 0
    assert first.measured >= 1
    assert first.known == 0
    assert again.known == first.measured
    assert sum(Store().counts().values()) == first.measured + again.measured
    assert set(Store().counts()) == {(local_machine().device("CPU:0").model, installed_tensorflow())}
    assert weights.numpy().tolist() == [[1.0] * 64] * 64
    assert tf.config.optimizer.get_experimental_options() == options

    replanned = placer.solve(step.placement.graph)
    assert {plan.cost_source for plan in replanned.ops.values()} >= {"measured", ""}
    with pytest.raises(placer.OptionError, match="budget_s"):
        profile(replanned.graph, 0)


@pytest.mark.parametrize("stopped", [False, True])
def test_what_is_profiled_before_its_first_call_is_planned_by_what_was_measured(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))

    @placer.optimized_placement
    def step(x: Any) -> Any:
        return tf.nn.softmax(x)

    def measured(graph: placer.OpGraph, budget_s: float) -> Profile:
        model, figures = local_machine().device("CPU:0").model, Measurement(10**6, 0, 10**6, 0.0)
        Store().put([Row(model, installed_tensorflow(), op.signature, figures) for op in graph if op.op_type == "Softmax"])
        if stopped:
            raise KeyboardInterrupt
        return Profile(1, 0, 0, {}, 1.0)

    planned, later = tf.ones([8, 8]), tf.ones([9, 9])
    before = step.plan(planned)
    monkeypatch.setattr("placer.verbs.profile.profile", measured)
    for x in (planned, later):
        with pytest.raises(KeyboardInterrupt) if stopped else nullcontext():
            step.profile(x)
    assert step.plan(planned) == before
    step(later)
    assert "measured" in {plan.cost_source for plan in step.placement.ops.values()}


def test_what_becomes_of_each_op_is_told_and_what_acts_on_the_user_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """However little time there is, what cannot be run is not said to be left."""
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    called: list[int] = []
    kept, numbers = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0), tf.random.Generator.from_seed(1)
    variable, keys, x = tf.Variable(tf.zeros([8, 8])), tf.constant([1, 2], tf.int64), tf.ones([8, 8])

    @tf.function
    def step(x: Any) -> Any:
        tf.print("this must not be seen")
        tf.debugging.assert_less(tf.reduce_sum(x), 1e9)
        y = tf.ensure_shape(tf.py_function(lambda a: (called.append(1), a)[1], [x], tf.float32), x.shape)
        kept.insert(keys, kept.lookup(keys) + tf.random.uniform([2]))
        rows = tf.TensorArray(tf.float32, 4, element_shape=[8, 8])
        for i in tf.range(4):
            rows = rows.write(i, tf.matmul(y, x) + numbers.normal([8, 8]))
        variable.assign_add(y)
        return tf.reduce_sum(rows.stack())

    graph = placer.build_graph(step, x)
    tf.random.set_seed(7)
    drawn = tf.random.uniform([2]).numpy().tolist()
    tf.random.set_seed(7)
    state = numbers.state.numpy().tolist()
    for budget_s in (1e-6, 60):
        found = profile(graph, budget_s)
        told = sum(count for types in found.refused.values() for count in types.values())
        assert found.measured + found.known + found.remaining + told == len({op.signature for op in graph})
        reasons = {op_type: why for why, types in found.refused.items() for op_type in types}
        for op_type in ("PrintV2", "Assert", "EagerPyFunc", "LookupTableFindV2", "LookupTableInsertV2", "RngReadAndSkip"):
            assert reasons[op_type] == "it has side effects"
            assert op_type in str(found)
        assert {"If", "While", "TensorListReserve", "TensorListSetItem", "Placeholder"} <= reasons.keys()
        assert found.refused["its cost is only the time to start it"]["Placeholder"] > 1
    assert found.remaining == 0
    run = {row.signature.op_type for row in Store().rows()} | found.refused.get("its time is lost in the noise", {}).keys()
    assert run >= {"RandomUniform", "AssignAddVariableOp", "MatMul"}
    assert (called, kept.size().numpy(), variable.numpy().any(), numbers.state.numpy().tolist()) == ([], 0, False, state)
    assert tf.random.uniform([2]).numpy().tolist() == drawn
    assert "seen" not in "".join(capfd.readouterr())


def test_an_op_that_no_device_here_runs_or_no_step_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    one = placer.build_graph(tf.function(lambda x: tf.sqrt(tf.tanh(x))), tf.ones([16]))
    tanh, sqrt = (next(op for op in one if op.op_type == op_type) for op_type in ("Tanh", "Sqrt"))
    one.graph.nodes[tanh.name]["op"] = replace(tanh, kernels={"GPU": Kernel()})
    one.graph.nodes[sqrt.name]["op"] = replace(sqrt, count=0.0)
    found = profile(one)
    assert found.refused["no device here has a kernel for it"] == {"Tanh": 1}
    assert found.refused["no step runs it"] == {"Sqrt": 1}
    assert found.measured == found.remaining == 0


def test_an_op_that_takes_long_keeps_to_the_time_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is thought to take a hundredth of that, so that only running it tells."""
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    x = tf.ones([1500, 1500])
    graph = placer.build_graph(tf.function(lambda x: tf.math.igamma(x, x)), x)
    assert (found := profile(graph, 0.2)).remaining == 1
    assert "1 not measured for lack of time" in str(found)
    assert found.measured == 0
    assert profile(graph, 60).measured == 1
    monkeypatch.setattr(timing, "_LONG_S", 0.0)
    alone = timing.measure(graph.op("Igamma").signature, CPU)
    assert alone.time_ns == alone.dispatch_ns + alone.compute_ns > 0


def test_several_functions_share_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))
    x = tf.ones([16, 16])
    one, other = (placer.build_graph(tf.function(fn), x) for fn in (lambda x: tf.tanh(x @ x), lambda x: tf.sqrt(x @ x)))
    found = profile([one, other])
    assert found.remaining == found.known == 0
    lost = [op_type for types in found.refused.values() for op_type in types if op_type in ("MatMul", "Tanh", "Sqrt")]
    assert found.measured + len(lost) == 3  # in a disturbed run, an op may be lost in the noise
    assert profile([other, one]).known == found.measured


def test_outputs_that_are_made_only_where_something_takes_them_are_taken() -> None:
    """Columns of a matrix, taken apart in two ways that do the same work."""
    matrix, column = TensorSpec("float32", (4096, 32)), TensorSpec("float32", (4096, 1))
    apart = OpSignature("Unpack", (matrix,), (TensorSpec("float32", (4096,)),) * 32, (("T", "float32"), ("axis", 1), ("num", 32)))
    split = OpSignature("Split", (TensorSpec("int32", ()), matrix), (column,) * 32, (("T", "float32"), ("num_split", 32)))
    assert timing.measure(apart, CPU).time_ns > timing.measure(split, CPU).time_ns / 5
