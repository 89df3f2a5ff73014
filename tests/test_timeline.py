"""The predicted step: a schedule that holds, and trace events that tell it whole, in the format that viewers read."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.placement import Placement
from placer.solving import solve
from placer.views.timeline import COPIES, lanes
from tests.graphs import layers, loop_then_wide, stacked, towers

PLANS = {
    "layers": solve(layers(), "h100", pins={"layer1/*": "CPU:0"}),
    "loop": solve(loop_then_wide(), "h100"),
    "towers": solve(towers(), "2xh100", pins={"left/*": "GPU:1", "front/embed3": "CPU:0"}),
    "stacked": solve(stacked(4), "h100", pins={"block1/*": "CPU:0"}),
}
each = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def trace(plan: Placement) -> list[dict[str, Any]]:
    return json.loads(plan.view("timeline"))["traceEvents"]


@each
def test_nothing_starts_before_what_it_needs_is_there(plan: Placement) -> None:
    arrived = {(t.producer, t.dst): t.end_ns for t in plan.transfers}
    for src, dst in plan.graph.graph.edges:
        made, takes = plan.ops[src], plan.ops[dst]
        if plan.graph.op(src).role != "constant" and made.device != takes.device:
            assert takes.start_ns >= arrived[src, takes.device] or not takes.end_ns
        elif not made.streamed:
            assert takes.start_ns >= made.end_ns
    assert all(t.end_ns - t.start_ns >= t.time_ns for t in plan.transfers)
    assert max(op.end_ns for op in plan.ops.values()) <= plan.step_time_ns


@each
def test_memory_over_ops_has_the_peak_that_is_said(plan: Placement) -> None:
    for device, total in plan.totals.items():
        assert max(plan.memory[device]) == total.peak_bytes
        assert min(plan.memory[device]) >= total.persistent_bytes


@each
def test_every_event_is_of_the_trace_event_format(plan: Placement) -> None:
    needed = {
        "M": {"name", "pid", "args"},
        "X": {"name", "pid", "tid", "ts", "dur", "args"},
        "C": {"name", "pid", "ts", "args"},
        "s": {"name", "cat", "id", "pid", "tid", "ts"},
        "t": {"name", "cat", "id", "pid", "tid", "ts"},
        "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    }
    named = set()
    for event in trace(plan):
        assert needed[event["ph"]] <= set(event)
        assert all(isinstance(event[key], (int, float)) and event[key] >= 0 for key in {"ts", "dur", "pid", "tid"} & set(event))
        if event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
        if event["ph"] in "Xstf":
            assert (event["pid"], event["tid"]) in named


@each
def test_every_op_and_transfer_that_takes_time_has_its_slice_and_no_two_overlap(plan: Placement) -> None:
    events = trace(plan)
    process = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    ops, copies = {}, []
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            if process[event["pid"]] == COPIES:
                copies.append(event)
            elif "op" in event["args"]:
                ops[event["args"]["op"]] = (process[event["pid"]], event["ts"], event["dur"])
    assert set(ops) == {name for name, op in plan.ops.items() if op.end_ns > op.start_ns}
    for name, (device, start, length) in ops.items():
        op = plan.ops[name]
        assert (device, round(1000 * start), round(1000 * (start + length))) == (op.device, op.start_ns, op.end_ns)
    assert sorted((e["args"]["tensor"], e["args"]["bytes"]) for e in copies) == sorted(
        (t.tensor, t.nbytes) for t in plan.transfers if t.end_ns > t.start_ns
    )
    for pieces in tracks.values():
        assert all(start >= end - 1e-6 for (_, end), (start, _) in pairwise(sorted(pieces)))


@each
def test_arrows_start_and_end_in_slices_and_go_forward(plan: Placement) -> None:
    events = trace(plan)
    slices = defaultdict(list)
    paths = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] in "stf":
            paths[event["id"]].append(event)
            assert any(start <= event["ts"] < end for start, end in slices[event["pid"], event["tid"]])
    assert len(paths) <= len(plan.transfers)
    for path in paths.values():
        assert "".join(event["ph"] for event in path) in ("sf", "stf")
        assert all(a["ts"] <= b["ts"] for a, b in pairwise(path))


@each
def test_the_counters_highest_point_is_the_peak(plan: Placement) -> None:
    for pid, device in enumerate(plan.devices, 1):
        held = [(event["ts"], event["args"]["bytes"]) for event in trace(plan) if event["ph"] == "C" and event["pid"] == pid]
        assert max(nbytes for _, nbytes in held) == plan.totals[device].peak_bytes
        assert [at for at, _ in held] == sorted({at for at, _ in held})


@each
def test_perfetto_reads_it(plan: Placement, tmp_path: Path) -> None:
    perfetto = pytest.importorskip("perfetto.trace_processor")
    program = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if program is None:
        pytest.skip("Perfetto's trace_processor is not installed")
    plan.write("timeline", tmp_path / "trace.json")
    config = perfetto.TraceProcessorConfig(bin_path=program)
    with perfetto.TraceProcessor(trace=str(tmp_path / "trace.json"), config=config) as processor:
        (row,) = processor.query("select count(*) as n from slice")
        assert row.n == sum(event["ph"] == "X" for event in trace(plan))
        (row,) = processor.query("select count(*) as n from flow")
        assert row.n == sum(event["ph"] in "tf" for event in trace(plan))
        (row,) = processor.query("select sum(value) as n from stats where severity = 'error'")
        assert not row.n


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)).map(lambda s: (s[0], s[0] + s[1]))).map(sorted))
def test_lanes_are_as_few_as_overlap(spans: list[tuple[int, int]]) -> None:
    found = lanes(spans)
    for i, (start, _) in enumerate(spans):
        assert all(found[j] != found[i] or spans[j][1] <= start for j in range(i))
    most = max((sum(a <= moment < b or a == moment == b for a, b in spans) for moment in range(30)), default=0)
    assert max(found, default=-1) + 1 <= max(most, 1)
