"""The step time while units move: a move is played from the first event that it changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from placer.common.clock import spend
from placer.problem.arrays import Ints
from placer.problem.grouping import grouped
from placer.problem.incremental_encoding import IncrementalEncoding
from placer.problem.problem import Assignment, PlacementProblem, once_per_problem
from placer.problem.schedule import Simulator
from placer.problem.step_edges import ISSUED
from placer.problem.step_state import StepState

MAX_CHECKPOINTS, MIN_STRIDE = 10, 8
"""Limit of the number of checkpoints of a schedule, and the least number of ops between two of them."""
MOVE_OP_RUNS, KNOWN_OP_RUNS = 15, 5
"""The work of a move beside the ops that it plays, and of one whose result is known, see `placer.common.clock.spend`."""
MAX_KNOWN_BYTES, KNOWN_BYTES = 1 << 29, 250
"""Limit of the memory for known results, and about what one takes beside its key."""


class MovingSchedule:
    """The schedule of an assignment whose units move one after another.

    `move` gives the step time of a changed assignment. `keep` makes that assignment the one that the next move changes. The
    schedule of a changed assignment equals the kept one up to the first op that moves, or that sends to one that moves. So it is
    played from the last checkpoint before that op, and only until it is sure to exceed a limit.
    """

    def __init__(self, simulator: Simulator, assignment: Assignment) -> None:
        """Plays the whole schedule."""
        problem = simulator.problem
        self._simulator = simulator
        self._stride = max(MIN_STRIDE, -(-problem.num_ops // MAX_CHECKPOINTS))
        self._encoding = IncrementalEncoding(problem, assignment.device)
        self._changed = _changed_ops_of(problem)
        self._remaining_ns = _remaining_ns_of(problem)
        self._states, self._more_states = [StepState.first(problem)], list[StepState]()
        self._order: list[int] = []
        self._position = [0] * problem.num_ops
        self.spent = 0
        """The work so far, as of `placer.common.clock.spend`."""
        self.device = self._moved = assignment.device.copy()
        """[U]: the kept assignment."""
        present = problem.ops.unit[simulator.tables.present]
        self._present: list[int] = np.bincount(present, minlength=problem.num_units).tolist()  # ops by unit
        self._moved_on: list[int] = np.bincount(assignment.device[present], minlength=problem.num_devices).tolist()  # by device
        self._calls_ns: dict[tuple[bool, ...], int] = {}
        self._number, self._key = 0, b""
        self._known_ns = _known_ns_of(problem)
        self.step_ns = self._moved_ns = self._play(0, None)
        """The step time of the kept assignment."""
        self.keep()

    def move(self, units: Sequence[int], devices: Sequence[int], limit_ns: float | None = None) -> float:
        """The step time with these units on these devices, in ns; if it exceeds the limit, only a lower bound that exceeds it."""
        self._moved = self.device.copy()
        self._moved[units] = devices
        self._key = self._moved.astype(np.int16).tobytes()
        known_ns = self._known_ns.get(self._key, 0)
        if limit_ns is not None and known_ns > limit_ns:
            self._spend(KNOWN_OP_RUNS)
            return known_ns
        self._moved_on = self._ops_on.copy()
        first = len(self._position)
        for unit in np.flatnonzero(self._moved != self.device).tolist():
            self._moved_on[self.device[unit]] -= self._present[unit]
            self._moved_on[self._moved[unit]] += self._present[unit]
            first = min(first, *[self._position[op] for op in self._changed[unit]])
        self._number = min(first // self._stride, len(self._states) - 1)
        if len(self._known_ns) * (len(self._key) + KNOWN_BYTES) > MAX_KNOWN_BYTES:
            self._known_ns.clear()
        self._moved_ns = self._known_ns[self._key] = self._play(self._number, limit_ns)
        return self._moved_ns

    def _spend(self, op_runs: int) -> None:
        self.spent += op_runs
        spend(op_runs)

    def forbid(self) -> None:
        """Treats the step time of the assignment of the last move as above every limit from now on."""
        self._known_ns[self._key] = math.inf

    def keep(self) -> None:
        """Keeps the assignment of the last move, whose step time did not exceed its limit."""
        self.device, self.step_ns = self._moved, self._moved_ns
        self._states[self._number + 1 :] = self._more_states
        self._order, self._ops_on = self._encoding.encoded.order.copy(), self._moved_on
        for position in range(self._number * self._stride, len(self._order)):
            self._position[self._order[position]] = position

    def _call_ns(self) -> int:
        """The time of a call with the moved assignment beside its ops."""
        used = tuple(count > 0 for count in self._moved_on)
        if used not in self._calls_ns:
            self._calls_ns[used] = self._simulator.call_of_ns(np.array(used))
        return self._calls_ns[used]

    def _play(self, number: int, limit_ns: float | None) -> int:
        """Plays the schedule of the moved assignment from a checkpoint; returns its step time, as `move` does."""
        simulator, stride = self._simulator, self._stride
        encoded = self._encoding.move_to(self._moved)
        encoded.order.extend(self._order[: number * stride])
        state, self._more_states = self._states[number].copy(), []
        call_ns = self._call_ns()
        least_ns, end, runner = 0, encoded.end, encoded.by_op[0]
        while state.queue:
            before = len(encoded.order)
            simulator.advance(encoded, state, stride)
            if limit_ns is not None and len(encoded.order) > before:
                latest_ns = max(end[op] + self._remaining_ns[runner[op]][op] for op in encoded.order[before:])
                least_ns = simulator.whole_ns(latest_ns, call_ns)
                if least_ns > limit_ns:
                    break
            if state.queue:
                self._more_states.append(state.copy())
        played = len(encoded.order) - number * stride
        self._spend(MOVE_OP_RUNS + played)
        return max(least_ns, simulator.whole_ns(state.latest_ns, call_ns))


@once_per_problem
def _known_ns_of(problem: PlacementProblem) -> dict[bytes, float]:
    """Lower bounds on the step times of assignments that were played, in ns, by their devices as bytes; empty at first.

    Near a local optimum most random moves have been played before.
    """
    return {}


@once_per_problem
def _changed_ops_of(problem: PlacementProblem) -> list[list[int]]:
    """By unit, the ops that play differently if it moves: its own, and the producers of what they receive."""
    edges = Simulator(problem).edges
    own = grouped(problem.ops.unit, problem.num_units)
    return [np.union1d(ops, edges.producers_of(np.array(ops))).tolist() for ops in own]


@once_per_problem
def _remaining_ns_of(problem: PlacementProblem) -> list[list[int]]:
    """[D][N]: a lower bound on the time from the end of an op on a device to the end of the last op, in ns.

    It is the longest chain of ops behind it if no two ops shared a resource and each ran on the best device for that.
    """
    simulator = Simulator(problem)
    edges, never = simulator.edges, np.iinfo(np.int64).max // 4
    streamed = problem.devices.asynchronous & ~simulator.tables.host_only
    first = np.where(streamed, problem.ops.dispatch_ns, problem.ops.time_ns)
    second = np.where(streamed, problem.ops.compute_ns, 0)
    wait, copy_ns = edges.pairs(problem)
    early = (wait == ISSUED)[:, :, None] & np.eye(problem.num_devices, dtype=np.bool_) & streamed[edges.producer][:, :, None]
    follows = early & streamed[edges.consumer][:, None, :]
    allowed = problem.units.allowed[problem.ops.unit]
    remaining: Ints = np.zeros((problem.num_ops, problem.num_devices), np.int64)
    for op in reversed(range(problem.num_ops)):
        for e in range(edges.start_list[op], edges.start_list[op + 1]):
            user = edges.consumer_list[e]
            after = second[user] + remaining[user]
            gap = np.where(follows[e], after, np.where(early[e], 0, copy_ns[e] + first[user] + after))
            np.maximum(remaining[op], np.where(allowed[user], gap, never).min(axis=1), out=remaining[op])
    runner = problem.devices.runner
    by_runner: list[list[int]] = [remaining[:, runner == runner[d]].min(axis=1).tolist() for d in range(problem.num_devices)]
    return by_runner
