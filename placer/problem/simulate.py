"""The execution model: what a step would take, and the objective "step_time"."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush, heapreplace

import numpy as np

from placer.problem.memory import peaks
from placer.problem.problem import Assignment, Bools, Floats, Ints, PlacementProblem

WIDE_NS = 20_000
"""An op that computes longer than this per run uses all cores of a CPU; about the grain at which Eigen splits work."""

ISSUED, DONE = -2, -1  # when an edge that needs no copy lets its consumer go


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A step as the model sees it. Times in ns from the first op's start; X copies."""

    step_ns: int
    """The whole call, its fixed overhead included."""
    busy_ns: Ints
    """[D]: an asynchronous device's stream, or the sum over another's threads."""
    start_ns: Ints
    """[N]: when each op starts to compute."""
    end_ns: Ints
    """[N]"""
    streamed: Bools
    """[N]: computes in its device's stream, not on a thread."""
    peak_bytes: Ints
    """[D]"""
    copy_tensor: Ints
    """[X]; -1 for a control edge's hop."""
    copy_op: Ints
    """[X]: producer."""
    copy_src: Ints
    """[X]: place."""
    copy_dst: Ints
    """[X]: place."""
    copy_start_ns: Ints
    """[X]"""
    copy_end_ns: Ints
    """[X]: when it may be used there."""


def simulate(problem: PlacementProblem, assignment: Assignment) -> Simulation:
    """Runs one step of an assignment through the model; see `Simulator`."""
    return problem.simulator.run(assignment)


