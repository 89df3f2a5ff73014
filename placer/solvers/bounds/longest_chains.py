"""The longest chain of a step as a lower bound, for many sets of allowed devices at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED

NEVER = 2**60
"""The time at which an op ends on a device that it may not use, in ns; some thousand of it fit in 64 bits."""


class LongestChains:
    """The earliest end of the last op if no two ops shared a resource.

    For each op and device it computes the earliest time at which the op can be issued, and at which it can end. Each edge chooses
    its producer's device freely; an edge between two devices pays for its copy.
    """

    def __init__(self, simulator: Simulator) -> None:
        problem = simulator.problem
        self._simulator, self._unit = simulator, problem.ops.unit.tolist()
        self._streamed = problem.devices.asynchronous & ~simulator.tables.host_only
        self._first = np.where(self._streamed, problem.ops.dispatch_ns, problem.ops.time_ns)
        self._second = np.where(self._streamed, problem.ops.compute_ns, 0)
        wait, self._copy_ns = simulator.edges.pairs(problem)
        self._early = wait == ISSUED
        self._follows = self._early & self._streamed[simulator.edges.producer]

    def end_ns(self, allowed: Bools) -> Ints:
        """[K]: the end for each of K sets of allowed devices, [K, U, D], in ns. Time: K E D²."""
        end = np.zeros(len(allowed), np.int64)
        for _, done in self._heads(allowed.transpose(1, 2, 0)):
            np.maximum(end, done.min(axis=0), out=end)
        return end

    def heads(self, allowed: Bools) -> tuple[Ints, Ints]:
        """[N, D] twice: the earliest times at which each op is issued and ends on each device.

        Args:
            allowed: [U, D]; the times are `NEVER` or later where it is False.
        """
        times = np.array([*self._heads(allowed[:, :, None])], np.int64)
        issued, done = times.reshape(-1, 2, allowed.shape[1]).swapaxes(0, 1)
        return issued, done

    def _heads(self, allowed: Bools) -> Iterator[tuple[Ints, Ints]]:
        """[D, K] twice for each op: when it is issued and ends, for K sets of allowed devices, [U, D, K]."""
        problem, edges = self._simulator.problem, self._simulator.edges
        begin, consumer = edges.start_list, edges.consumer_list
        may = np.ascontiguousarray(allowed)  # the sets are the last axis, the long one, which numpy loops over fast
        shape = (problem.num_ops, *allowed.shape[1:])
        ready = np.zeros(shape, np.int64)  # when the host can issue the op
        behind = np.zeros(shape, np.int64)  # when the stream can begin it
        for op, unit in enumerate(self._unit):
            issued = done = np.where(may[unit], ready[op] + self._first[op][:, None], NEVER)
            if self._streamed[op].any():
                streamed = may[unit] & self._streamed[op][:, None]
                done = np.where(streamed, np.maximum(issued, behind[op]) + self._second[op][:, None], issued)
            yield issued, done
            for e in range(begin[op], begin[op + 1]):
                user = consumer[e]
                host = (done[:, None] + self._copy_ns[e][:, :, None]).min(axis=0)
                stream = host
                if self._early[e].any():  # to stay on a device is never later than to leave it and come back
                    host = np.where(self._early[e][:, None], np.minimum(host, issued), host)
                    stream = np.where(self._follows[e][:, None], stream, host)
                np.maximum(ready[user], host, out=ready[user])
                np.maximum(behind[user], stream, out=behind[user])

    def tails(self, allowed: Bools) -> tuple[Ints, Ints]:
        """[N, D] twice: the least times from when each op is issued, and from its end, to the end of the step.

        Args:
            allowed: [U, D]
        """
        allowed = allowed[self._simulator.problem.ops.unit]
        problem, edges = self._simulator.problem, self._simulator.edges
        begin, consumer = edges.start_list, edges.consumer_list
        after_issue, after_end = self._second.astype(np.int64), np.zeros(allowed.shape, np.int64)
        own = np.eye(problem.num_devices, dtype=np.bool_)
        for op in reversed(range(problem.num_ops)):
            for e in range(begin[op], begin[op + 1]):
                user = consumer[e]
                rest = np.where(allowed[user], self._first[user] + after_issue[user], NEVER)
                by_devices = self._copy_ns[e] + rest
                if self._early[e].any():
                    follows = np.where(self._follows[e] & self._streamed[user], self._second[user] + after_end[user], 0)
                    staying = np.where(allowed[user], follows, NEVER)
                    early = own & self._early[e]
                    from_end = np.where(early, staying, by_devices).min(axis=1)
                    both = np.maximum(rest, self._second[op] + staying)
                    from_issue = np.where(early, both, self._second[op][:, None] + by_devices).min(axis=1)
                else:
                    from_end = by_devices.min(axis=1)
                    from_issue = self._second[op] + from_end
                np.maximum(after_end[op], from_end, out=after_end[op])
                np.maximum(after_issue[op], from_issue, out=after_issue[op])
            np.maximum(after_issue[op], self._second[op] + after_end[op], out=after_issue[op])
        return after_issue, after_end
