"""The five real inputs: planned for a machine that is not here, and run by plan on two devices that are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from examples import workloads
from examples.workloads import Workload
from placer.plan.placement import Placement
from placer.solvers.base import MIN_GAIN
from tests.helpers.machines import two_cpus

FIVE: dict[str, Callable[[workloads.Size], Workload]] = {
    "resnet50": workloads.resnet50_training,
    "encoder": workloads.encoder_training,
    "lstm_then_wide": workloads.lstm_then_wide,
    "detector": workloads.detector,
    "recommender": workloads.recommender_training,
}


@cache
def planned_for_h100(name: str) -> Placement:
    """The full-size function's plan; it is traced here, and never run."""
    work = FIVE[name]("full")
    return placer.solve(placer.build_graph(placer.trace(work.fn, *work.args)), "h100")


def devices_of(placement: Placement, *op_types: str) -> set[str]:
    """The devices that ops of these types are on; fails where there are none."""
    found = {plan.device for name, plan in placement.ops.items() if signature(placement, name).op_type in op_types}
    assert found, f"no {' or '.join(op_types)} in {placement.graph.name}"
    return found


def signature(placement: Placement, name: str) -> Any:
    return placement.graph.graph.nodes[name]["op"].signature


@pytest.mark.parametrize("name", FIVE)
def test_no_baseline_beats_the_plan_for_an_h100(name: str) -> None:
    """TensorFlow's own placement never does; another only where both are too close to it to be told apart."""
    placement = planned_for_h100(name)
    assert set(placement.ops) == set(placement.graph.graph)
    feasible = {label: b.step_time_ns for label, b in placement.baselines.items() if b.feasible}
    assert {"all_cpu", "tf_default"} <= set(feasible)
    assert placement.step_time_ns <= feasible["tf_default"]
    assert placement.step_time_ns * (1 - MIN_GAIN) <= min(feasible.values())


def test_big_convolutions_go_to_the_gpu() -> None:
    assert devices_of(planned_for_h100("resnet50"), "Conv2D", "Conv2DBackpropFilter") == {"GPU:0"}


def test_a_loop_of_tiny_ops_stays_on_the_cpu_and_the_wide_layers_do_not() -> None:
    placement = planned_for_h100("lstm_then_wide")
    ops = placement.graph.graph.nodes.data("op")
    # Constants are copied to where they are used, and counting rounds may be done anywhere on the host.
    computing = [name for name, op in ops if op.body and op.role == "op" and "float32" in str(op.signature)]
    assert len(computing) > 10
    assert {placement.ops[name].device for name in computing} == {"CPU:0"}
    wide = [name for name, op in ops if op.op_type == "MatMul" and op.signature.inputs[1].shape == (4096, 4096)]
    assert len(wide) == 4
    assert {placement.ops[name].device for name in wide} == {"GPU:0"}


def test_the_detector_is_cut_at_its_boxes_and_scores() -> None:
    placement = planned_for_h100("detector")
    assert devices_of(placement, "NonMaxSuppressionV3") == {"CPU:0"}
    assert devices_of(placement, "Conv2D") == {"GPU:0"}
    boxes = 64 * 64
    feature_map_bytes = boxes * 256 * 4
    leaving = [t for t in placement.transfers if t.src == "GPU:0"]
    assert leaving
    assert all(t.nbytes < feature_map_bytes for t in leaving)
    assert sum(t.nbytes for t in leaving) <= 1.01 * boxes * (4 + 10) * 4  # a bias of some bytes may cross beside them


def test_strings_are_hashed_on_the_cpu() -> None:
    assert devices_of(planned_for_h100("recommender"), "StringToHashBucketFast") == {"CPU:0"}


@pytest.mark.parametrize("name", FIVE)
def test_a_plan_that_splits_runs_as_planned_and_computes_the_same(name: str) -> None:
    work = FIVE[name]("small")
    start = [v.numpy() for v in work.state]
    placed = placer.place(work.fn, *work.args, devices=two_cpus(), solver="step_time")  # however little the split gains
    assert {plan.device for plan in placed.placement.ops.values()} == {"CPU:0", "CPU:1"}

    assert placed.observe(*work.args).mismatches == ()

    expected, got = (outcome(work, fn, start) for fn in (work.fn, placed))
    assert any(np.any(after != before) for after, before in zip(expected["state"], start, strict=True)) == work.trains
    for part in expected:
        for number, (want, have) in enumerate(zip(expected[part], got[part], strict=True)):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5, err_msg=f"{part} {number}")


def outcome(work: Workload, fn: Any, start: list[Any]) -> dict[str, list[Any]]:
    """The results and the state after two steps from ``start``, and where a step does not use them up itself, gradients."""
    for variable, value in zip(work.state, start, strict=True):
        variable.assign(value)
    results = [tf.nest.flatten(fn(*work.args)) for _ in range(2)]
    found = {"results": [r.numpy() for r in tf.nest.flatten(results)], "state": [v.numpy() for v in work.state]}
    if not work.trains:
        with tf.GradientTape() as tape:
            total = tf.add_n([tf.reduce_sum(r) for r in tf.nest.flatten(fn(*work.args))])
        found["gradients"] = [g.numpy() for g in tape.gradient(total, work.state)]
    return found
