"""The execution model: what a step would take, and the objective "step_time"."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush, heapreplace

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.encoded_assignment import EncodedAssignment
from placer.problem.memory import peaks
from placer.problem.model_tables import tables_of
from placer.problem.problem import Assignment, PlacementProblem, once_per_problem
from placer.problem.step_edges import DONE, ISSUED, step_edges_of
from placer.problem.step_state import StepState

ASLEEP_NS = 1_000_000
"""A caller that waits this long wakes as slowly as after any longer wait; `Devices.waiting_ns` is measured there."""


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
        self.edges = step_edges_of(problem)
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
        op_device = assignment.device[problem.ops.unit]
        encoded, state = EncodedAssignment.of(problem, op_device), StepState.first(problem)
        self.advance(encoded, state)
        every = np.arange(problem.num_ops)
        streamed = problem.devices.asynchronous[op_device] & ~self.tables.host_only[every, op_device]
        alone = np.where(problem.devices.asynchronous[op_device], 0, problem.ops.time_ns[every, op_device])
        work = np.where(streamed, problem.ops.compute_ns[every, op_device], alone)
        busy = np.zeros(problem.num_devices, np.int64)
        np.add.at(busy, op_device, work)
        return Simulation(
            step_ns=self.whole_ns(state.latest_ns, self.call_ns(assignment)),
            busy_ns=busy,
            start_ns=np.array(encoded.start, np.int64),
            end_ns=np.array(encoded.end, np.int64),
            streamed=streamed,
            peak_bytes=peaks(problem, assignment),
            copy_tensor=np.where(encoded.message < problem.num_tensors, encoded.message, -1),
            copy_op=self.edges.op[encoded.message],
            copy_src=encoded.src,
            copy_dst=encoded.dst,
            copy_start_ns=np.array(encoded.began, np.int64),
            copy_end_ns=np.array(encoded.arrived, np.int64),
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

    def advance(self, encoded: EncodedAssignment, state: StepState, limit: int | None = None) -> None:
        """Starts the next ops, at most so many."""
        # This loop is where searches spend their time: comparisons rather than max(), which costs a call each.
        ops = self.problem.num_ops
        device, stream, sharing, wake, awake, spent, dispatch, compute, first, last, send, cold, count = encoded.by_op
        edge_wait, (total, busy, link, is_control, into, handled, times) = encoded.edge_wait, encoded.by_copy
        start, end, began, arrived, order = encoded.start, encoded.end, encoded.began, encoded.arrived, encoded.order
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
                k = edge_wait[e]
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
                    if is_control[k] and stream_free[d] > when:
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

    def _played(self, assignment: Assignment) -> StepState:
        """The state after the last op."""
        state = StepState.first(self.problem)
        self.advance(EncodedAssignment.of(self.problem, assignment.device[self.problem.ops.unit]), state)
        return state


@once_per_problem
def step_lengths_of(problem: PlacementProblem) -> dict[bytes, int]:
    """The lengths in ns that all simulators of a problem have found so far, by the digest of the assignment; empty at first."""
    return {}
