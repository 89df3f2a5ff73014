"""The execution model: what a step would take, and the objective "step_time"."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush, heapreplace
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Floats, Grouped, Ints, derived
from placer.problem.memory import peaks
from placer.problem.problem import Assignment, PlacementProblem, once_per_problem

WIDE_NS = 20_000
"""An op that computes longer than this per run uses all cores of a CPU; about the grain at which Eigen splits work."""

SMALL_NS = 3_000
"""An op on a CPU that takes less per run is run by the thread that made it ready: 8,000 cycles in TensorFlow's executor.cc."""
PARALLEL, SMALL, WIDE = 0, 1, 2  # how an op uses the threads of a CPU

AWAKE_NS = 50_000
"""So long after an op that used all cores of a CPU its threads still look for work; after that they sleep."""
NEVER_NS = -(2**62)

ASLEEP_NS = 1_000_000
"""Who waits for a call of this length sleeps as deep as for any longer one; ``waiting_ns`` is measured there."""

START = -1  # of a step, in the place of a copy
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
    return Simulator(problem).run(assignment)


class Simulator:
    """The model of one problem, for many assignments.

    Ops start in the order in which they become ready, then in their own order.

    - A device that is not asynchronous runs an op for ``ops.time_ns`` on one of its threads. An op that computes longer than
      `WIDE_NS` per run uses all its cores, so no two of those overlap; ``ops.serial`` ones never do. Nor do two that take less
      than `SMALL_NS`, which are not worth another thread. One that uses all cores takes ``devices.wake_ns`` more where the one
      before it was done more than `AWAKE_NS` ago.
    - An asynchronous device is fed by one host thread, busy ``ops.dispatch_ns`` with each op, which runs ahead of the device's
      stream. The stream computes ``ops.compute_ns`` of each op in the order issued. An op all of whose outputs are in host
      memory never enters the stream and takes ``ops.time_ns`` of the feeding thread.
    - A consumer on the same asynchronous device goes on once its producer is issued, since the stream keeps their order; any
      other waits for the end of the op, a copy out of the device too. All wait for the end of ``ops.awaited`` ones.
    - What follows a copy goes on on another thread: the first op of each kind there takes ``ops.cold_ns`` more of the host, each
      time that both run; one that takes no time makes nothing warm. An op follows what it was last ready for, and so what that
      one follows, if it was no copy.
    - Each ordered pair of places is a link: copies queue for its bandwidth and keep its interval, latency passes beside the next
      copy. The thread that runs an op is busy for the interval with each copy of what it made, and so is the one that feeds the
      asynchronous device into whose own memory it goes: a driver serves one thread at a time. Such a copy waits for all that
      the device's stream has been given so far, since the bytes may still be in use. Free tensors need no copy.
      A control edge waits for its producer to be issued. Where it crosses it is a copy of no bytes, as TensorFlow sends it: out
      of an asynchronous device it waits for all that the stream has been given, too.
    - What runs several times in a step (a loop's body) is stretched to its whole time, every op and copy by its count. That is
      exact for a chain on one device, and for one that crosses at every step.

    The end is that of the last op, plus `call_ns` and what the waiting caller takes to wake. Results stay where they are made.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.tables = tables_of(problem)
        self.edges = edges_of(problem)
        self._known_ns = step_lengths_of(problem)

    def step_ns(self, assignment: Assignment) -> int:
        """The length of a step alone; an assignment is simulated once, however many simulators its problem has."""
        key = hashlib.blake2b(assignment.device.tobytes(), digest_size=16).digest()
        if key not in self._known_ns:
            self._known_ns[key] = self.whole_ns(self._played(assignment).latest_ns, self.call_ns(assignment))
        return self._known_ns[key]

    def run(self, assignment: Assignment) -> Simulation:
        """The whole schedule."""
        problem = self.problem
        script = self.script(assignment.device[problem.ops.unit])
        state = self.beginning()
        self.advance(script, state)
        op_device = assignment.device[problem.ops.unit]
        every = np.arange(problem.num_ops)
        streamed = problem.devices.asynchronous[op_device] & ~self.tables.host_only[every, op_device]
        alone = np.where(problem.devices.asynchronous[op_device], 0, problem.ops.time_ns[every, op_device])
        work = np.where(streamed, problem.ops.compute_ns[every, op_device], alone)
        busy = np.zeros(problem.num_devices, np.int64)
        np.add.at(busy, op_device, work)
        x, tensors = script.crossing, problem.num_tensors
        return Simulation(
            step_ns=self.whole_ns(state.latest_ns, self.call_ns(assignment)),
            busy_ns=busy,
            start_ns=np.array(script.start, np.int64),
            end_ns=np.array(script.end, np.int64),
            streamed=streamed,
            peak_bytes=peaks(problem, assignment),
            copy_tensor=np.where(x < tensors, x, -1),
            copy_op=self.edges.op[x],
            copy_src=script.src,
            copy_dst=script.dst,
            copy_start_ns=np.array(script.began, np.int64),
            copy_end_ns=np.array(script.arrived, np.int64),
        )

    def whole_ns(self, ops_ns: int, call_ns: int) -> int:
        """A step whose ops take so long, and its call so much beside them: its caller sleeps the deeper the longer that is."""
        return ops_ns + call_ns + self.problem.devices.waiting_ns * min(ops_ns, ASLEEP_NS) // ASLEEP_NS

    def call_ns(self, assignment: Assignment) -> int:
        """What a call takes beside its ops: ``call_overhead_ns``, what the slowest device adds, and each further one's split."""
        present = assignment.device[self.problem.ops.unit[self.tables.present]]
        return self.call_of_ns(np.bincount(present, minlength=self.problem.num_devices) > 0)

    def call_of_ns(self, used: Bools) -> int:
        """The same for the devices that have ops, [D]."""
        problem = self.problem
        slowest = int(problem.devices.call_ns[used].max()) if used.any() else 0
        return problem.devices.call_overhead_ns + slowest + problem.devices.split_ns * max(0, int(used.sum()) - 1)

    @cached_property
    def least_call_ns(self) -> int:
        """No assignment's `call_ns` is less: what can be on one device only uses that."""
        problem = self.problem
        allowed = problem.units.allowed[problem.ops.unit[self.tables.present]]
        if not len(allowed):
            return problem.devices.call_overhead_ns
        forced = allowed[allowed.sum(axis=1) == 1].any(axis=0)
        slowest = problem.devices.call_ns[forced].max() if forced.any() else problem.devices.call_ns[allowed.any(axis=0)].min()
        return int(problem.devices.call_overhead_ns + slowest + problem.devices.split_ns * max(0, int(forced.sum()) - 1))

    def script(self, op_device: Ints, ops: Ints | None = None, edges: Ints | None = None, copies: int = 0) -> Script:
        """What the loop reads of an assignment, [N] devices.

        Args:
            op_device: by op.
            ops: rows for these alone; all of them if not given.
            edges: all that go out of those ops.
            copies: the number of the first copy.
        """
        problem, places = self.problem, self.edges
        ops = np.arange(problem.num_ops) if ops is None else ops
        edges = np.arange(len(places.tensor)) if edges is None else edges
        device = op_device[ops]
        code, x, src, dst = places.copies(problem, op_device, edges, copies)
        copied = problem.links.copy_ns(places.nbytes[x], places.count[x], src, dst)
        moved = copied - np.rint(places.count[x] * problem.links.latency_ns[src, dst]).astype(np.int64)
        handled = np.rint(places.count[x] * problem.links.interval_ns[src, dst]).astype(np.int64)
        moved = np.maximum(moved, handled)
        sends = np.zeros(problem.num_ops, np.int64)
        np.add.at(sends, places.op[x], handled)
        dispatch, compute, runs = problem.ops.dispatch_ns[ops, device], problem.ops.compute_ns[ops, device], self.tables.runs[ops]
        sharing = self.tables.sharing[ops, device]
        by_op = (
            device,
            problem.devices.asynchronous[device] & ~self.tables.host_only[ops, device],
            sharing,
            np.rint(np.where(sharing == WIDE, problem.devices.wake_ns[device] * runs, 0)).astype(np.int64),
            np.rint(AWAKE_NS * runs).astype(np.int64),
            problem.ops.time_ns[ops, device],
            dispatch,
            compute,
            (dispatch / runs).astype(np.int64),
            (compute / runs).astype(np.int64),
            sends[ops],
            problem.ops.cold_ns[ops, device],
            problem.ops.count[ops],
        )
        into = np.where((dst < problem.num_devices) & problem.devices.asynchronous[dst % problem.num_devices], dst, -1)
        by_copy = (copied, moved, src * 2 * problem.num_devices + dst, x >= problem.num_tensors, into, handled, places.count[x])
        return Script(tuple(a.tolist() for a in by_op), code.tolist(), tuple(a.tolist() for a in by_copy), x, src, dst)

    def beginning(self) -> State:
        """Before the first op."""
        problem, edges = self.problem, self.edges
        fed = problem.devices.asynchronous.tolist()
        threads = problem.devices.threads.tolist()
        waits = edges.waits_list.copy()
        return State(
            pools=[[0] * (1 if fed[d] else threads[d]) for d in range(problem.num_devices)],
            stream_free=[0] * problem.num_devices,
            alone_free=[[NEVER_NS] * problem.num_devices for _ in range(1 + WIDE)],
            link_free=[0] * (2 * problem.num_devices) ** 2,
            ready=[0] * problem.num_ops,
            follows=[START] * problem.num_ops,
            warm={START: -1},
            waits=waits,
            queue=[i for i, n in enumerate(waits) if n == 0],  # sorted, so a heap
        )

    def advance(self, script: Script, state: State, limit: int | None = None) -> None:
        """Starts the next ops, at most so many."""
        # This loop is where searches spend their time: comparisons rather than max(), which costs a call each.
        ops = self.problem.num_ops
        device, stream, sharing, wake, awake, spent, dispatch, compute, first, last, send, cold, count = script.by_op
        code, (total, busy, link, hop, into, handled, times) = script.code, script.by_copy
        start, end, began, arrived, order = script.start, script.end, script.began, script.arrived, script.order
        consumer, begin_edge = self.edges.consumer_list, self.edges.start_list
        pools, stream_free, alone_free, link_free = state.pools, state.stream_free, state.alone_free, state.link_free
        ready, waits, queue, follows, warm = state.ready, state.waits, state.queue, state.follows, state.warm
        kinds = self.tables.kinds
        latest = state.latest_ns
        for _ in range(ops if limit is None else limit):
            if not queue:
                break
            at, i = divmod(heappop(queue), ops)
            order.append(i)
            d = device[i]
            pool = pools[d]
            more = 0
            copy = follows[i]
            if kinds[i] and spent[i] and not (known := warm.get(copy, 0)) & kinds[i]:
                warm[copy] = known | kinds[i]
                more = int(cold[i] * (min(times[copy], count[i])))
            if stream[i]:
                feeder = pool[0]
                begin = max(feeder, at)
                issued = begin + dispatch[i]
                begin += first[i]
                if more:
                    issued += more
                    begin += min(cold[i], more)  # of the first run, if any
                pool[0] = issued + send[i]
                begin = max(begin, stream_free[d])
                done, tail = begin + compute[i], issued + last[i]  # the last run starts once it is issued
                stream_free[d] = done = max(tail, done)
            else:
                begin = at
                takes = spent[i] + more
                if takes:
                    begin = max(begin, pool[0])
                    if sharing[i]:
                        alone = alone_free[sharing[i]]
                        if begin - alone[d] > awake[i]:
                            takes += wake[i]
                        begin = max(begin, alone[d])
                        alone[d] = begin + takes + send[i]
                    heapreplace(pool, begin + takes + send[i])
                issued = done = begin + takes
            start[i], end[i] = begin, done
            latest = max(latest, done)
            for e in range(begin_edge[i], begin_edge[i + 1]):
                k = code[e]
                behind = copy
                if k == DONE:
                    when = done
                elif k == ISSUED:
                    when = issued
                elif k & 1:
                    behind = k >> 1
                    when = arrived[behind]
                else:
                    behind = k = k >> 1
                    when = done
                    if hop[k] and stream_free[d] > when:
                        when = stream_free[d]
                    when = max(when, link_free[link[k]])
                    if into[k] >= 0:
                        when = max(when, stream_free[into[k]])
                        pools[into[k]][0] += handled[k]
                    began[k] = when
                    link_free[link[k]] = when + busy[k]
                    arrived[k] = when = when + total[k]
                j = consumer[e]
                if when > ready[j]:
                    ready[j] = when
                    follows[j] = behind
                waits[j] -= 1
                if not waits[j]:
                    heappush(queue, ready[j] * ops + j)
        state.latest_ns = latest

    def _played(self, assignment: Assignment) -> State:
        state = self.beginning()
        self.advance(self.script(assignment.device[self.problem.ops.unit]), state)
        return state


