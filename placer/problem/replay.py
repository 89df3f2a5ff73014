"""The step time after a move: the execution model is played again from the first op that the move affects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import numpy as np

from placer.problem.problem import Assignment
from placer.problem.schedule import NEVER_NS, WIDE, Script, Simulator, State

MARKS = 48
"""States kept of a step: more of them shorten each replay, and take longer to keep."""


class Replay:
    """A step of one assignment, and what it would take after moves.

    Up to the first op that changes its device, or sends to one that does, a moved step is the same: it is played again from a
    state kept before that. Where all that the rest depends on is as it was, but for a shift in time, it is the same again up to
    the next such op. Neither is an approximation.
    """

    def __init__(self, simulator: Simulator, assignment: Assignment) -> None:
        """Plays the whole step once."""
        problem = simulator.problem
        self._simulator, self._device = simulator, assignment.device
        self._op_device = assignment.device[problem.ops.unit]
        self._used = np.bincount(self._op_device[simulator.tables.present], minlength=problem.num_devices)
        self._script = simulator.script(self._op_device)
        self._stride = max(1, -(-problem.num_ops // MARKS))
        self._marks: list[Mark] = []
        state = simulator.beginning()
        while state.queue:
            self._marks.append(Mark(simulator, self._script, state.copy()))
            simulator.advance(self._script, state, self._stride)
        self._position = np.empty(problem.num_ops, np.int64)
        self._position[self._script.order] = np.arange(problem.num_ops)
        ends = np.array(self._script.end, np.int64)[self._script.order]
        for number, mark in enumerate(self._marks):
            mark.latest_ns = int(np.max(ends[number * self._stride : (number + 1) * self._stride]))
        self.step_ns = simulator.whole_ns(state.latest_ns, simulator.call_of_ns(self._used > 0))
        self.played = problem.num_ops
        """Ops started so far, in this step and in all moved ones."""

    def moved_ns(self, assignment: Assignment) -> int:
        """`Simulator.step_ns` of another assignment: the quicker the fewer units it moves, and the closer in time."""
        simulator, script = self._simulator, self._script
        ops = simulator.problem.unit_ops.of(np.flatnonzero(assignment.device != self._device))
        if not len(ops):
            return self.step_ns
        changed = np.union1d(ops, simulator.edges.producers_of(ops))
        edges = simulator.edges.out_of(changed)
        copies = len(script.began)
        before = self._op_device[ops]
        self._op_device[ops] = assignment.device[simulator.problem.ops.unit[ops]]
        new = simulator.script(self._op_device, changed, edges, copies)
        present = simulator.tables.present[ops]
        after = self._op_device[ops]
        self._op_device[ops] = before
        used = self._used.copy()
        np.subtract.at(used, before[present], 1)
        np.add.at(used, after[present], 1)

        columns, rows = [*script.by_op, script.code], [changed.tolist()] * len(script.by_op) + [edges.tolist()]
        old = [[column[i] for i in where] for column, where in zip(columns, rows, strict=True)]
        _write(columns, rows, [*new.by_op, new.code])
        growing = [*script.by_copy, script.began, script.arrived]
        for column, more in zip(growing, [*new.by_copy, new.began, new.arrived], strict=True):
            column.extend(more)
        latest = self._latest_ns(np.sort(self._position[changed]).tolist())
        _write(columns, rows, old)
        for column in growing:
            del column[copies:]
        return simulator.whole_ns(latest, simulator.call_of_ns(used > 0))

    def _latest_ns(self, patched: list[int]) -> int:
        """When the last op is done, the ops at these positions in the order of starts being patched."""
        marks, stride = self._marks, self._stride
        number, latest = patched[0] // stride, 0
        state = marks[number].state.copy()
        while state.queue:
            self._simulator.advance(self._script, state, stride)
            self.played += stride
            number += 1
            following = bisect_left(patched, number * stride)
            until = patched[following] // stride if following < len(patched) else len(marks)
            if number < until and (shift := marks[number].shift_ns(state)) is not None:
                latest = max(latest, state.latest_ns, shift + max(mark.latest_ns for mark in marks[number:until]))
                if until == len(marks):
                    break
                number, state = until, marks[until].later(shift)
        del self._script.order[self._simulator.problem.num_ops :]
        return max(latest, state.latest_ns)


@dataclass(eq=False)
class Mark:
    """A state of a step on its way."""

    simulator: Simulator
    script: Script
    state: State
    latest_ns: int = 0
    """When the last of the ops that start after it, up to the next mark, is done."""

    @cached_property
    def waiting(self) -> list[int]:
        """Ops that are not in the queue yet."""
        return [op for op, n in enumerate(self.state.waits) if n]

    @cached_property
    def to_come(self) -> int:
        """The kinds of ops that have not started yet."""
        left = (*self.waiting, *(key % self.simulator.problem.num_ops for key in self.state.queue))
        return reduce(or_, (self.simulator.tables.kinds[op] for op in left), 0)

    def later(self, shift_ns: int) -> State:
        """The state so much later."""
        state = self.state
        return State(
            [[free + shift_ns for free in pool] for pool in state.pools],
            [free + shift_ns for free in state.stream_free],
            [[free + shift_ns for free in each] for each in state.alone_free],
            [free + shift_ns for free in state.link_free],
            [ready + shift_ns for ready in state.ready],
            state.follows.copy(),
            state.warm.copy(),
            state.waits.copy(),
            [key + shift_ns * self.simulator.problem.num_ops for key in state.queue],
        )

    def shift_ns(self, other: State) -> int | None:
        """By how much later `other` goes on as this state does; None if it differs by more than that.

        When something was free or ready makes no difference once it lies in the past; when the threads of a CPU last worked
        does until they sleep, and when a thread that feeds a device was free does always, since copies add to that.
        """
        mine, ops = self.state, self.simulator.problem.num_ops
        if mine.waits != other.waits or len(mine.queue) != len(other.queue):
            return None
        was, now = mine.queue[0] // ops, other.queue[0] // ops
        shift = now - was
        if sum(mine.queue) + shift * ops * len(mine.queue) != sum(other.queue):  # most others, without sorting
            return None
        if [key + shift * ops for key in sorted(mine.queue)] != sorted(other.queue):
            return None
        parts: list[tuple[Callable[[State], Iterable[int]], int]] = [
            (self._feeders, NEVER_NS),
            (_resources, was),
            (lambda state: state.alone_free[WIDE], was - self.simulator.tables.awake_ns),
        ]
        same = all(_later(zip(of(mine), of(other), strict=True), shift, past) for of, past in parts)
        return shift if same and self._follow_alike(other, was, shift) else None

    def _follow_alike(self, other: State, was: int, shift: int) -> bool:
        """Whether what is yet to start follows copies made as often, behind which as much is still cold, whatever their numbers.

        Of an op that waits for more, what it was ready for in the past makes no difference.
        """
        mine, ops = self.state, self.simulator.problem.num_ops
        times, ready, late, now = self.script.by_copy[-1], mine.ready, other.ready, was + shift
        open_ = [op for op in self.waiting if ready[op] >= was or late[op] >= now]
        if any(late[op] - ready[op] != shift for op in open_):
            return False
        left, right = mine.follows, other.follows
        pairs = {(left[op], right[op]) for op in (*open_, *(key % ops for key in mine.queue))}
        behind = [(a, b) for a, b in pairs if self._cold(mine, a) or self._cold(other, b)]
        if not len(behind) == len({a for a, _ in behind}) == len({b for _, b in behind}):
            return False
        return all(self._cold(mine, a) == self._cold(other, b) and times[a] == times[b] for a, b in behind)

    def _cold(self, state: State, copy: int) -> int:
        """The kinds of ops yet to start that did not follow a copy so far."""
        return self.to_come & ~state.warm.get(copy, 0)

    def _feeders(self, state: State) -> list[int]:
        return [
            pool[0] for pool, fed in zip(state.pools, self.simulator.problem.devices.asynchronous.tolist(), strict=True) if fed
        ]


def _later(pairs: Iterable[tuple[int, int]], shift: int, past: int) -> bool:
    """Whether in each pair the second is so much later than the first, or both are no later than what is past, so shifted."""
    return all(b - a == shift or (a <= past and b <= past + shift) for a, b in pairs)


def _resources(state: State) -> Iterator[int]:
    """The time from which each thread, stream, link and kind of op that runs alone is free."""
    for pool in state.pools:
        yield from sorted(pool)
    yield from state.stream_free
    for each in state.alone_free:
        yield from each
    yield from state.link_free


def _write(columns: list[list[int]], rows: list[list[int]], values: list[list[int]]) -> None:
    for column, where, new in zip(columns, rows, values, strict=True):
        for i, value in zip(where, new, strict=True):
            column[i] = value
