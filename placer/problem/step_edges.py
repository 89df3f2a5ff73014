"""The edges of a problem in the order in which the execution model follows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Grouped, Ints, derived
from placer.problem.edges import Edges, edges_of
from placer.problem.problem import PlacementProblem, once_per_problem

ISSUED, DONE = -2, -1
"""When an edge that needs no copy lets its consumer start: once its producer is dispatched to the stream, or is done."""


@dataclass(frozen=True, eq=False)
class StepEdges(Edges):
    """`Edges` sorted by producer, then by message."""

    awaited: Bools
    """[M]: all consumers wait for the end of the producer."""
    start_list: list[int]
    """The edges out of op i are start_list[i]:start_list[i + 1]."""
    consumer_list: list[int]
    """[E]"""
    message_end_list: list[int]
    """[E]: the first edge after those of the same message."""
    waits_list: list[int]
    """[N]: the number of edges into each op."""
    is_control_list: list[bool]
    """[E]"""

    @classmethod
    def of(cls, problem: PlacementProblem) -> StepEdges:
        """Sorts the edges of a problem."""
        edges = edges_of(problem)
        order = np.argsort(edges.producer, kind="stable")
        message = edges.message[order]
        begins = np.flatnonzero(np.diff(message, prepend=-1))
        ends = np.append(begins, len(message))[1:]
        return cls(
            op=edges.op,
            place=edges.place,
            nbytes=edges.nbytes,
            count=edges.count,
            free=edges.free,
            message=message,
            consumer=edges.consumer[order],
            consumer_place=edges.consumer_place[order],
            is_control=edges.is_control[order],
            awaited=problem.ops.awaited[edges.op],
            start_list=np.searchsorted(edges.producer[order], np.arange(problem.num_ops + 1)).tolist(),
            consumer_list=edges.consumer[order].tolist(),
            message_end_list=np.repeat(ends, ends - begins).tolist(),
            waits_list=np.bincount(edges.consumer, minlength=problem.num_ops).tolist(),
            is_control_list=edges.is_control[order].tolist(),
        )

    @derived
    def into(self) -> Grouped:
        """Edges by consumer."""
        return Grouped.by(self.consumer, len(self.waits_list))

    def producers_of(self, ops: Ints) -> Ints:
        """The producers of all messages that these ops receive; some more than once."""
        return self.producer[self.into.of(ops)]

    def copies(self, problem: PlacementProblem, op_device: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The copies that an assignment makes, numbered by message and destination.

        Returns:
            What each edge waits for (see `EncodedAssignment.edge_wait`); the message, source and destination of each copy.
        """
        message = self.message
        src = self.place[message, op_device[self.producer]]
        dst = self.consumer_place[np.arange(len(message)), op_device[self.consumer]]
        in_stream = (src == dst) & (src < problem.num_devices) & problem.devices.asynchronous[src % problem.num_devices]
        wait = np.where((in_stream | self.is_control) & ~self.awaited[message], ISSUED, DONE)
        crosses = np.flatnonzero((src != dst) & ~self.free[message])
        key, begins, number = np.unique(
            message[crosses] * 2 * problem.num_devices + dst[crosses], return_index=True, return_inverse=True
        )
        wait[crosses] = 2 * number + 1
        wait[crosses[begins]] -= 1
        return wait, key // (2 * problem.num_devices), src[crosses[begins]], key % (2 * problem.num_devices)

    def pairs(self, problem: PlacementProblem) -> tuple[Ints, Ints]:
        """For each edge, [E, D] `ISSUED` or `DONE` with both ends on device d, and [E, D, D] the copy from device to device."""
        own = np.arange(problem.num_devices)
        src, dst = self.place[self.message], self.consumer_place
        in_stream = (src == own) & problem.devices.asynchronous
        early = (src == dst) & (in_stream | self.is_control[:, None]) & ~self.awaited[self.message, None]
        nbytes, count = self.nbytes[self.message][:, None, None], self.count[self.message][:, None, None]
        copy = problem.links.copy_ns(nbytes, count, src[:, :, None], dst[:, None, :])
        return np.where(early, ISSUED, DONE), np.where(self.free[self.message][:, None, None], 0, copy)


step_edges_of = once_per_problem(StepEdges.of)