@dataclass(frozen=True, eq=False)
class Simulator:
    """The model of one problem, for many assignments.

    Ops start in the order in which they become ready, then in their own order.

    - A device that is not asynchronous runs an op for ``op_time_ns`` on one of its threads. An op that computes longer than
      `WIDE_NS` per run uses all its cores, so no two of those overlap; ``op_serial`` ones never do.
    - An asynchronous device is fed by one host thread, busy ``op_dispatch_ns`` with each op, which runs ahead of the device's
      stream. The stream computes ``op_compute_ns`` of each op in the order issued. An op all of whose outputs are in host
      memory never enters the stream and takes ``op_time_ns`` of the feeding thread.
    - A consumer on the same asynchronous device goes on once its producer is issued, since the stream keeps their order; any
      other waits for the end of the op, a copy out of the device too.
    - Each ordered pair of places is a link: copies queue for its bandwidth and keep its interval, latency passes beside the next
      copy. What feeds an asynchronous device is busy for the interval with each copy out of it. Free tensors are there already.
      A control edge waits for its producer to be issued, and for a host hop where it crosses.
    - What runs several times in a step (a loop's body) is stretched to its whole time, every op and copy by its count. That is
      exact for a chain on one device, and for one that crosses at every step.

    The end is that of the last op, plus `call_ns`. Results stay where they are made.
    """

    problem: PlacementProblem
    _known: dict[bytes, int] = field(default_factory=dict)

    def step_ns(self, assignment: Assignment) -> int:
        """The length of a step alone."""
        key = hashlib.blake2b(assignment.device.tobytes(), digest_size=16).digest()
        if key not in self._known:
            _, end, *_ = self._play(assignment)
            self._known[key] = max(end, default=0) + self.call_ns(assignment)
        return self._known[key]

    def run(self, assignment: Assignment) -> Simulation:
        """The whole schedule."""
        problem = self.problem
        start, end, began, arrived, x, src, dst = self._play(assignment)
        op_device = assignment.device[problem.op_unit]
        every = np.arange(problem.ops)
        streamed = problem.asynchronous[op_device] & ~self.host_only[every, op_device]
        alone = np.where(problem.asynchronous[op_device], 0, problem.op_time_ns[every, op_device])
        work = np.where(streamed, problem.op_compute_ns[every, op_device], alone)
        busy = np.zeros(problem.devices, np.int64)
        np.add.at(busy, op_device, work)
        tensors = len(problem.tensor_op)
        return Simulation(
            step_ns=max(end, default=0) + self.call_ns(assignment),
            busy_ns=busy,
            start_ns=np.array(start, np.int64),
            end_ns=np.array(end, np.int64),
            streamed=streamed,
            peak_bytes=peaks(problem, assignment),
            copy_tensor=np.where(x < tensors, x, -1),
            copy_op=self.edges.op[x],
            copy_src=src,
            copy_dst=dst,
            copy_start_ns=np.array(began, np.int64),
            copy_end_ns=np.array(arrived, np.int64),
        )

    def call_ns(self, assignment: Assignment) -> int:
        """What a call takes beside its ops: ``call_overhead_ns``, what the slowest device adds, and each further one's split."""
        problem = self.problem
        used = np.unique(assignment.device[problem.op_unit[self.present]])
        slowest = 0 if problem.device_call_ns is None or not len(used) else int(problem.device_call_ns[used].max())
        return problem.call_overhead_ns + slowest + problem.split_ns * max(0, len(used) - 1)

    @cached_property
    def least_call_ns(self) -> int:
        """No assignment's `call_ns` is less: what can be on one device only uses that."""
        problem = self.problem
        allowed = problem.unit_allowed[problem.op_unit[self.present]]
        if problem.device_call_ns is None or not len(allowed):
            return problem.call_overhead_ns
        forced = allowed[allowed.sum(axis=1) == 1].any(axis=0)
        slowest = problem.device_call_ns[forced].max() if forced.any() else problem.device_call_ns[allowed.any(axis=0)].min()
        return int(problem.call_overhead_ns + slowest + problem.split_ns * max(0, int(forced.sum()) - 1))

    @cached_property
    def present(self) -> Bools:
        """[N]: is part of the step; constants, which are where their consumers are, say nothing of the devices used."""
        problem = self.problem
        works = np.any(problem.op_time_ns > 0, axis=1)
        works[problem.tensor_op[~problem.tensor_free]] = True
        return np.asarray(works)

    @cached_property
    def host_only(self) -> Bools:
        """[N, D]: works in host memory alone on an asynchronous device."""
        problem = self.problem
        outputs = np.bincount(problem.tensor_op, minlength=problem.ops)
        on_host = np.zeros((problem.ops, problem.devices), np.int64)
        np.add.at(on_host, problem.tensor_op, problem.tensor_on_host)
        result: Bools = (on_host == outputs[:, None]) & (outputs > 0)[:, None] & problem.asynchronous
        return result

    @cached_property
    def runs(self) -> Floats:
        """[N]: at least 1."""
        return np.maximum(self.problem.op_count, 1)

    @cached_property
    def wide(self) -> Bools:
        """[N, D]: uses all cores of a device that is not asynchronous."""
        broad = self.problem.op_compute_ns > WIDE_NS * self.runs[:, None]
        return broad if self.problem.op_serial is None else broad & ~self.problem.op_serial[:, None]

    @cached_property
    def edges(self) -> Edges:
        return Edges.of(self.problem)

    def _play(self, assignment: Assignment) -> tuple[list[int], list[int], list[int], list[int], Ints, Ints, Ints]:
        """Starts and ends of ops, begins and arrivals of copies, and the copies: number in `Edges`, source and destination."""
        problem, edges = self.problem, self.edges
        ops = problem.ops
        every = np.arange(ops)
        op_device = assignment.device[problem.op_unit]
        code, x, src, dst = edges.copies(problem, op_device)
        copied = problem.copy_ns(edges.nbytes[x], edges.count[x], src, dst)
        moved = copied - np.rint(edges.count[x] * problem.copy_latency_ns[src, dst]).astype(np.int64)
        sends = np.zeros(ops, np.int64)
        if problem.copy_interval_ns is not None:
            handled = np.rint(edges.count[x] * problem.copy_interval_ns[src, dst]).astype(np.int64)
            moved = np.maximum(moved, handled)
            np.add.at(sends, edges.op[x], handled)
        total, busy, send = copied.tolist(), moved.tolist(), sends.tolist()
        link = (src * 2 * problem.devices + dst).tolist()
        hop = (x >= len(problem.tensor_op)).tolist()

        time = problem.op_time_ns[every, op_device]
        dispatched = problem.op_dispatch_ns[every, op_device]
        computed = problem.op_compute_ns[every, op_device]
        streamed = problem.asynchronous[op_device] & ~self.host_only[every, op_device]
        wide = self.wide[every, op_device].tolist()
        first = (dispatched / self.runs).astype(np.int64).tolist()
        last = (computed / self.runs).astype(np.int64).tolist()
        spent, dispatch, compute, stream = time.tolist(), dispatched.tolist(), computed.tolist(), streamed.tolist()
        device, fed = op_device.tolist(), problem.asynchronous.tolist()
        consumer, begin_edge = edges.consumer_list, edges.start_list

        # This loop is where searches spend their time: comparisons rather than max(), which costs a call each.
        threads = [1] * problem.devices if problem.device_threads is None else problem.device_threads.tolist()
        pools = [[0] * (1 if fed[d] else threads[d]) for d in range(problem.devices)]  # when each thread is free
        stream_free, wide_free = [0] * problem.devices, [0] * problem.devices
        link_free = [0] * (2 * problem.devices) ** 2
        start, end = [0] * ops, [0] * ops
        began, arrived = [0] * len(link), [-1] * len(link)
        ready, waits = [0] * ops, edges.waits_list.copy()
        queue = [i for i, n in enumerate(waits) if n == 0]  # an op ready at time t is t * ops + op: sorted, so a heap
        while queue:
            at, i = divmod(heappop(queue), ops)
            d = device[i]
            pool = pools[d]
            if stream[i]:
                feeder = pool[0]
                begin = max(at, feeder)
                issued = begin + dispatch[i]
                pool[0] = issued + send[i]
                begin += first[i]
                begin = max(begin, stream_free[d])
                done, tail = begin + compute[i], issued + last[i]  # the last run starts once it is issued
                stream_free[d] = done = max(done, tail)
            else:
                begin = at
                takes = spent[i]
                if takes:
                    begin = max(begin, pool[0])
                    if wide[i]:
                        begin = max(begin, wide_free[d])
                        wide_free[d] = begin + takes
                    heapreplace(pool, begin + takes)
                issued = done = begin + takes
            start[i], end[i] = begin, done
            for e in range(begin_edge[i], begin_edge[i + 1]):
                k = code[e]
                if k == DONE:
                    when = done
                elif k == ISSUED:
                    when = issued
                elif arrived[k] >= 0:
                    when = arrived[k]
                else:
                    began[k] = when = max(issued if hop[k] else done, link_free[link[k]])
                    link_free[link[k]] = when + busy[k]
                    arrived[k] = when = when + total[k]
                j = consumer[e]
                ready[j] = max(ready[j], when)
                waits[j] -= 1
                if not waits[j]:
                    heappush(queue, ready[j] * ops + j)
        return start, end, began, arrived, x, src, dst


