"""The execution model: what a step would take, and the objective "step_time"."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush, heapreplace

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Bools, Ints
from placer.problem.encoded_assignment import EncodedAssignment
from placer.problem.incremental_encoding import IncrementalEncoding
from placer.problem.memory import peaks
from placer.problem.model_tables import tables_of
from placer.problem.problem import Assignment, PlacementProblem, once_per_problem
from placer.problem.step_edges import DONE, step_edges_of
from placer.problem.step_state import StepState

MAX_INCREMENTAL_OPS, MAX_INCREMENTAL_SHARE = 1_000, 0.2
"""Up to this number of ops, a simulator keeps an encoded assignment, and encodes only what changes if at most this share of the
units has moved since the last simulation. Otherwise an encoding by arrays is faster. For moves in larger problems,
`placer.problem.replay` is."""
ASLEEP_NS = 1_000_000
"""A caller that waits this long wakes as slowly as after any longer wait; `Devices.waiting_ns` is measured there."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """The schedule of one step. Times in ns since the start of the first op; X copies."""

    step_ns: int
    """The step time: the predicted time of the whole call."""
    busy_ns: Ints
    """[D]: of an asynchronous device's stream, or of all threads of another device."""
    start_ns: Ints
    """[N]: when each op starts to compute."""
    end_ns: Ints
    """[N]"""
    streamed: Bools
    """[N]: the op computes in its device's stream, not on a thread."""
    peak_bytes: Ints
    """[D]"""
    copy_tensor: Ints
    """[X]; -1 for control edges."""
    copy_op: Ints
    """[X]: producer."""
    copy_src: Ints
    """[X]: place."""
    copy_dst: Ints
    """[X]: place."""
    copy_start_ns: Ints
    """[X]"""
    copy_end_ns: Ints
    """[X]: when the copy may be used."""


def simulate(problem: PlacementProblem, assignment: Assignment) -> Simulation:
    """The schedule of one step of an assignment by the execution model; see `Simulator`."""
    return Simulator(problem).run(assignment)


