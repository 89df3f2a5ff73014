"""The execution model again, from its description in `placer.problem.schedule.Simulator` alone: slow and plain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from placer.problem.problem import Assignment, PlacementProblem


def described_step(problem: PlacementProblem, assignment: Assignment) -> tuple[int, list[int], list[int]]:
    """How long the step takes, and when each op starts to compute and ends."""
    return _Step(problem, [int(assignment.device[unit]) for unit in problem.ops.unit]).run()


_LetGo: TypeAlias = tuple[int, int, tuple[int, int, int] | None]
"""An op that waited, when it may go on, and the copy that this follows, if any."""


@dataclass
class _Copy:
    """What is to be copied, from when on."""

    ready: int
    op: int
    tensor: int
    there: int


@dataclass
class _Step:
    problem: PlacementProblem
    device: list[int]
    streams: dict[int, int] = field(default_factory=dict)
    """When each stream has done all that it was given."""
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    alone: dict[tuple[int, str], int] = field(default_factory=dict)
    """When the last op of a device that shares it with none of its kind is done."""
    follows: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By op: the copy, of an op's tensor to a place, that what let it go came with or came after."""
    warm: dict[tuple[int, int, int], set[int]] = field(default_factory=dict)
    """By copy: the kinds of ops that followed it."""

    def run(self) -> tuple[int, list[int], list[int]]:
        problem = self.problem
        ops = range(problem.num_ops)
        self.threads = [[0] * (1 if problem.devices.asynchronous[d] else self._threads(d)) for d in range(problem.num_devices)]
        waits = dict.fromkeys(ops, 0)
        for _, user, _ in (edge for op in ops for edge in self._edges(op)):
            waits[user] += 1
        ready, start, end = ([0] * problem.num_ops for _ in range(3))
        ops_to_start, copies = set(ops), list[_Copy]()
        while ops_to_start:
            events: list[tuple[int, int, int]] = [(ready[op], -1, op) for op in ops_to_start if not waits[op]]
            at, number, op = min(events + [(copy.ready, copy.op, k) for k, copy in enumerate(copies)])
            if number < 0:
                ops_to_start.remove(op)
                start[op], end[op], lets_go = self._start(op, at, copies)
            else:
                lets_go = self._copy(copies.pop(op))
            for user, when, copy in lets_go:
                if when > ready[user]:
                    ready[user] = when
                    self.follows.pop(user, None)
                    if copy is not None:
                        self.follows[user] = copy
                waits[user] -= 1
        took = max(end)
        return took + self._call_ns() + problem.devices.waiting_ns * min(took, 1_000_000) // 1_000_000, start, end

    def _start(self, op: int, at: int, copies: list[_Copy]) -> tuple[int, int, list[_LetGo]]:
        """When it starts and ends, and when each of those that wait for it alone may go on. Adds what it copies to the copies."""
        problem, d, runs = self.problem, self.device[op], max(1.0, float(self.problem.ops.count[op]))
        sent = dict.fromkeys((tensor, there) for tensor, _, there in self._edges(op) if self._crosses(op, tensor, there))
        sends = sum(self._interval_ns(op, *copy) for copy in sent)
        cold, at_first = self._cold_ns(op)
        if problem.devices.asynchronous[d] and not self._in_host_memory(op):
            dispatch, compute = int(problem.ops.dispatch_ns[op, d]), int(problem.ops.compute_ns[op, d])
            begins = max(at, self.threads[d][0])
            issued = begins + dispatch + cold
            self.threads[d][0] = issued + sends
            start = max(begins + int(dispatch / runs) + at_first, self.streams.get(d, 0))
            end = self.streams[d] = max(start + compute, issued + int(compute / runs))
        else:
            start, end = self._on_a_thread(op, at, runs, sends, cold)
            issued = end
        awaited = problem.ops.awaited is not None and bool(problem.ops.awaited[op])
        lets_go = []
        for tensor, user, there in self._edges(op):
            if not self._crosses(op, tensor, there):
                here = self._made(op, tensor) == there
                in_stream = here and there == d and bool(problem.devices.asynchronous[d])
                when = issued if (in_stream or (here and tensor < 0)) and not awaited else end
                lets_go.append((user, when, self.follows.get(op)))
        for tensor, there in sent:
            copies.append(_Copy(max(end, self.streams.get(d, 0) if tensor < 0 else 0), op, tensor, there))
        return start, end, lets_go

    def _cold_ns(self, op: int) -> tuple[int, int]:
        """What it takes more if it is the first of its kind to follow a copy, and what its first run does."""
        problem, d, copy = self.problem, self.device[op], self.follows.get(op)
        if problem.ops.cold_ns is None or problem.ops.kind is None or copy is None or not problem.ops.time_ns[op, d]:
            return 0, 0
        known, kind = self.warm.setdefault(copy, set()), int(problem.ops.kind[op])
        if kind in known:
            return 0, 0
        known.add(kind)
        each, times = int(problem.ops.cold_ns[op, d]), min(float(problem.ops.count[op]), self._count(*copy[:2]))
        return int(each * times), int(each * min(1.0, times))

    def _on_a_thread(self, op: int, at: int, runs: float, sends: int, cold: int) -> tuple[int, int]:
        problem, d = self.problem, self.device[op]
        takes = int(problem.ops.time_ns[op, d]) + cold
        if not takes:
            return at, at
        serial = problem.ops.serial is not None and bool(problem.ops.serial[op])
        wide = problem.ops.compute_ns[op, d] > 20_000 * runs and not serial
        small = not wide and problem.ops.time_ns[op, d] < 3_000 * runs
        threads = self.threads[self._runner(d)]
        thread = threads.index(min(threads))
        start = max(at, threads[thread])
        if wide or small:
            kind = self._runner(d), "wide" if wide else "small"
            before = self.alone.get(kind)
            if wide and problem.devices.wake_ns is not None and (before is None or start - before > round(50_000 * runs)):
                takes += round(int(problem.devices.wake_ns[d]) * runs)
            start = max(start, before or 0)
            self.alone[kind] = start + takes + sends
        threads[thread] = start + takes + sends
        return start, start + takes

    def _copy(self, copy: _Copy) -> list[_LetGo]:
        """Sends it on its way; when those that wait for it may go on."""
        problem, op, tensor, there = self.problem, copy.op, copy.tensor, copy.there
        link = self._made(op, tensor), there
        count, interval = self._count(op, tensor), self._interval_ns(op, tensor, there)
        sizes = problem.tensors.nbytes if problem.tensors.copy_bytes is None else problem.tensors.copy_bytes
        nbytes = 0 if tensor < 0 else int(sizes[tensor])
        takes = round(count * (int(problem.links.latency_ns[link]) + nbytes * float(problem.links.ns_per_byte[link])))
        begins = max(copy.ready, self.links.get(link, 0))
        if there < problem.num_devices and problem.devices.asynchronous[there]:
            begins = max(begins, self.streams.get(there, 0))
            self.threads[there][0] = max(copy.ready, self.threads[there][0]) + interval
        self.links[link] = begins + max(takes - round(count * int(problem.links.latency_ns[link])), interval)
        users = [user for carried, user, place in self._edges(op) if (carried, place) == (tensor, there)]
        return [(user, begins + takes, (op, tensor, there)) for user in users]

    def _edges(self, op: int) -> list[tuple[int, int, int]]:
        """What leaves it, -1 for a control edge; for whom; in which place that takes it."""
        problem, start = self.problem, self.problem.consumers.start
        found = []
        for tensor in (t for t in range(problem.num_tensors) if problem.tensors.op[t] == op):
            for entry in range(start[tensor], start[tensor + 1]):
                user = int(problem.consumers.op[entry])
                on_host = bool(problem.consumers.on_host[entry, self.device[user]])
                found.append((tensor, user, self._place(self.device[user], on_host)))
        waiting = (int(b) for a, b in zip(problem.ops.control_src, problem.ops.control_dst, strict=True) if a == op)
        return found + [(-1, user, self.device[user]) for user in waiting]

    def _place(self, d: int, on_host: bool) -> int:
        return d + self.problem.num_devices if on_host and self.problem.devices.kinds[d] != "CPU" else d

    def _made(self, op: int, tensor: int) -> int:
        d = self.device[op]
        return d if tensor < 0 else self._place(d, bool(self.problem.tensors.on_host[tensor, d]))

    def _crosses(self, op: int, tensor: int, there: int) -> bool:
        return self._made(op, tensor) != there and (tensor < 0 or not self.problem.tensors.free[tensor])

    def _count(self, op: int, tensor: int) -> float:
        count = self.problem.ops.count
        if tensor >= 0:
            return float(self.problem.tensors.count[tensor])
        return min(float(count[op]), max(float(count[user]) for carries, user, _ in self._edges(op) if carries < 0))

    def _interval_ns(self, op: int, tensor: int, there: int) -> int:
        interval = self.problem.links.interval_ns
        return 0 if interval is None else round(self._count(op, tensor) * int(interval[self._made(op, tensor), there]))

    def _in_host_memory(self, op: int) -> bool:
        made = [t for t in range(self.problem.num_tensors) if self.problem.tensors.op[t] == op]
        return bool(made) and all(self.problem.tensors.on_host[t, self.device[op]] for t in made)

    def _runner(self, d: int) -> int:
        """The device whose threads run its ops: the first CPU for each logical CPU of the host."""
        return self.problem.devices.kinds.index("CPU") if self.problem.devices.shares_cores[d] else d

    def _threads(self, d: int) -> int:
        return 1 if self.problem.devices.threads is None else int(self.problem.devices.threads[d])

    def _call_ns(self) -> int:
        problem = self.problem
        makes = {int(op) for op, free in zip(problem.tensors.op, problem.tensors.free, strict=True) if not free}
        used = {d for op, d in enumerate(self.device) if problem.ops.time_ns[op].any() or op in makes}
        own = [0 if problem.devices.call_ns is None else int(problem.devices.call_ns[d]) for d in used]
        return problem.devices.call_overhead_ns + max(own, default=0) + problem.devices.split_ns * max(0, len(used) - 1)
