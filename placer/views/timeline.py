"""The predicted step, and measured ones, as Chrome trace events, for Perfetto (https://ui.perfetto.dev).

The format: "Trace Event Format" (Google, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from placer.common.units import format_bytes
from placer.errors import OptionError
from placer.plan.parts import Transfer
from placer.plan.placement import Placement
from placer.plan.spans import Span
from placer.views.shared.tracks import lanes

STEP, COPIES = "step", "transfers"


def timeline(placement: Placement, *, measured: Sequence[Span] = ()) -> str:
    """The predicted step, and measured ones, as a JSON object of trace events.

    It has a track per stream, thread and link, arrows along transfers, and the memory of each device as a counter. An op that
    takes no time has no slice. An op that runs several times in a step is one slice of its total time.

    Args:
        placement: the plan whose step is drawn.
        measured: measured spans, as `PlacedFunction.harvest` returns them in ``spans``; drawn below the prediction.

    Raises:
        OptionError: `measured` is no list of spans.
    """
    if not isinstance(measured, Sequence) or not all(isinstance(span, Span) for span in measured):
        raise OptionError(f"measured={measured!r} is no list of spans, as step.harvest(...).spans is.")
    slices, arrows = _slices(placement)
    slices |= {f"measured {k}": span for k, span in enumerate(measured)}
    processes = [STEP, *placement.devices, COPIES, *dict.fromkeys(span.process for span in measured)]
    events: list[dict[str, Any]] = []
    for pid, process in enumerate(processes):
        events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}})
        events.append({"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}})
    tids: dict[tuple[str, str], int] = {}
    for piece in slices.values():
        if (piece.process, piece.track) not in tids:
            tid = tids[piece.process, piece.track] = len(tids) + 1
            pid = processes.index(piece.process)
            events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": piece.track}})
    where = {key: {"pid": processes.index(p.process), "tid": tids[p.process, p.track]} for key, p in slices.items()}
    for key, piece in slices.items():
        start, length = piece.start_ns / 1000, (piece.end_ns - piece.start_ns) / 1000
        events.append({"ph": "X", "name": piece.name, "ts": start, "dur": length, **where[key], "args": piece.about})
    for number, path in enumerate(arrows):
        for k, key in enumerate(path):
            ends = k == len(path) - 1
            at = (slices[key].start_ns if k else slices[key].end_ns - 1) / 1000  # inside the slice, or the next one would get it
            event = {"ph": "f" if ends else "t" if k else "s", "id": number, "name": "transfer", "cat": "transfer", "ts": at}
            events.append(event | where[key] | ({"bp": "e"} if k else {}))
    for pid, device in enumerate(placement.devices, 1):
        for at_ns, held in memory_over_time(placement, device):
            events.append({"ph": "C", "pid": pid, "name": "memory", "ts": at_ns / 1000, "args": {"bytes": held}})
    about = {"graph": placement.graph.name, "machine": placement.machine, "step_time_ns": placement.step_time_ns}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}) + "\n"


def memory_over_time(placement: Placement, device: str) -> Iterator[tuple[int, int]]:
    """The changes of the memory that a device holds: time (ns from the start of the step), and the bytes held from then on.

    `Placement.memory` is known per op, as if ops were launched one by one. It is drawn at the op's predicted start; of several
    ops that start together, the largest value is drawn. The maximum is the peak that the memory limit applies to.
    """
    at: dict[int, int] = {}
    for plan, held in zip(placement.ops.values(), placement.memory[device], strict=True):
        at[plan.start_ns] = max(held, at.get(plan.start_ns, 0))
    before = -1
    for moment, held in sorted(at.items()):
        if held != before:
            yield moment, held
        before = held


def _slices(placement: Placement) -> tuple[dict[str, Span], list[list[str]]]:
    """The slices by key, and for each transfer the keys of the slices that its arrow connects."""
    slices: dict[str, Span] = {}
    last = max((plan.end_ns for plan in placement.ops.values()), default=0)
    slices["ops"] = Span(STEP, STEP, "ops and transfers", 0, last, {})
    if placement.step_time_ns > last:
        slices["call"] = Span(STEP, STEP, "the call itself", last, placement.step_time_ns, {})
    tracks: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, plan in placement.ops.items():
        if plan.end_ns > plan.start_ns:
            tracks[plan.device, "stream" if plan.streamed else "thread"].append(name)
    for (device, kind), names in tracks.items():
        names.sort(key=lambda name: placement.ops[name].start_ns)
        for name, lane in zip(names, lanes([(placement.ops[n].start_ns, placement.ops[n].end_ns) for n in names]), strict=True):
            plan, op = placement.ops[name], placement.graph.op(name)
            about = {"op": name, "type": op.op_type, "runs": op.count, "cost": plan.cost_source}
            track = f"{kind} {lane}" if kind == "thread" or lane else kind
            slices[f"op {name}"] = Span(device, track, op.op_type, plan.start_ns, plan.end_ns, about)
    links: dict[tuple[str, str], list[Transfer]] = defaultdict(list)
    for transfer in placement.transfers:
        if transfer.end_ns > transfer.start_ns:
            links[transfer.src, transfer.dst].append(transfer)
    arrows = []
    for (src, dst), transfers in links.items():
        transfers.sort(key=lambda transfer: transfer.start_ns)
        for transfer, lane in zip(transfers, lanes([(t.start_ns, t.end_ns) for t in transfers]), strict=True):
            key = f"transfer {transfer.tensor} {dst} {transfer.dst_memory}"
            about = {"tensor": transfer.tensor, "bytes": transfer.nbytes, "copies": transfer.count, "to": transfer.dst_memory}
            track = (f"{src} to {dst}" if src != dst else f"{src} to its host") + (f" ({lane + 1})" if lane else "")
            label = format_bytes(transfer.nbytes) if transfer.nbytes else "control"
            slices[key] = Span(COPIES, track, label, transfer.start_ns, transfer.end_ns, about)
            path = [f"op {transfer.producer}", key, *_first_reader(placement, transfer)]
            arrows.append([key for key in path if key in slices])
    return slices, [path for path in arrows if len(path) > 1]


def _first_reader(placement: Placement, transfer: Transfer) -> list[str]:
    """The key of the reader of the transfer that starts first; [] if its readers take no time."""
    readers = [
        (placement.ops[name].start_ns, f"op {name}")
        for name in placement.graph.graph.successors(transfer.producer)
        if placement.ops[name].device == transfer.dst
        and placement.ops[name].start_ns >= transfer.end_ns
        and placement.ops[name].end_ns > placement.ops[name].start_ns
    ]
    return [min(readers)[1]] if readers else []
