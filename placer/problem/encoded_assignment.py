"""An assignment in the form in which the execution model's loop reads it: lists of the values of each op, edge and copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placer.problem.arrays import Bools, Ints
from placer.problem.model_tables import WIDE, tables_of
from placer.problem.problem import PlacementProblem
from placer.problem.step_edges import step_edges_of


@dataclass(slots=True, eq=False)
class EncodedAssignment:
    """What the loop reads of an assignment, and the times that it writes. Plain lists, as the loop handles one op at a time."""

    by_op: tuple[list[Any], ...]
    """Columns by op, times in ns:

    - the device that runs it (`Devices.runner`); whether the op enters its stream; how it shares threads;
    - the time to wake these threads;
    - time, dispatch and compute of all runs;
    - the time in which its thread sends its results.
    """
    edge_wait: list[int]
    """By edge: `ISSUED`, `DONE`, or twice the number of the copy to wait for, plus one if an earlier edge has begun it."""
    by_copy: tuple[list[Any], ...]
    """Columns by copy, times in ns:

    - time until it arrives; time for which it occupies the link; the link;
    - the device out of whose stream it comes, and the device into whose stream it goes; -1 if there is none;
    - time for which it occupies the threads that send and receive it.
    """
    message: Ints
    """[X]: what each copy carries, a number in `StepEdges`."""
    src: Ints
    """[X]: place."""
    dst: Ints
    """[X]: place."""
    start: list[int] = field(default_factory=list)
    """By op, written by the loop, as are all below."""
    end: list[int] = field(default_factory=list)
    began: list[int] = field(default_factory=list)
    """By copy."""
    arrived: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """Ops in the order in which they start."""

    def __post_init__(self) -> None:
        self.start, self.end = ([0] * len(self.by_op[0]) for _ in range(2))
        self.began, self.arrived = ([0] * len(self.message) for _ in range(2))

    @classmethod
    def of(cls, problem: PlacementProblem, op_device: Ints) -> EncodedAssignment:
        """Encodes an assignment to these devices, [N]."""
        edges = step_edges_of(problem)
        wait, message, src, dst = edges.copies(problem, op_device)
        by_copy = copy_columns(problem, message, src, dst)
        sends = np.zeros(problem.num_ops, np.int64)
        np.add.at(sends, edges.op[message], by_copy[-1])
        by_op = (*op_columns(problem, op_device), sends)
        return cls(tuple(a.tolist() for a in by_op), wait.tolist(), tuple(a.tolist() for a in by_copy), message, src, dst)


def op_columns(problem: PlacementProblem, device: Ints) -> tuple[Ints | Bools, ...]:
    """The columns `EncodedAssignment.by_op` of ops on these devices, [N], without the last one, the time of what they send."""
    tables, every = tables_of(problem), np.arange(problem.num_ops)
    sharing = tables.sharing[every, device]
    return (
        problem.devices.runner[device],
        problem.devices.asynchronous[device] & ~tables.host_only[every, device],
        sharing,
        np.rint(np.where(sharing == WIDE, problem.devices.wake_ns[device] * tables.runs, 0)).astype(np.int64),
        problem.ops.time_ns[every, device],
        problem.ops.dispatch_ns[every, device],
        problem.ops.compute_ns[every, device],
    )


def copy_columns(problem: PlacementProblem, message: Ints, src: Ints, dst: Ints) -> tuple[Ints, ...]:
    """The columns `EncodedAssignment.by_copy` of copies of these messages, [X] numbers in `StepEdges`, from place to place."""
    table, asynchronous = step_edges_of(problem), problem.devices.asynchronous
    count = table.count[message]
    copied = problem.links.copy_ns(table.nbytes[message], count, src, dst)
    handled = np.rint(count * problem.links.interval_ns[src, dst]).astype(np.int64)
    moved = copied - np.rint(count * problem.links.latency_ns[src, dst]).astype(np.int64)
    occupied = np.maximum(moved, handled) if problem.links.contention else np.zeros_like(moved)
    own = np.append(np.where(asynchronous, np.arange(problem.num_devices), -1), [-1] * problem.num_devices)
    return copied, occupied, src * 2 * problem.num_devices + dst, own[src], own[dst], handled