class Simulator:
    """The execution model of one problem: the step time of any assignment, as docs/execution_model.md defines it."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.tables = tables_of(problem)
        self.edges = step_edges_of(problem)
        self.base = problem.num_ops + len(self.edges.consumer_list)
        """What `StepState.queue` multiplies times with."""
        self._known_ns = step_lengths_of(problem)
        self._last = np.full(problem.num_units, -1)
        self._encoding: IncrementalEncoding | None = None

    def step_ns(self, assignment: Assignment) -> int:
        """The step time alone. Each assignment is simulated once, however many simulators its problem has."""
        key = hashlib.blake2b(assignment.device.tobytes(), digest_size=16).digest()
        if key not in self._known_ns:
            spend(self.problem.num_ops)
            self._known_ns[key] = self.whole_ns(self._played(assignment).latest_ns, self.call_ns(assignment))
        return self._known_ns[key]

    def run(self, assignment: Assignment) -> Simulation:
        """The schedule of one step."""
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
        """The step time: the time of all ops, of the call beside them, and of waking the caller.

        The caller sleeps more deeply the longer it waits, so waking takes a share of `waiting_ns` up to a wait of `ASLEEP_NS`.
        """
        return ops_ns + call_ns + self.problem.devices.waiting_ns * min(ops_ns, ASLEEP_NS) // ASLEEP_NS

    def call_ns(self, assignment: Assignment) -> int:
        """The time of a call beside its ops: `call_overhead_ns`, the largest `call_ns` of the devices used, `split_ns` for each
        further device.
        """
        present = assignment.device[self.problem.ops.unit[self.tables.present]]
        return self.call_of_ns(np.bincount(present, minlength=self.problem.num_devices) > 0)

    def call_of_ns(self, used: Bools) -> int:
        """`call_ns` by the devices that have ops, [D]."""
        problem = self.problem
        slowest = int(problem.devices.call_ns[used].max()) if used.any() else 0
        return problem.devices.call_overhead_ns + slowest + problem.devices.split_ns * max(0, int(used.sum()) - 1)

    @cached_property
    def least_call_ns(self) -> int:
        """A lower bound of `call_ns`: units that are allowed on one device only use that device."""
        problem = self.problem
        allowed = problem.units.allowed[problem.ops.unit[self.tables.present]]
        if not len(allowed):
            return problem.devices.call_overhead_ns
        forced = allowed[allowed.sum(axis=1) == 1].any(axis=0)
        least_ns = int(problem.devices.call_ns[allowed.any(axis=0)].min())
        return self.call_of_ns(forced) if forced.any() else problem.devices.call_overhead_ns + least_ns

    def encode(self, device: Ints) -> EncodedAssignment:
        """The encoding of the assignment to these devices, [U]. The next call changes it, in less time the fewer units move."""
        if self._encoding is None:
            self._encoding = IncrementalEncoding(self.problem, device)
        return self._encoding.move_to(device)

    def advance(self, encoded: EncodedAssignment, state: StepState, limit: int | None = None) -> None:
        """Starts the next ops, at most `limit` of them, and the copies that are ready before; all by default.

        Writes their times into `encoded` and `state`.
        """
        # This loop is where searches spend their time: comparisons rather than max(), which costs a call each.
        ops, base = self.problem.num_ops, self.base
        device, stream, sharing, wake, spent, dispatch, compute, send = encoded.by_op
        edge_wait, (total, busy, link, out_of, into, handled) = encoded.edge_wait, encoded.by_copy
        start, end, began, arrived, order = encoded.start, encoded.end, encoded.began, encoded.arrived, encoded.order
        consumer, begin_edge, message_end = self.edges.consumer_list, self.edges.start_list, self.edges.message_end_list
        pools, stream_free, alone_free, link_free = state.pools, state.stream_free, state.alone_free, state.link_free
        ready, waits, queue = state.ready, state.waits, state.queue
        latest = state.latest_ns
        until = ops if limit is None else len(order) + limit
        while queue and len(order) < until:
            at, i = divmod(heappop(queue), base)
            if i >= ops:
                e = i - ops
                k = edge_wait[e] >> 1
                if into[k] >= 0:
                    feeder = pools[into[k]]
                    feeder[0] = (feeder[0] if feeder[0] > at else at) + handled[k]
                    if stream_free[into[k]] > at:
                        at = stream_free[into[k]]
                if out_of[k] >= 0 and stream_free[out_of[k]] > at:
                    at = stream_free[out_of[k]]
                if link_free[link[k]] > at:
                    at = link_free[link[k]]
                began[k] = at
                link_free[link[k]] = at + busy[k]
                arrived[k] = at = at + total[k]
                for f in range(e, message_end[e]):
                    if edge_wait[f] >> 1 == k:
                        j = consumer[f]
                        if at > ready[j]:
                            ready[j] = at
                        waits[j] -= 1
                        if not waits[j]:
                            heappush(queue, ready[j] * base + j)
                continue
            order.append(i)
            d = device[i]
            pool = pools[d]
            if stream[i]:
                issued = (at if at > pool[0] else pool[0]) + dispatch[i]
                pool[0] = issued + send[i]
                begin = stream_free[d] if stream_free[d] > issued else issued
                done = begin + compute[i]
                if compute[i]:
                    stream_free[d] = done
            else:
                begin = at
                takes = spent[i]
                if takes:
                    if pool[0] > begin:
                        begin = pool[0]
                    if sharing[i]:
                        alone = alone_free[sharing[i]]
                        if begin > alone[d]:
                            takes += wake[i]
                        if alone[d] > begin:
                            begin = alone[d]
                        alone[d] = begin + takes + send[i]
                    heapreplace(pool, begin + takes + send[i])
                issued = done = begin + takes
            start[i], end[i] = begin, done
            if done > latest:
                latest = done
            for e in range(begin_edge[i], begin_edge[i + 1]):
                k = edge_wait[e]
                if k >= 0:
                    if not k & 1:  # the first edge of a copy
                        heappush(queue, (issued if out_of[k >> 1] >= 0 else done) * base + ops + e)
                    continue
                when = done if k == DONE else issued
                j = consumer[e]
                if when > ready[j]:
                    ready[j] = when
                waits[j] -= 1
                if not waits[j]:
                    heappush(queue, ready[j] * base + j)
        state.latest_ns = latest

    def _played(self, assignment: Assignment) -> StepState:
        """The state after the last op."""
        state, device = self._first.copy(), assignment.device
        far = MAX_INCREMENTAL_SHARE * self.problem.num_units
        moving = self.problem.num_ops <= MAX_INCREMENTAL_OPS and np.count_nonzero(device != self._last) <= far
        self._last = device.copy()
        encoded = self.encode(device) if moving else EncodedAssignment.of(self.problem, device[self.problem.ops.unit])
        self.advance(encoded, state)
        return state

    @cached_property
    def _first(self) -> StepState:
        return StepState.first(self.problem)


@once_per_problem
def step_lengths_of(problem: PlacementProblem) -> dict[bytes, int]:
    """The lengths in ns that all simulators of a problem have found so far, by the digest of the assignment; empty at first."""
    return {}