@dataclass(frozen=True, eq=False)
class Tables:
    """What the model reads of a problem whatever the assignment."""

    present: Bools
    """[N]: is part of the step; constants, which are where their consumers are, say nothing of the devices used."""
    host_only: Bools
    """[N, D]: works in host memory alone on an asynchronous device."""
    runs: Floats
    """[N]: at least 1."""
    wide: Bools
    """[N, D]: uses all cores of a device that is not asynchronous."""
    sharing: Ints
    """[N, D]: `PARALLEL`, `SMALL` or `WIDE`."""
    kinds: tuple[int, ...]
    """[N]: a bit for each kind of op that can be cold behind a copy; 0 for all others."""
    awake_ns: int
    """Longer ago than this, it makes no difference when the threads of a CPU last worked."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Tables:
        ops, tensors = problem.ops, problem.tensors
        present = np.any(ops.time_ns > 0, axis=1)
        present[tensors.op[~tensors.free]] = True

        outputs = np.bincount(tensors.op, minlength=problem.num_ops)
        on_host = np.zeros((problem.num_ops, problem.num_devices), np.int64)
        np.add.at(on_host, tensors.op, tensors.on_host)
        host_only = (on_host == outputs[:, None]) & (outputs > 0)[:, None] & problem.devices.asynchronous

        runs = np.maximum(ops.count, 1)
        wide = (ops.compute_ns > WIDE_NS * runs[:, None]) & ~ops.serial[:, None]
        small = ops.time_ns < SMALL_NS * runs[:, None]
        cold = np.unique(ops.kind[ops.cold_ns.any(axis=1)])
        bits = {kind: 1 << k for k, kind in enumerate(cold.tolist())}
        return cls(
            present=present,
            host_only=host_only,
            runs=runs,
            wide=wide,
            sharing=np.where(wide, WIDE, np.where(small, SMALL, PARALLEL)),
            kinds=tuple(bits.get(kind, 0) for kind in ops.kind.tolist()),
            awake_ns=round(AWAKE_NS * float(runs.max())) if problem.devices.wake_ns.any() else 0,
        )


@dataclass(slots=True, eq=False)
class Script:
    """An assignment as the model's loop reads it, in lists, and what the loop writes down."""

    by_op: tuple[list[Any], ...]
    """Device, whether it enters a stream, how it shares threads, what waking them takes, after how long; time, dispatch, compute;
    the first run's dispatch, the last run's compute; what sending its results takes of its thread; what a run takes more as the
    first of its kind to follow a copy; how often it runs."""
    code: list[int]
    """By edge: `ISSUED`, `DONE`, or twice the number of the copy to wait for, one more if an edge before has begun it."""
    by_copy: tuple[list[Any], ...]
    """Time in all, time of the link, the link, whether it is a control edge's hop, the stream that it waits for or -1, what it
    takes of the thread that feeds that stream, how often it is made."""
    crossing: Ints
    """[X]: what each copy carries, a number in `Edges`."""
    src: Ints
    dst: Ints
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    began: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """Ops as they start."""

    def __post_init__(self) -> None:
        self.start, self.end = ([0] * len(self.by_op[0]) for _ in range(2))
        self.began, self.arrived = ([0] * len(self.crossing) for _ in range(2))


