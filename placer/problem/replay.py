"""The step time after a move, by replaying only the part of a schedule that the move changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.encoded_assignment import EncodedAssignment
from placer.problem.model_tables import WIDE
from placer.problem.problem import Assignment
from placer.problem.schedule import Simulator
from placer.problem.step_state import StepState

MAX_CHECKPOINTS = 48
"""Checkpoints of a schedule. More of them shorten each replay, and take longer to make."""


class Replay:
    """The schedule of one assignment, from which step times of similar assignments are replayed.

    The schedule of another assignment equals this one up to the first changed op: an op that changes its device or sends to an op
    that does. It is replayed from the last checkpoint before that op. If the replay's state equals a later checkpoint, shifted in
    time, then the schedules are equal, with that shift, up to the next changed op. Both shortcuts are exact.
    """

    def __init__(self, simulator: Simulator, assignment: Assignment) -> None:
        """Simulates the whole step once."""
        problem = simulator.problem
        self._simulator, self._device = simulator, assignment.device
        encoded = simulator.encode(assignment.device)
        self._stride = max(1, -(-problem.num_ops // MAX_CHECKPOINTS))
        self._checkpoints: list[Checkpoint] = []
        state = StepState.first(problem)
        spend(problem.num_ops)
        while state.queue:
            self._checkpoints.append(Checkpoint(simulator, state.copy()))
            simulator.advance(encoded, state, self._stride)
        self._position = np.argsort(encoded.order)
        ends = np.array(encoded.end, np.int64)[encoded.order]
        for number, checkpoint in enumerate(self._checkpoints):
            checkpoint.latest_ns = int(np.max(ends[number * self._stride : (number + 1) * self._stride]))
        self.step_ns = simulator.whole_ns(state.latest_ns, simulator.call_ns(assignment))
        self.played = problem.num_ops
        """Number of ops started so far, in this schedule and in all replays."""

    def moved_ns(self, assignment: Assignment) -> int:
        """`Simulator.step_ns` of another assignment. It is faster the fewer units move, and the closer in time their ops are."""
        simulator = self._simulator
        ops = simulator.problem.unit_ops.of(np.flatnonzero(assignment.device != self._device))
        if not len(ops):
            return self.step_ns
        changed = np.union1d(ops, simulator.edges.producers_of(ops))
        played = self.played
        latest = self._latest_ns(simulator.encode(assignment.device), changed)
        spend(self.played - played)
        return simulator.whole_ns(latest, simulator.call_ns(assignment))

    def _latest_ns(self, encoded: EncodedAssignment, changed: Ints) -> int:
        """When the last op of another assignment ends, in which these ops and their copies change."""
        checkpoints, stride = self._checkpoints, self._stride
        positions: list[int] = np.sort(self._position[changed]).tolist()
        ops = set(changed.tolist())
        number, latest = positions[0] // stride, 0
        state = checkpoints[number].state.copy()
        while state.queue:
            self._simulator.advance(encoded, state, stride)
            self.played += stride
            number += 1
            following = bisect_left(positions, number * stride)
            until = positions[following] // stride if following < len(positions) else len(checkpoints)
            if number < until and (shift := checkpoints[number].shift_ns(state, ops)) is not None:
                latest = max(latest, state.latest_ns, shift + max(each.latest_ns for each in checkpoints[number:until]))
                if until == len(checkpoints):
                    break
                number, state = until, checkpoints[until].later(shift)
        return max(latest, state.latest_ns)


@dataclass(eq=False)
class Checkpoint:
    """The state of a schedule before the start of one of its ops."""

    simulator: Simulator
    state: StepState
    latest_ns: int = 0
    """When the last of the ops that start between this checkpoint and the next one ends."""

    @cached_property
    def waiting(self) -> list[int]:
        """Ops that are not ready yet."""
        return [op for op, n in enumerate(self.state.waits) if n]

    @cached_property
    def sending(self) -> set[int]:
        """Ops that have a copy which is ready."""
        simulator, ops = self.simulator, self.simulator.problem.num_ops
        queued = (key % simulator.base for key in self.state.queue)
        return {int(simulator.edges.producer[number - ops]) for number in queued if number >= ops}

    def later(self, shift_ns: int) -> StepState:
        """The state with all times later by `shift_ns`."""
        state = self.state
        return StepState(
            [[free + shift_ns for free in pool] for pool in state.pools],
            [free + shift_ns for free in state.stream_free],
            [[free + shift_ns for free in each] for each in state.alone_free],
            [free + shift_ns for free in state.link_free],
            [ready + shift_ns for ready in state.ready],
            state.waits.copy(),
            [key + shift_ns * self.simulator.base for key in state.queue],
        )

    def shift_ns(self, other: StepState, changed: set[int]) -> int | None:
        """By how much later `other` continues as this state does; None if they differ in more than a shift in time.

        They differ if a copy of an op that changed is still to begin. Past times at which a resource became free or an op
        became ready make no difference. An op on all cores asks whether the last such op ends before now or at this moment.
        """
        mine, base = self.state, self.simulator.base
        if mine.waits != other.waits or len(mine.queue) != len(other.queue):
            return None
        earlier = mine.queue[0] // base
        shift = other.queue[0] // base - earlier
        if sum(mine.queue) + shift * base * len(mine.queue) != sum(other.queue):  # most others, without sorting
            return None
        if [key + shift * base for key in sorted(mine.queue)] != sorted(other.queue):
            return None
        if not self.sending.isdisjoint(changed):
            return None
        parts: list[tuple[Callable[[StepState], Iterable[int]], int]] = [
            (_resources, earlier),
            (lambda state: state.alone_free[WIDE], earlier - 1),
            (lambda state: (state.ready[op] for op in self.waiting), earlier),
        ]
        same = all(_later(zip(of(mine), of(other), strict=True), shift, past) for of, past in parts)
        return shift if same else None


def _later(pairs: Iterable[tuple[int, int]], shift: int, past: int) -> bool:
    """Whether in each pair the second time is later by the shift, or both are in the past, which ends at `past` and `past +
    shift`.
    """
    return all(b - a == shift or (a <= past and b <= past + shift) for a, b in pairs)


def _resources(state: StepState) -> Iterator[int]:
    """When each thread, stream and link is free."""
    for pool in state.pools:
        yield from sorted(pool)
    yield from state.stream_free
    for each in state.alone_free:
        yield from each
    yield from state.link_free
