"""An encoded assignment that follows an assignment whose units move: only what a move changes is encoded again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.encoded_assignment import EncodedAssignment, copy_columns, op_columns
from placer.problem.grouping import grouped
from placer.problem.problem import PlacementProblem, once_per_problem
from placer.problem.step_edges import DONE, ISSUED, step_edges_of


@dataclass(frozen=True, eq=False)
class _Tables:
    """What the encodings of a problem have in common, as plain lists."""

    by_op: list[tuple[list[object], ...]]
    """[D]: `op_columns` if every op is on this device."""
    ops: list[list[int]]
    """[U]: the ops of each unit."""
    messages: list[list[int]]
    """[U]: the messages that the ops of a unit make or take."""
    producer: list[int]
    """[M]"""
    edges: list[range]
    """[M]"""
    place: list[list[int]]
    """[M][D]"""
    free: list[bool]
    """[M]"""
    awaited: list[bool]
    """[M]"""
    consumer_place: list[list[int]]
    """[E][D]"""
    in_stream: list[bool]
    """[P]: the place is the own memory of an asynchronous device."""

    @classmethod
    def of(cls, problem: PlacementProblem) -> _Tables:
        table = step_edges_of(problem)
        on_device = [op_columns(problem, np.full(problem.num_ops, d)) for d in range(problem.num_devices)]
        edges = [range(0)] * len(table.op)
        for e in np.flatnonzero(np.diff(table.message, prepend=-1)).tolist():
            edges[table.message[e]] = range(e, table.message_end_list[e])
        ends = problem.ops.unit[np.append(table.producer, table.consumer)]
        pairs = np.unique(ends * len(table.op) + np.tile(table.message, 2))
        start = np.searchsorted(pairs, np.arange(problem.num_units + 1) * len(table.op)).tolist()
        owned = (pairs % max(1, len(table.op))).tolist()
        return cls(
            by_op=[tuple(column.tolist() for column in columns) for columns in on_device],
            ops=grouped(problem.ops.unit, problem.num_units),
            messages=[owned[a:b] for a, b in pairwise(start)],
            producer=table.op.tolist(),
            edges=edges,
            place=table.place.tolist(),
            free=table.free.tolist(),
            awaited=table.awaited.tolist(),
            consumer_place=table.consumer_place.tolist(),
            in_stream=[*problem.devices.asynchronous.tolist(), *[False] * problem.num_devices],
        )


_tables_of = once_per_problem(_Tables.of)


class IncrementalEncoding:
    """The encoding of one assignment after another.

    Equal to `EncodedAssignment.of`, but for the numbers of the copies: a copy of message m to place q has the number m * P + q,
    and there are rows of copies that are not made. Time of a change: linear in the edges of the messages that the moved units
    make or take.
    """

    def __init__(self, problem: PlacementProblem, device: Ints) -> None:
        """Encodes the assignment to these devices, [U]."""
        self._problem, self._tables, self._device = problem, _tables_of(problem), device.copy()
        edges, self._places = step_edges_of(problem), 2 * problem.num_devices
        self._consumer, self._is_control = edges.consumer_list, edges.is_control_list
        self._op_device: list[int] = device[problem.ops.unit].tolist()
        columns = list(zip(*self._tables.by_op, strict=True))  # each column on each device
        by_op = [[of[d][i] for i, d in enumerate(self._op_device)] for of in columns]
        none = np.zeros(len(edges.op) * self._places, np.int64)
        by_copy = tuple(none.tolist() for _ in range(6))
        self.encoded = EncodedAssignment((*by_op, [0] * problem.num_ops), [DONE] * len(self._consumer), by_copy, none, none, none)
        self._sent = [0] * len(edges.op)  # by message: how long its copies occupy the producer's thread
        self._rows: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for message in range(len(edges.op)):
            self._encode(message)

    def move_to(self, device: Ints) -> EncodedAssignment:
        """The encoding of the assignment to these devices, [U]. The next change overwrites it."""
        tables, encoded = self._tables, self.encoded
        changed: set[int] = set()
        for unit in np.flatnonzero(device != self._device).tolist():
            d = int(device[unit])
            for op in tables.ops[unit]:
                self._op_device[op] = d
                for column, of in zip(encoded.by_op[:-1], tables.by_op[d], strict=True):
                    column[op] = of[op]
            changed.update(tables.messages[unit])
            self._device[unit] = d
        for message in changed:
            self._encode(message)
        encoded.order.clear()
        return encoded

    def _encode(self, message: int) -> None:
        """Writes what the edges of a message wait for, and its copies."""
        tables, wait, op_device = self._tables, self.encoded.edge_wait, self._op_device
        op = tables.producer[message]
        src, free = tables.place[message][op_device[op]], tables.free[message]
        in_stream, awaited, base, sent = tables.in_stream[src], tables.awaited[message], message * self._places, 0
        begun: list[int] = []
        for e in tables.edges[message]:
            dst = tables.consumer_place[e][op_device[self._consumer[e]]]
            if src == dst or free:
                early = (src == dst and in_stream) or self._is_control[e]
                wait[e] = ISSUED if early and not awaited else DONE
            elif dst in begun:
                wait[e] = 2 * (base + dst) + 1
            else:
                begun.append(dst)
                wait[e] = 2 * (base + dst)
                row = self._copy(message, src, dst)
                sent += row[-1]
                for column, value in zip(self.encoded.by_copy, row, strict=True):
                    column[base + dst] = value
        self.encoded.by_op[-1][op] += sent - self._sent[message]
        self._sent[message] = sent

    def _copy(self, message: int, src: int, dst: int) -> tuple[int, ...]:
        """The row of `EncodedAssignment.by_copy` of a copy from place to place."""
        if (src, dst) not in self._rows:
            every = np.arange(len(self._tables.producer))
            columns = copy_columns(self._problem, every, np.full_like(every, src), np.full_like(every, dst))
            self._rows[src, dst] = list(zip(*(column.tolist() for column in columns), strict=True))
        return self._rows[src, dst][message]