@dataclass(slots=True, eq=False)
class State:
    """Between the starts of two ops: all that the rest of a step depends on. Times in ns."""

    pools: list[list[int]]
    """By device: when each thread is free, a heap."""
    stream_free: list[int]
    alone_free: list[list[int]]
    """By `SMALL` or `WIDE` and device: when the last such op is done; `NEVER_NS` where there was none."""
    link_free: list[int]
    ready: list[int]
    """By op: when what it has waited for so far was there."""
    follows: list[int]
    """By op: the copy that the last of that follows; `START` where none."""
    warm: dict[int, int]
    """By copy: the kinds of ops that followed it so far; of `START` all, as what is cold there is in their prices."""
    waits: list[int]
    """By op: how many edges it waits for."""
    queue: list[int]
    """A heap; an op ready at time t is t * ops + op."""
    latest_ns: int = 0
    """When the last op so far is done."""

    def copy(self) -> State:
        return State(
            [pool.copy() for pool in self.pools],
            self.stream_free.copy(),
            [each.copy() for each in self.alone_free],
            self.link_free.copy(),
            self.ready.copy(),
            self.follows.copy(),
            self.warm.copy(),
            self.waits.copy(),
            self.queue.copy(),
            self.latest_ns,
        )


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
    awaited: Bools
    """[X]: nobody goes on before its producer is done."""
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
        sources, source = np.unique(problem.ops.control_src, return_inverse=True)
        tensors = problem.num_tensors
        op = np.append(problem.tensors.op, sources)
        tensor = np.append(problem.consumers.tensor, tensors + source)
        consumer = np.append(problem.consumers.op, problem.ops.control_dst)
        order = np.argsort(op[tensor], kind="stable")
        own = np.arange(problem.num_devices)  # control edges cross as tensors of no bytes, between devices' own memories
        taken = np.concatenate([problem.consumer_place, np.tile(own, (len(source), 1))])
        return cls(
            op=op,
            place=np.concatenate([problem.tensor_place, np.tile(own, (len(sources), 1))]),
            nbytes=np.append(problem.tensors.copy_bytes, np.zeros(len(sources), np.int64)),
            count=np.append(problem.tensors.count, problem.ops.control_count[sources]),
            free=np.append(problem.tensors.free, np.zeros(len(sources), np.bool_)),
            awaited=problem.ops.awaited[op],
            tensor=tensor[order],
            consumer=consumer[order],
            taken=taken[order],
            start_list=np.searchsorted(op[tensor[order]], np.arange(problem.num_ops + 1)).tolist(),
            consumer_list=consumer[order].tolist(),
            waits_list=np.bincount(consumer, minlength=problem.num_ops).tolist(),
            hop_list=(tensor[order] >= tensors).tolist(),
        )

    @derived
    def into(self) -> Grouped:
        """Edges by consumer."""
        return Grouped.by(self.consumer, len(self.waits_list))

    def producers_of(self, ops: Ints) -> Ints:
        """Of what these ops wait for; some more than once."""
        return self.op[self.tensor[self.into.of(ops)]]

    @derived
    def by_producer(self) -> Grouped:
        """Edges by the op that they go out of, as they are."""
        return Grouped(np.arange(len(self.tensor)), np.array(self.start_list))

    def out_of(self, ops: Ints) -> Ints:
        """The edges out of these ops, which are in ascending order."""
        return self.by_producer.of(ops)

    def copies(self, problem: PlacementProblem, op_device: Ints, edges: Ints, first: int = 0) -> tuple[Ints, Ints, Ints, Ints]:
        """What each of some ops' edges waits for (see `Script.code`), and each copy's tensor, source and destination.

        Copies are numbered by tensor and destination, beginning with `first`.
        """
        tensor = self.tensor[edges]
        src = self.place[tensor, op_device[self.op[tensor]]]
        dst = self.taken[edges, op_device[self.consumer[edges]]]
        control = tensor >= problem.num_tensors
        in_stream = (src == dst) & (src < problem.num_devices) & problem.devices.asynchronous[src % problem.num_devices]
        code = np.where((in_stream | control) & ~self.awaited[tensor], ISSUED, DONE)
        crosses = np.flatnonzero((src != dst) & ~self.free[tensor])
        key, begins, number = np.unique(
            tensor[crosses] * 2 * problem.num_devices + dst[crosses], return_index=True, return_inverse=True
        )
        code[crosses] = 2 * (first + number) + 1
        code[crosses[begins]] -= 1
        return code, key // (2 * problem.num_devices), src[crosses[begins]], key % (2 * problem.num_devices)

    def pairs(self, problem: PlacementProblem) -> tuple[Ints, Ints]:
        """For each edge, [E, D] `ISSUED` or `DONE` with both ends on device d, and [E, D, D] the copy from device to device."""
        here = np.arange(problem.num_devices)
        src, dst = self.place[self.tensor], self.taken
        control = self.tensor >= problem.num_tensors
        in_stream = (src == here) & problem.devices.asynchronous
        code = np.where((src == dst) & (in_stream | control[:, None]) & ~self.awaited[self.tensor, None], ISSUED, DONE)
        nbytes, count = self.nbytes[self.tensor][:, None, None], self.count[self.tensor][:, None, None]
        copy = problem.links.copy_ns(nbytes, count, src[:, :, None], dst[:, None, :])
        return code, np.where(self.free[self.tensor][:, None, None], 0, copy)


tables_of = once_per_problem(Tables.of)
edges_of = once_per_problem(Edges.of)


@once_per_problem
def step_lengths_of(problem: PlacementProblem) -> dict[bytes, int]:
    """The lengths in ns that all simulators of a problem have found so far, by the digest of the assignment; empty at first."""
    return {}
