"""Local search of the step time, by the execution model, over single units or clusters of units."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placer.common.clock import unlimited
from placer.problem.arrays import Ints
from placer.problem.grouping import components
from placer.problem.memory import excess
from placer.problem.price import handed_ns, move_costs_ns, total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.replay import Replay
from placer.problem.schedule import Simulator
from placer.solvers.answer import limits_can_bind
from placer.solvers.base import StopReason
from placer.solvers.primitives.coarsening import edges
from placer.solvers.primitives.partition import accelerators
from placer.solvers.primitives.repair import repair
from placer.solvers.reductions.reduced import Reduced

HANSEN = (
    "P. Hansen, N. Mladenović, Variable neighborhood search: principles and applications, European Journal of Operational "
    "Research 130(3), 2001, doi:10.1016/S0377-2217(00)00100-4"
)

PARTS = 4
"""A connected piece is divided at so many points to make smaller moves."""
MIN_REPLAY_OPS = 1_000
"""From this number of ops on, moves are priced by a replay instead of a simulation."""
REPLAY_OVERHEAD = 0.2
"""Effort of a replay besides the ops it runs, in simulations."""
MAX_REPAIRS, REPAIR_EFFORT = 10, 4
"""Limit of the number of moves per round that are repaired because they exceed a limit; the effort of one, in simulations."""


@dataclass
class HillClimbing:
    """The best assignment that fits so far, and the effort that remains for better ones.

    An assignment is better if its score is lower: its step time plus the share `Devices.unhidden_percent` of the time of its
    copies between accelerators. It is also better if its step is no longer and its penalised step is shorter.
    """

    problem: PlacementProblem
    bound_ns: int
    effort: float
    """Simulations that remain; a replay of a part of the step counts as that part."""
    best: Assignment | None = None
    score: float = 0.0
    _known: dict[bytes, int] = field(default_factory=dict)
    _scored: dict[bytes, tuple[float, Assignment]] = field(default_factory=dict)
    """Assignments that were offered and fit, with their scores; improved ones are replaced."""

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.problem)
        self.limited = limits_can_bind(self.problem)
        self._group = accelerators(self.problem)
        self._copy_weight = self.problem.devices.unhidden_percent / 100 if len(self._group) > 1 else 0.0

    def offer(self, assignment: Assignment) -> float | None:
        """Records an assignment; returns its score, or None if it does not fit."""
        if self.limited and excess(self.problem, assignment).any():
            return None
        score = self._score(assignment)
        self._scored[assignment.device.tobytes()] = score, assignment
        best = self.best
        if (
            best is None
            or score < self.score
            or (self.step_ns(assignment) <= self.step_ns(best) and self._penalised_ns(assignment) < self._penalised_ns(best))
        ):
            self.best, self.score = assignment, score
        return score

    def offer_fitting(self, assignment: Assignment) -> None:
        """Offers an assignment, repaired if it does not fit."""
        if self.offer(assignment) is None:
            self.offer_repaired(assignment)

    def ranked(self) -> list[Assignment]:
        """The assignments that were offered and fit, after their improvements; the best first."""
        return [assignment for _, assignment in sorted(self._scored.values(), key=lambda entry: entry[0])]

    def offer_repaired(self, assignment: Assignment) -> None:
        """Offers the repaired assignment, if it can be repaired."""
        if (fitting := repair(self.problem, assignment)) is not None:
            self.offer(fitting)

    def step_ns(self, assignment: Assignment) -> int:
        """The step time of an assignment, which is simulated once, in ns."""
        key = assignment.device.tobytes()
        if key not in self._known:
            self.effort -= 1
            self._known[key] = self.simulator.step_ns(assignment)
        return self._known[key]

    def _replay(self, assignment: Assignment) -> Replay | None:
        """A replay that prices moves from an assignment; None if a simulation is as fast."""
        if self.problem.num_ops < MIN_REPLAY_OPS:
            return None
        self.effort -= 1
        return Replay(self.simulator, assignment)

    def _moved_ns(self, replay: Replay | None, assignment: Assignment) -> int:
        """The step time of an assignment near the one that is replayed, in ns."""
        if replay is None:
            return self.step_ns(assignment)
        before = replay.played
        step_ns = self._known[assignment.device.tobytes()] = replay.moved_ns(assignment)
        self.effort -= REPLAY_OVERHEAD + (replay.played - before) / self.problem.num_ops
        return step_ns

    def _score(self, assignment: Assignment) -> float:
        handed = self._copy_weight and self._copy_weight * handed_ns(self.problem, assignment, self._group)
        return self.step_ns(assignment) + handed

    def _penalised_ns(self, assignment: Assignment) -> float:
        """What a move must lower: the step time plus, with several accelerators, a share of the total cost; in ns."""
        penalty = self._copy_weight and self._copy_weight * total_cost_ns(self.problem, assignment)
        return self.step_ns(assignment) + penalty

    def climb(self, reduced: Reduced, current: Assignment, effort: float) -> StopReason:
        """Makes moves that shorten the penalised step and do not lengthen the step; returns why it ended.

        Variable neighbourhood descent (Hansen, Mladenović 2001): if no unit or piece improves the assignment, pairs of neighbours
        are moved. A move that exceeds a memory limit is repaired by moves of other units.

        Args:
            reduced: a reduced problem, whose units are moved.
            current: an assignment of the reduced problem that fits.
            effort: limit of the number of simulations.
        """
        reserve = self.effort - effort
        whole = reduced.invert(current)
        step_ns, penalised_ns = self.step_ns(whole), self._penalised_ns(whole)
        replay, tried = self._replay(whole), 0
        while tried < len(NEIGHBOURHOODS):
            improved, repairs = False, MAX_REPAIRS
            for units, device in NEIGHBOURHOODS[tried](reduced.problem, current, int(self.effort - reserve)):
                if step_ns <= self.bound_ns:
                    return StopReason.PROVED_OPTIMAL
                if self.effort <= reserve:
                    return StopReason.MOVE_BUDGET
                moved = _moved(current, units, device)
                if self.limited and excess(reduced.problem, moved).any():
                    fitting = self._repaired(reduced, moved, units) if repairs else None
                    repairs -= repairs > 0
                    if fitting is None:
                        continue
                    moved = fitting
                whole = reduced.invert(moved)
                if whole.device.tobytes() in self._known:
                    continue
                if self._moved_ns(replay, whole) <= step_ns and self._penalised_ns(whole) < penalised_ns:
                    self._scored.pop(reduced.invert(current).device.tobytes(), None)
                    current, step_ns, penalised_ns, improved = moved, self.step_ns(whole), self._penalised_ns(whole), True
                    with unlimited():  # what is found is not lost
                        self.offer(whole)
                    replay = self._replay(whole)
            tried = 0 if improved else tried + 1
        return StopReason.PROVED_OPTIMAL if step_ns <= self.bound_ns else StopReason.LOCAL_OPTIMUM

    def _repaired(self, reduced: Reduced, moved: Assignment, units: Ints) -> Assignment | None:
        """Repairs an assignment by moves of other units than these; None if that fails."""
        self.effort -= REPAIR_EFFORT
        return repair(reduced.problem, moved, staying=units)


def _moved(assignment: Assignment, units: Ints, device: int) -> Assignment:
    moved = assignment.device.copy()
    moved[units] = device
    return Assignment(moved)


def moves(problem: PlacementProblem, assignment: Assignment, effort: int) -> list[tuple[Ints, int]]:
    """Moves as sets of units with a device to move them to; the moves that add least to the total cost first.

    The sets are:

    - the units on one side of a boundary between devices;
    - connected pieces of one device, and their first and last parts in execution order;
    - single units at a boundary, or all units if the effort allows it.
    """
    device, allowed = assignment.device, problem.units.allowed
    producer = problem.ops.unit[problem.tensors.op[problem.consumers.tensor]]
    consumer = problem.ops.unit[problem.consumers.op]
    free = allowed.sum(axis=1) > 1
    same = (device[producer] == device[consumer]) & free[producer] & free[consumer]
    crosses = device[producer] != device[consumer]
    base = total_cost_ns(problem, assignment)

    pieces = [np.array(p) for p in components(problem.num_units, producer[same], consumer[same]) if free[p[0]]]
    pieces.sort(key=lambda piece: (-len(piece), int(piece[0])))
    sets: list[tuple[Ints, int]] = []
    for to in range(problem.num_devices):
        for a, b in ((producer, consumer), (consumer, producer)):
            sets.append((np.unique(a[crosses & (device[b] == to)]), to))
        for piece in pieces[: max(PARTS, effort)]:
            if device[piece[0]] != to and len(piece) > 1:
                sets.append((piece, to))
                if len(piece) > 2 * PARTS:
                    cuts = [len(piece) * i // PARTS for i in range(1, PARTS)]
                    sets.extend((part, to) for i in cuts for part in (piece[:i], piece[i:]))
    priced: list[tuple[int, Ints, int]] = []
    for units, to in sets[: 4 * max(PARTS, effort)]:
        can = units[allowed[units, to]]
        if len(can):
            priced.append((total_cost_ns(problem, _moved(assignment, can, to)) - base, can, to))

    change = _change_ns(problem, assignment)
    edge = np.full(problem.num_units, problem.num_units <= effort)
    edge[producer[crosses]] = edge[consumer[crosses]] = True
    single, to_device = np.nonzero(allowed & edge[:, None] & (np.arange(problem.num_devices) != device[:, None]))
    priced.extend(
        (cost, np.array([unit]), to)
        for cost, unit, to in zip(change[single, to_device].tolist(), single.tolist(), to_device.tolist(), strict=True)
    )
    priced.sort(key=lambda move: (move[0], len(move[1]), int(move[1][0]), move[2]))
    return [(units, to) for _, units, to in priced]


def pairs(problem: PlacementProblem, assignment: Assignment, effort: int) -> list[tuple[Ints, int]]:
    """Moves of two units joined by an edge, with a device to move both to; the moves that add least to the total cost first.

    Either unit alone would need a copy of the tensor between them; both together do not. At most `effort` moves.
    """
    if problem.num_devices < 2:
        return []
    device, devices = assignment.device, np.arange(problem.num_devices)
    both, shared_ns = edges(problem, devices)
    a, b = both.T
    change = _change_ns(problem, assignment)
    added = change[a] + change[b] - 2 * shared_ns[:, None]
    can = (
        problem.units.allowed[a] & problem.units.allowed[b] & (device[a] == device[b])[:, None] & (devices != device[a][:, None])
    )
    pair, to = np.nonzero(can)
    order = np.argsort(added[pair, to], kind="stable")[: max(0, effort)]
    return list(zip(both[pair[order]], to[order].tolist(), strict=True))


def _change_ns(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """[U, D]: the change of the total cost if one unit moved to a device, in ns."""
    cost_at = problem.unit_time_ns + move_costs_ns(problem, assignment)
    return cost_at - cost_at[np.arange(problem.num_units), assignment.device][:, None]


NEIGHBOURHOODS = (moves, pairs)
"""Each is tried when those before it contain no improvement."""
