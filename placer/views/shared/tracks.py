"""The tracks of a schedule: what runs on each thread, stream and link, and when."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush

from placer.common.units import format_bytes
from placer.plan.spans import Span
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulation

COPIES = "copies"
"""The owner of the tracks of all links."""


def lanes(intervals: list[tuple[int, int]]) -> list[int]:
    """The first free lane for each interval (start, end); given sorted by start. Uses no more lanes than overlap at once."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    chosen, opened = [], 0
    for start, end in intervals:
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane, opened = opened, opened + 1
        chosen.append(lane)
        heappush(busy, (end, lane))
    return chosen


def spans(problem: PlacementProblem, assignment: Assignment, schedule: Simulation) -> list[Span]:
    """The ops and copies that take time, a span for each: the tracks of devices first, then those of links.

    Ops of one device that overlap are on several tracks, as are copies over one link.
    """
    names, places = problem.devices.names, problem.num_devices
    tracks: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for d in range(places):  # the order of devices, with threads before the stream
        tracks[names[d], "thread"], tracks[names[d], "stream"] = [], []
    columns = (assignment.device[problem.ops.unit], schedule.streamed, schedule.start_ns, schedule.end_ns)
    for name, d, streamed, start, end in zip(problem.ops.names, *(a.tolist() for a in columns), strict=True):
        tracks[names[d], "stream" if streamed else "thread"].append((start, end, name))
    copies = (schedule.copy_tensor, schedule.copy_op, schedule.copy_src, schedule.copy_dst)
    times = (schedule.copy_start_ns, schedule.copy_end_ns)
    for t, op, src, dst, start, end in zip(*(a.tolist() for a in (*copies, *times)), strict=True):
        a, b = names[src % places], names[dst % places]
        size = format_bytes(int(problem.tensors.nbytes[t])) if t >= 0 else "a control signal"
        tracks[COPIES, f"{a} to {b}" if a != b else f"{a} to its host"].append((start, end, f"{size} of {problem.ops.names[op]}"))
    result = []
    for (process, track), entries in tracks.items():
        timed = sorted(entry for entry in entries if entry[1] > entry[0])
        for (start, end, name), lane in zip(timed, lanes([entry[:2] for entry in timed]), strict=True):
            result.append(Span(process, track if lane == 0 else f"{track} {lane + 1}", name, start, end, {}))
    return result
