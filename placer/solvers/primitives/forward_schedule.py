"""List scheduling on the execution model: ops run in their order, each on a device that is chosen when its turn comes."""

from __future__ import annotations

import numpy as np

from placer.common.clock import spend
from placer.problem.grouping import grouped
from placer.problem.model_tables import tables_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.step_edges import ISSUED, step_edges_of
from placer.solvers.primitives.incremental_memory import NOWHERE

RUN_OP_RUNS = 5
"""The work to run an op, see `placer.common.clock.spend`."""


class ForwardSchedule:
    """A partial schedule with the threads and streams of the execution model, and with links that never queue.

    Ops run in their order. An op may run once its unit and the units of all ops before it have a device.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        edges = step_edges_of(problem)
        devices, ops = problem.devices, problem.ops
        self.device = [NOWHERE] * problem.num_units
        """By unit; the caller sets it."""
        self.unit: list[int] = ops.unit.tolist()
        """By op."""
        edge_wait, copy = edges.pairs(problem)
        self.copy_ns: list[list[list[int]]] = copy.tolist()
        """[E][D][D]"""
        self._issued_first: list[list[bool]] = (edge_wait == ISSUED).tolist()
        self._into = grouped(edges.consumer, problem.num_ops)
        self._producer: list[int] = edges.producer.tolist()
        self._is_control = edges.is_control_list
        self._streamed: list[list[bool]] = (devices.asynchronous & ~tables_of(problem).host_only).tolist()
        self._dispatch, self._compute, self._alone = ops.dispatch_ns.tolist(), ops.compute_ns.tolist(), ops.time_ns.tolist()
        threads = [
            [0] * (1 if asynchronous else count)
            for count, asynchronous in zip(devices.threads.tolist(), devices.asynchronous.tolist(), strict=True)
        ]
        self._threads = [threads[runner] for runner in devices.runner.tolist()]  # [D]: when each thread is idle again
        self._stream = [0] * problem.num_devices
        self._issued, self._done = [0] * problem.num_ops, [0] * problem.num_ops

    def end_ns(self, op: int, device: int) -> int:
        """When an op would end on a device."""
        return self._times(op, device)[1]

    def run(self, op: int) -> None:
        """Runs an op on the device of its unit."""
        spend(RUN_OP_RUNS)
        device = self.device[self.unit[op]]
        host_end, end = self._times(op, device)
        self._issued[op], self._done[op] = host_end, end
        if self._streamed[op][device]:
            self._stream[device] = end
        if self._alone[op][device]:
            threads = self._threads[device]
            threads[threads.index(min(threads))] = host_end

    @property
    def assignment(self) -> Assignment:
        """The devices of the units."""
        return Assignment(np.array(self.device, np.int64))

    def _times(self, op: int, device: int) -> tuple[int, int]:
        """When the thread that runs an op on a device is idle again, and when the op ends."""
        ready = 0
        for e in self._into[op]:
            source = self._producer[e]
            at = self.device[self.unit[source]]
            if at == device and self._issued_first[e][device]:
                ready = max(ready, self._issued[source])
            else:
                start = (self._issued if self._is_control[e] else self._done)[source]
                ready = max(ready, start + self.copy_ns[e][at][device])
        begin = max(ready, min(self._threads[device])) if self._alone[op][device] else ready
        if not self._streamed[op][device]:
            return begin + self._alone[op][device], begin + self._alone[op][device]
        host_end = begin + self._dispatch[op][device]
        return host_end, max(host_end, self._stream[device]) + self._compute[op][device]
