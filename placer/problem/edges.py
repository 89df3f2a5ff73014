"""Edges: which op passes a tensor or a control signal to which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placer.problem.arrays import Bools, Floats, Ints, derived
from placer.problem.problem import PlacementProblem, once_per_problem


@dataclass(frozen=True, eq=False)
class Edges:
    """M messages that ops make, and E edges along which ops receive them.

    A *message* is a tensor, or the control signal of an op that has control edges: message t is tensor t for t < T, the others
    are signals. Where a signal crosses devices, it is a copy of no bytes between the devices' own memories, as TensorFlow sends
    it.
    Edges are in the order of the problem's consumer entries, then of its control edges, unless said otherwise.
    """

    op: Ints
    """[M]: producer."""
    place: Ints
    """[M, D]: where the message is made, by the producer's device."""
    nbytes: Ints
    """[M]: as copies count them."""
    count: Floats
    """[M]: copies per step, to each place it is copied to."""
    free: Bools
    """[M]: a copy takes no time."""
    message: Ints
    """[E]"""
    consumer: Ints
    """[E]: the op that receives the message."""
    consumer_place: Ints
    """[E, D]: the place from which the consumer takes it, by the consumer's device."""
    is_control: Bools
    """[E]"""

    @classmethod
    def of(cls, problem: PlacementProblem) -> Edges:
        """Gathers the edges of a problem."""
        tensors, consumers, ops = problem.tensors, problem.consumers, problem.ops
        sources, source = np.unique(ops.control_src, return_inverse=True)
        own = np.arange(problem.num_devices)
        return cls(
            op=np.append(tensors.op, sources),
            place=np.concatenate([problem.tensor_place, np.tile(own, (len(sources), 1))]),
            nbytes=np.append(tensors.copy_bytes, np.zeros(len(sources), np.int64)),
            count=np.append(tensors.count, ops.control_count[sources]),
            free=np.append(tensors.free, np.zeros(len(sources), np.bool_)),
            message=np.append(consumers.tensor, len(tensors) + source),
            consumer=np.append(consumers.op, ops.control_dst),
            consumer_place=np.concatenate([problem.consumer_place, np.tile(own, (len(source), 1))]),
            is_control=np.arange(len(consumers) + len(source)) >= len(consumers),
        )

    @derived
    def producer(self) -> Ints:
        """[E]: the op that makes the message."""
        return self.op[self.message]


edges_of = once_per_problem(Edges.of)
