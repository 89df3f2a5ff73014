"""The longest chain of a step as a lower bound, for many sets of allowed devices at once."""

from __future__ import annotations

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
        problem, edges = self._simulator.problem, self._simulator.edges
        begin, consumer = edges.start_list, edges.consumer_list
        shape = (problem.num_ops, len(allowed), problem.num_devices)
        ready = np.zeros(shape, np.int64)  # when the host can issue the op
        behind = np.zeros(shape, np.int64)  # when the stream can begin it
        end = np.zeros(len(allowed), np.int64)
        for op, unit in enumerate(self._unit):
            may = allowed[:, unit]
            issued = np.where(may, ready[op] + self._first[op], NEVER)
            done = np.where(may & self._streamed[op], np.maximum(issued, behind[op]) + self._second[op], issued)
            np.maximum(end, done.min(axis=1), out=end)
            for e in range(begin[op], begin[op + 1]):
                host, stream = self._after(e, issued, done)
                np.maximum(ready[consumer[e]], host, out=ready[consumer[e]])
                np.maximum(behind[consumer[e]], stream, out=behind[consumer[e]])
        return end

    def _after(self, edge: int, issued: Ints, done: Ints) -> tuple[Ints, Ints]:
        """[..., D] twice: when the host can issue the consumer of an edge, and when the stream can begin it."""
        host = (done[..., None] + self._copy_ns[edge]).min(axis=-2)
        if not self._early[edge].any():
            return host, host
        stream = host  # to stay on a device is never later than to leave it and come back
        host = np.where(self._early[edge], np.minimum(host, issued), host)
        return host, np.where(self._follows[edge], stream, host)

    def heads(self, allowed: Bools) -> tuple[Ints, Ints]:
        """[N, D] twice: the earliest times at which each op is issued and ends on each device.

        Args:
            allowed: [N, D]; the times are `NEVER` or later where it is False.
        """
        problem, edges = self._simulator.problem, self._simulator.edges
        begin, consumer = edges.start_list, edges.consumer_list
        issued, done = np.zeros(allowed.shape, np.int64), np.zeros(allowed.shape, np.int64)
        behind = np.zeros(allowed.shape, np.int64)
        for op in range(problem.num_ops):
            issued[op] = np.where(allowed[op], issued[op] + self._first[op], NEVER)
            in_stream = np.maximum(issued[op], behind[op]) + self._second[op]
            done[op] = np.where(allowed[op] & self._streamed[op], in_stream, issued[op])
            for e in range(begin[op], begin[op + 1]):
                host, stream = self._after(e, issued[op], done[op])
                np.maximum(issued[consumer[e]], host, out=issued[consumer[e]])
                np.maximum(behind[consumer[e]], stream, out=behind[consumer[e]])
        return issued, done

    def tails(self, allowed: Bools) -> tuple[Ints, Ints]:
        """[N, D] twice: the least times from when each op is issued, and from its end, to the end of the step.

        Args:
            allowed: [N, D]
        """
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