@dataclass(frozen=True, eq=False)
class Edges:
    """Who waits for whom, op by op: E edges carrying X tensors, the control edges out of an op being one more tensor."""

    op: Ints
    """[X]: producer."""
    place: Ints
    """[X, D]: where it is made."""
    nbytes: Ints
    count: Floats
    free: Bools
    tensor: Ints
    """[E]"""
    consumer: Ints
    """[E]"""
    taken: Ints
    """[E, D]: place the consumer takes it from."""
    start_list: list[int]
    """Edges out of op i are start[i]:start[i+1]."""
    consumer_list: list[int]
    waits_list: list[int]
    """[N]: edges into each op."""
    hop_list: list[bool]
    """[E]: a control edge."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Edges:
        sources, source = np.unique(problem.control_src, return_inverse=True)
        tensors = len(problem.tensor_op)
        op = np.append(problem.tensor_op, sources)
        tensor = np.append(problem.consumer_tensor, tensors + source)
        consumer = np.append(problem.consumer_op, problem.control_dst)
        order = np.argsort(op[tensor], kind="stable")
        taken = np.concatenate([problem.consumer_place, np.tile(problem.host_place, (len(source), 1))])
        return cls(
            op=op,
            place=np.concatenate([problem.tensor_place, np.tile(problem.host_place, (len(sources), 1))]),
            nbytes=np.append(problem.copied_bytes, np.zeros(len(sources), np.int64)),
            count=np.append(problem.tensor_count, problem.op_count[sources]),
            free=np.append(problem.tensor_free, np.zeros(len(sources), np.bool_)),
            tensor=tensor[order],
            consumer=consumer[order],
            taken=taken[order],
            start_list=np.searchsorted(op[tensor[order]], np.arange(problem.ops + 1)).tolist(),
            consumer_list=consumer[order].tolist(),
            waits_list=np.bincount(consumer, minlength=problem.ops).tolist(),
            hop_list=(tensor[order] >= tensors).tolist(),
        )

    def copies(self, problem: PlacementProblem, op_device: Ints) -> tuple[list[int], Ints, Ints, Ints]:
        """What each edge waits for ([E]: `ISSUED`, `DONE` or a copy's number), and each copy's tensor, source and destination."""
        made = self.place[np.arange(len(self.op)), op_device[self.op]]
        src = made[self.tensor]
        dst = self.taken[np.arange(len(self.tensor)), op_device[self.consumer]]
        control = self.tensor >= len(problem.tensor_op)
        in_stream = (src == dst) & (src < problem.devices) & problem.asynchronous[src % problem.devices]
        crosses = (src != dst) & ~self.free[self.tensor]
        number = np.full((len(self.op), 2 * problem.devices), -1, np.int64)
        number[self.tensor[crosses], dst[crosses]] = 0
        x, place = np.nonzero(number == 0)
        number[x, place] = np.arange(len(x))
        code = np.where(in_stream | control, ISSUED, DONE)
        code[crosses] = number[self.tensor[crosses], dst[crosses]]
        return code.tolist(), x, made[x], place

    def pairs(self, problem: PlacementProblem) -> tuple[Ints, Ints]:
        """For each edge, [E, D] `ISSUED` or `DONE` with both ends on device d, and [E, D, D] the copy from device to device."""
        here = np.arange(problem.devices)
        src, dst = self.place[self.tensor], self.taken
        control = self.tensor >= len(problem.tensor_op)
        in_stream = (src == here) & problem.asynchronous
        code = np.where((src == dst) & (in_stream | control[:, None]), ISSUED, DONE)
        nbytes, count = self.nbytes[self.tensor][:, None, None], self.count[self.tensor][:, None, None]
        copy = problem.copy_ns(nbytes, count, src[:, :, None], dst[:, None, :])
        return code, np.where(self.free[self.tensor][:, None, None], 0, copy)
