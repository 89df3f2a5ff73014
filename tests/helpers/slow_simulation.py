"""The execution model again, from docs/execution_model.md alone: slow and plain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from placer.problem.problem import Assignment, PlacementProblem

CONTROL = -1
"""Stands for a tensor: the control signal of an op."""


def described_step(problem: PlacementProblem, assignment: Assignment) -> tuple[int, list[int], list[int]]:
    """The step time, and when each op starts to compute and ends."""
    return _Step(problem, [int(assignment.device[unit]) for unit in problem.ops.unit]).run()


@dataclass
class _Copy:
    """A copy that is ready to begin."""

    ready: int
    op: int
    tensor: int
    place: int


@dataclass
class _Step:
    problem: PlacementProblem
    device: list[int]
    threads: dict[int, list[int]] = field(default_factory=dict)
    """By device: when each of its threads is free."""
    streams: dict[int, int] = field(default_factory=dict)
    """When each stream has computed all that it was given."""
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    """When each link is free."""
    alone: dict[tuple[int, str], int] = field(default_factory=dict)
    """When the last op of a device that shares it with none of its kind is done."""

    def run(self) -> tuple[int, list[int], list[int]]:
        problem = self.problem
        for d in range(problem.num_devices):
            self.threads[d] = [0] * (1 if problem.devices.asynchronous[d] else int(problem.devices.threads[d]))
        waits = [0] * problem.num_ops
        for op in range(problem.num_ops):
            for _, consumer, _ in self._edges(op):
                waits[consumer] += 1
        ready, start, end = ([0] * problem.num_ops for _ in range(3))
        to_start, copies = set(range(problem.num_ops)), list[_Copy]()
        while to_start:
            ops = [(ready[op], 0, op) for op in to_start if not waits[op]]
            at, is_copy, number = min(ops + [(copy.ready, 1, 0) for copy in copies])
            if is_copy:
                copy = min(copies, key=lambda copy: (copy.ready, copy.op))
                copies.remove(copy)
                released = self._begin(copy)
            else:
                to_start.remove(number)
                start[number], end[number], released, made = self._start(number, at)
                copies += made
            for consumer, when in released:
                ready[consumer] = max(ready[consumer], when)
                waits[consumer] -= 1
        took = max(end)
        return took + self._call_ns() + problem.devices.waiting_ns * min(took, 1_000_000) // 1_000_000, start, end

    def _start(self, op: int, at: int) -> tuple[int, int, list[tuple[int, int]], list[_Copy]]:
        """When it starts and ends, what it lets go when, and the copies that it makes ready."""
        problem, d = self.problem, self.device[op]
        sent = [*dict.fromkeys((tensor, place) for tensor, _, place in self._edges(op) if self._crosses(op, tensor, place))]
        sending = sum(self._interval_ns(op, tensor, place) for tensor, place in sent)
        if problem.devices.asynchronous[d] and not self._in_host_memory(op):
            issued = max(at, self.threads[d][0]) + int(problem.ops.dispatch_ns[op, d])
            self.threads[d][0] = issued + sending
            start = max(issued, self.streams.get(d, 0))
            end = start + int(problem.ops.compute_ns[op, d])
            if end > start:
                self.streams[d] = end
        else:
            start, end = self._on_a_thread(op, at, sending)
            issued = end
        released = []
        for tensor, consumer, place in self._edges(op):
            if (tensor, place) not in sent:
                in_stream = self._made(op, tensor) == place and self._own_of_gpu(place) is not None
                early = (in_stream or (tensor == CONTROL and place == d)) and not problem.ops.awaited[op]
                released.append((consumer, issued if early else end))
        leaves = [issued if self._own_of_gpu(self._made(op, tensor)) is not None else end for tensor, _ in sent]
        return start, end, released, [_Copy(ready, op, *what) for ready, what in zip(leaves, sent, strict=True)]

    def _on_a_thread(self, op: int, at: int, sending: int) -> tuple[int, int]:
        problem, d, runs = self.problem, self.device[op], max(1.0, float(self.problem.ops.count[op]))
        takes = int(problem.ops.time_ns[op, d])
        if not takes:
            return at, at
        wide = problem.ops.compute_ns[op, d] > 20_000 * runs and not problem.ops.serial[op]
        small = not wide and problem.ops.time_ns[op, d] < 3_000 * runs
        runner = int(problem.devices.hosts[d]) if problem.devices.shares_cores[d] else d
        threads = self.threads[runner]
        thread = threads.index(min(threads))
        start = max(at, threads[thread])
        if wide or small:
            kind = runner, "wide" if wide else "small"
            before = self.alone.get(kind)
            if wide and (before is None or start > before):
                takes += round(int(problem.devices.wake_ns[d]) * runs)
            start = max(start, before or 0)
            self.alone[kind] = start + takes + sending
        threads[thread] = start + takes + sending
        return start, start + takes

    def _begin(self, copy: _Copy) -> list[tuple[int, int]]:
        """Begins a copy; which ops it lets go when."""
        problem, source = self.problem, self._made(copy.op, copy.tensor)
        count, interval = self._count(copy.op, copy.tensor), self._interval_ns(copy.op, copy.tensor, copy.place)
        nbytes = 0 if copy.tensor == CONTROL else int(problem.tensors.copy_bytes[copy.tensor])
        latency, per_byte = (
            int(problem.links.latency_ns[source, copy.place]),
            float(problem.links.ns_per_byte[source, copy.place]),
        )
        takes = round(count * (latency + nbytes * per_byte))
        begins = max(copy.ready, self.links.get((source, copy.place), 0))
        for gpu in (self._own_of_gpu(source), self._own_of_gpu(copy.place)):
            if gpu is not None:
                begins = max(begins, self.streams.get(gpu, 0))
        if (gpu := self._own_of_gpu(copy.place)) is not None:
            self.threads[gpu][0] = max(copy.ready, self.threads[gpu][0]) + interval
        if problem.links.contention:
            self.links[source, copy.place] = begins + max(takes - round(count * latency), interval)
        consumers = [user for tensor, user, place in self._edges(copy.op) if (tensor, place) == (copy.tensor, copy.place)]
        return [(consumer, begins + takes) for consumer in consumers]

    def _edges(self, op: int) -> Iterator[tuple[int, int, int]]:
        """The tensor, or `CONTROL`; the consumer; the place at which it takes the tensor."""
        problem, start = self.problem, self.problem.consumers.start
        for tensor in range(problem.num_tensors):
            if problem.tensors.op[tensor] == op:
                for entry in range(start[tensor], start[tensor + 1]):
                    consumer = int(problem.consumers.op[entry])
                    on_host = bool(problem.consumers.on_host[entry, self.device[consumer]])
                    yield tensor, consumer, self._place(self.device[consumer], on_host)
        for a, b in zip(problem.ops.control_src.tolist(), problem.ops.control_dst.tolist(), strict=True):
            if a == op:
                yield CONTROL, b, self.device[b]

    def _place(self, d: int, on_host: bool) -> int:
        return d + self.problem.num_devices if on_host and self.problem.devices.kinds[d] != "CPU" else d

    def _own_of_gpu(self, place: int) -> int | None:
        """The asynchronous device whose own memory the place is."""
        return place if place < self.problem.num_devices and self.problem.devices.asynchronous[place] else None

    def _made(self, op: int, tensor: int) -> int:
        d = self.device[op]
        return d if tensor == CONTROL else self._place(d, bool(self.problem.tensors.on_host[tensor, d]))

    def _crosses(self, op: int, tensor: int, place: int) -> bool:
        return self._made(op, tensor) != place and (tensor == CONTROL or not self.problem.tensors.free[tensor])

    def _count(self, op: int, tensor: int) -> float:
        count = self.problem.ops.count
        if tensor != CONTROL:
            return float(self.problem.tensors.count[tensor])
        return min(float(count[op]), max(float(count[user]) for carried, user, _ in self._edges(op) if carried == CONTROL))

    def _interval_ns(self, op: int, tensor: int, place: int) -> int:
        return round(self._count(op, tensor) * int(self.problem.links.interval_ns[self._made(op, tensor), place]))

    def _in_host_memory(self, op: int) -> bool:
        made = [t for t in range(self.problem.num_tensors) if self.problem.tensors.op[t] == op]
        return bool(made) and all(self.problem.tensors.on_host[t, self.device[op]] for t in made)

    def _call_ns(self) -> int:
        problem = self.problem
        makes = {int(op) for op, free in zip(problem.tensors.op, problem.tensors.free, strict=True) if not free}
        used = {d for op, d in enumerate(self.device) if problem.ops.time_ns[op].any() or op in makes}
        slowest = max((int(problem.devices.call_ns[d]) for d in used), default=0)
        return problem.devices.call_overhead_ns + slowest + problem.devices.split_ns * max(0, len(used) - 1)
