"""Harvesting: the profiler's record of real steps, told per planned op, and kept as measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import placer
from cost_models.machine_files import load_machine
from cost_models.ops import as_measured
from cost_models.store import Store
from placer.tf.devices import local_machine
from placer.tf.run import harvesting

STEPS = 4


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path))


def test_each_run_of_each_op_is_told_and_its_median_kept() -> None:
    table = tf.Variable(np.ones((300, 300), np.float32))

    @placer.optimized_placement(pins={"far/*": "CPU:1"})
    def step(x: Any) -> Any:
        with tf.name_scope("far"):
            y = tf.matmul(x, x) / 300.0
        for _ in tf.range(3):
            y = tf.sin(tf.matmul(y, table)) / 300.0
        table.assign_add(y)
        return tf.reduce_sum(tf.unique(tf.reshape(y, [-1])).y)

    x = tf.constant(np.random.default_rng(0).random((300, 300), np.float32))
    found = step.harvest(x, steps=STEPS)
    assert table.numpy().tolist() == np.ones((300, 300)).tolist()

    events = json.loads(step.placement.view("timeline", measured=found.spans))["traceEvents"]
    (pid,) = {e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == "host measured"}
    shown = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
    assert sum(e["name"] == "Unique" for e in shown) == STEPS
    assert min(e["ts"] for e in shown) == 0
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid]
    assert len(set(tracks)) == len(tracks)
    assert all(re.fullmatch(r"[\w.-]+ \d+", track) for track in tracks)
    for track in {e["tid"] for e in shown}:  # spans of a thread are apart or one in the other
        spans = sorted((e["ts"], -e["dur"]) for e in shown if e["tid"] == track)
        ends: list[float] = []
        for start, length in spans:
            while ends and ends[-1] <= start + 1e-6:
                ends.pop()
            assert not ends or start - length <= ends[-1] + 1e-6
            ends.append(start - length)

    graph = step.placement.graph
    by_type = {graph.op(name).op_type: node for name, node in found.nodes.items()}
    assert len(by_type["Unique"].host_ns) == STEPS
    assert len(by_type["AssignAddVariableOp"].host_ns) == STEPS
    in_loop = [node for name, node in found.nodes.items() if graph.op(name).op_type == "MatMul" and "far" not in name]
    assert [len(node.host_ns) for node in in_loop] == [3 * STEPS]
    assert all(0 < ns < 10**9 for node in in_loop for ns in node.host_ns)

    model = local_machine().device("CPU:0").model
    kept = {row.signature: row.measured for row in Store().rows() if row.device_model == model}
    unique = as_measured(next(graph.op(name).signature for name in found.nodes if graph.op(name).op_type == "Unique"))
    assert kept[unique].compute_ns == pytest.approx(np.median(by_type["Unique"].host_ns), abs=1)
    assert kept[unique].time_ns == kept[unique].dispatch_ns + kept[unique].compute_ns
    assert {plan.cost_source for name, plan in placer.solve(graph).ops.items() if name in found.nodes} >= {"harvested"}
    assert step.profile(x).measured
    measured_since = {row.signature.op_type for row in Store().rows() if not row.measured.harvested}
    assert measured_since >= {"MatMul", "Unique", "Sin"}


def test_what_cannot_be_harvested_is_told_before_the_function_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tf.Variable(0)

    @placer.optimized_placement
    def step() -> Any:
        tf.numpy_function(lambda: np.int32(calls.assign_add(1)), [], tf.int32)

    for steps in (0, -1, 1.5, "2", True):
        with pytest.raises(placer.OptionError, match="steps"):
            step.harvest(steps=steps)
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("PLACER_CACHE", str(tmp_path / "taken"))
    with pytest.raises(placer.PlacerError, match="PLACER_CACHE"):
        step.harvest()
    assert calls.numpy() == 0


def test_what_is_fused_is_told_and_is_no_ops_measurement() -> None:
    weights = tf.Variable(np.ones((64, 64), np.float32))
    bias = tf.Variable(np.ones(64, np.float32))

    @placer.optimized_placement(pins={"*": "CPU:0"})
    def layer(x: Any) -> Any:
        return tf.reduce_sum(tf.nn.relu(tf.nn.bias_add(x @ weights, bias)))

    found = layer.harvest(tf.ones([64, 64]), steps=STEPS)
    fused = {name: node for name, node in found.nodes.items() if "Fused" in node.op_type}
    assert fused
    assert not {"MatMul", "BiasAdd", "Relu"} & {row.signature.op_type for row in Store().rows()}


def test_kernels_and_copies_of_a_gpu_are_given_to_the_nodes_that_started_them() -> None:
    """As a machine with a GPU records them: kernels and copies on the device's plane, launches on the host's."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    placement = placer.solve(
        placer.build_graph(tf.function(lambda x: tf.sin(tf.matmul(x, x))), tf.ones([64, 64])), "h100", solver="all_gpu"
    )
    space = xplane_pb2.XSpace()
    host, device = space.planes.add(name="/host:CPU"), space.planes.add(name="/device:GPU:0")
    for step in range(STEPS):
        _add(host, "MatMul:MatMul", step * 1000, 6)
        _add(host, "x/_1:_Recv", step * 1000, 50)
        _add(device, "MemcpyH2D", step * 1000, 9, tf_op="x/_1:_Recv", memcpy_details="kind_src:pinned kind_dst:device size:16384")
        _add(device, "gemm", step * 1000 + 10, 20 + step, tf_op="MatMul:MatMul")
        _add(device, "reduce", step * 1000 + 60, 5, tf_op="MatMul:MatMul")
        _add(device, "sin", step * 1000 + 70, 3, tf_op="Sin:Sin")
    found = harvesting.read_record(space.SerializeToString(), placement, STEPS)
    assert found.nodes["MatMul"] == harvesting.NodeTime("MatMul", (6_000,) * 4, (25_000, 26_000, 27_000, 28_000))
    assert found.nodes["Sin"].device_ns == (3_000,) * 4
    streams = [span for span in found.spans if span.process == "GPU:0 measured"]
    assert [(s.name, s.start_ns, s.end_ns, s.about["op"]) for s in streams[:2]] == [
        ("MemcpyH2D 16.0 KiB", 0, 9_000, "x/_1"),
        ("gemm", 10_000, 30_000, "MatMul"),
    ]
    assert found.copies == (harvesting.CopyTime("x/_1", 16384, "MemcpyH2D", (9_000,) * 4),)

    machine = load_machine("h100")
    kept = {signature.op_type: figures for _, signature, figures in found.measurements(placement, machine)}
    assert set(kept) == {"MatMul"}  # what the host took for the other is not told
    dispatch = machine.device("CPU:0").dispatch_ns + 6_000
    assert (kept["MatMul"].time_ns, kept["MatMul"].dispatch_ns, kept["MatMul"].compute_ns) == (26_500, dispatch, 26_500)


def _add(plane: Any, name: str, start_us: int, took_us: int, **stats: str) -> None:
    line = plane.lines[0] if plane.lines else plane.lines.add()
    number = len(plane.event_metadata) + 1
    plane.event_metadata[number].name = name
    event = line.events.add(metadata_id=number, offset_ps=start_us * 10**6, duration_ps=took_us * 10**6)
    for key, value in stats.items():
        stat = len(plane.stat_metadata) + 1
        plane.stat_metadata[stat].name = key
        event.stats.add(metadata_id=stat, str_value=value)
