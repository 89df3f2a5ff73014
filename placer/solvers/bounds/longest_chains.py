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
        may = np.ascontiguousarray(
            allowed.transpose(1, 2, 0)
        )  # the sets are the last axis, the long one, which numpy loops over fast
        shape = (problem.num_ops, problem.num_devices, len(allowed))
        ready = np.zeros(shape, np.int64)  # when the host can issue the op
        behind = np.zeros(shape, np.int64)  # when the stream can begin it
        end = np.zeros(len(allowed), np.int64)
        for op, unit in enumerate(self._unit):
            issued = done = np.where(may[unit], ready[op] + self._first[op][:, None], NEVER)
            if self._streamed[op].any():
                streamed = may[unit] & self._streamed[op][:, None]
                done = np.where(streamed, np.maximum(issued, behind[op]) + self._second[op][:, None], issued)
            np.maximum(end, done.min(axis=0), out=end)
            for e in range(begin[op], begin[op + 1]):
                user = consumer[e]
                host = (done[:, None] + self._copy_ns[e][:, :, None]).min(axis=0)
                stream = host
                if self._early[e].any():  # to stay on a device is never later than to leave it and come back
                    host = np.where(self._early[e][:, None], np.minimum(host, issued), host)
                    stream = np.where(self._follows[e][:, None], stream, host)
                np.maximum(ready[user], host, out=ready[user])
                np.maximum(behind[user], stream, out=behind[user])
        return end
