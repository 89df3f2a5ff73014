"""Functions that serve requests: one plan for a range of batch sizes, calls that warm up, and plans that a thread makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from placer.errors import PlanError
from placer.placed.signatures import Signatures
from placer.problem.problem import Assignment, PlacementProblem
from tests.helpers.machines import two_cpus

W = tf.constant(np.linspace(-0.05, 0.05, 512 * 512, dtype=np.float32).reshape(512, 512))
ANY_BATCH = tf.TensorSpec([None, 512], tf.float32)


def batch(size: int) -> tf.Tensor:
    return tf.constant(np.linspace(-1, 1, 512 * size, dtype=np.float32).reshape(size, 512))


def layers(x: Any) -> Any:
    for _ in range(3):
        x = tf.tanh(x @ W)
    return {"y": x}


def ran_on(served: Any, x: Any) -> set[str]:
    """The devices of the products in a call."""
    placed = served.bucket_of(x).placed
    ran = placed.observe(x).ran
    return {device for name, device in ran.items() if placed.placement.graph.op(name).op_type == "MatMul"}


def test_sizes_that_need_different_plans_have_them() -> None:
    """A small batch is not worth the copies to the fast device, a large one is."""
    served = placer.serve(layers, ANY_BATCH, batch_sizes=(1, 4096), devices=two_cpus(link_latency_ns=300_000), race="off")
    assert 1 < len(served.buckets) <= 8
    assert [bucket.low for bucket in served.buckets[1:]] == [bucket.high + 1 for bucket in served.buckets[:-1]]
    assert repr(served).startswith("<ServedFunction 'layers': batches of 1 to ")
    assert repr(served).endswith("to 4096 on CPU:0 and CPU:1>")
    assert ran_on(served, batch(1)) == {"CPU:0"}
    assert ran_on(served, batch(4096)) == {"CPU:1"}
    for size in (1, 2, 100, 4096, 5000):
        np.testing.assert_allclose(served(batch(size))["y"], layers(batch(size))["y"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(served(x=batch(3))["y"], layers(batch(3))["y"], rtol=1e-4, atol=1e-6)


def test_sizes_that_need_one_plan_have_one_and_one_trace() -> None:
    function = tf.function(layers, input_signature=[ANY_BATCH])
    served = placer.serve(function, batch_sizes=(1, 64), devices=two_cpus(), pins={"MatMul": "CPU:1"}, race="off")
    assert [(bucket.low, bucket.high) for bucket in served.buckets] == [(1, 64)]
    for size in (1, 7, 64):
        assert ran_on(served, batch(size)) == {"CPU:1"}
    assert function.experimental_get_tracing_count() == 1


def test_a_signature_of_a_loaded_model_is_served(tmp_path: Any) -> None:
    model = tf.Module()
    tf.saved_model.save(model, str(tmp_path), signatures=tf.function(layers, input_signature=[ANY_BATCH]))
    loaded = placer.load(tmp_path)
    served = placer.serve(loaded.signatures["serving_default"], batch_sizes=(1, 8), devices=two_cpus(), race="off")
    served.warm_up()
    for call in (served(x=batch(3)), served(batch(3))):
        np.testing.assert_allclose(call["y"], layers(batch(3))["y"], rtol=1e-4, atol=1e-6)


def test_batches_in_a_dict_or_a_list_are_served() -> None:
    def fn(scale: Any, parts: Any) -> Any:
        return scale * layers(parts["x"])["y"]

    types = (tf.TensorSpec([]), {"rest": [tf.TensorSpec([3])], "x": ANY_BATCH})
    served = placer.serve(fn, *types, batch_sizes=(1, 4096), devices=two_cpus(), race="off")
    served.warm_up()
    for size in (1, 7, 5000):
        call = tf.constant(2.0), {"rest": [np.ones(3, "float32")], "x": batch(size)}
        np.testing.assert_allclose(served(*call), fn(*call), rtol=1e-4, atol=1e-5)
        bucket = served.bucket_of(*call)
        assert bucket.low <= size <= bucket.high or size > bucket.high == 4096


@pytest.mark.parametrize(
    ("types", "batch_sizes", "message"),
    [
        ([ANY_BATCH], (0, 4), "no range"),
        ([ANY_BATCH], (5, 4), "no range"),
        ([ANY_BATCH], 4, "no range"),
        ([tf.TensorSpec([4, 512])], (1, 4), "no argument"),
        ([tf.TensorSpec([None, None])], (1, 4), "leaves more open"),
    ],
)
def test_what_is_no_range_of_batches_is_refused(types: list[Any], batch_sizes: Any, message: str) -> None:
    with pytest.raises(placer.OptionError, match=message):
        placer.serve(layers, *types, batch_sizes=batch_sizes)


def test_batches_that_are_not_dense_are_refused_by_name() -> None:
    def fn(scale: Any, batch: Any) -> Any:
        return scale * (batch.to_tensor() if isinstance(batch, tf.RaggedTensor) else tf.sparse.to_dense(batch))

    for spec in (tf.RaggedTensorSpec([None, None]), tf.SparseTensorSpec([None, 512])):
        with pytest.raises(placer.OptionError, match=f"argument 'batch' is a {spec.value_type.__name__}"):
            placer.serve(fn, tf.TensorSpec([]), spec, batch_sizes=(1, 4))


def test_after_warming_up_no_request_is_traced_planned_or_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    count = tf.Variable(3.0)

    @tf.function
    def counting(x: Any) -> Any:
        return tf.tanh(x) * count.assign_add(1.0)

    step = placer.place(counting, devices=two_cpus(), race="force")
    step.warm_up([(batch(1),), batch(2), {"x": tf.TensorSpec([3, 512])}])
    assert count.numpy() == 3.0
    traces = counting.experimental_get_tracing_count()

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("a request is planned")

    monkeypatch.setattr(Signatures, "prepare", refused)
    for size in (1, 2):
        before = count.numpy()
        np.testing.assert_allclose(step(batch(size)), np.tanh(batch(size)) * (before + 1), rtol=1e-5)
        assert step.placement.verdict is not None
    step(x=batch(3))
    assert counting.experimental_get_tracing_count() == traces
    with pytest.raises(placer.OptionError, match="no list"):
        step.warm_up(batch(1))


def slow_solver(may_end: threading.Event) -> Callable[[PlacementProblem], Assignment]:
    def solve(problem: PlacementProblem) -> Assignment:
        assert may_end.wait(60)
        return Assignment(problem.units.allowed.shape[1] - 1 - problem.units.allowed[:, ::-1].argmax(axis=1))

    return solve


def test_calls_run_plain_until_a_thread_has_made_the_plan() -> None:
    may_end = threading.Event()
    step = placer.place(layers, devices=two_cpus(), solver=slow_solver(may_end), planning="background")
    with ThreadPoolExecutor(4) as requests:
        results = list(requests.map(lambda _: step(batch(2))["y"], range(8)))
    with pytest.raises(PlanError, match="no plan yet"):
        _ = step.placement
    may_end.set()
    until = time.monotonic() + 60
    while not step.placements and time.monotonic() < until:
        time.sleep(0.01)
    for result in [*results, step(batch(2))["y"]]:
        np.testing.assert_allclose(result, layers(batch(2))["y"], rtol=1e-4, atol=1e-6)
    assert "CPU:1" in step.observe(batch(2)).ran.values()


def test_calls_go_on_if_the_thread_fails(recwarn: pytest.WarningsRecorder) -> None:
    def fails(problem: PlacementProblem) -> Assignment:
        raise RuntimeError("no idea")

    step = placer.place(layers, devices=two_cpus(), solver=fails, planning="background")
    until = time.monotonic() + 60
    while not len(recwarn) and time.monotonic() < until:
        np.testing.assert_allclose(step(batch(2))["y"], layers(batch(2))["y"], rtol=1e-4, atol=1e-6)
    assert "no idea" in str(recwarn.pop(placer.PlacementWarning).message)
    with pytest.raises(placer.OptionError, match='variables="move"'):
        placer.place(layers, planning="background", variables="move")
