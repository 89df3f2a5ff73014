"""Local search on the execution model, over single units or clusters of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.memory import excess
from placer.problem.price import handed_ns, move_costs_ns, total_cost_ns
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.replay import Replay
from placer.problem.schedule import Simulator
from placer.solvers.answer import limits_can_bind
from placer.solvers.base import StopReason
from placer.solvers.primitives.coarsening import edges
from placer.solvers.primitives.grouping import components
from placer.solvers.primitives.partition import accelerators
from placer.solvers.primitives.repair import fit
from placer.solvers.reductions.reduced import Reduced

PARTS = 4
REPLAYED = 1_000
"""Ops from which on moves are replayed rather than simulated."""
PATCHING = 0.2
"""What a replay takes beside the ops it plays, as a part of a simulation."""
REPAIRS, REPAIR = 10, 4
"""Of the moves of a round that miss a limit, how many are tried with other units making room; what one takes, in simulations."""
WORTH = 0.5
"""With several accelerators: how much of what it copies between them a plan has to take off the step, and a move of what it adds
to the total cost. Copies pass beside work by the model, in reality not quite: 40 layers with 71 took 17.2 ms on two GPUs, 11.6 as
predicted."""


@dataclass
class Search:
    """The best assignment found so far that fits, and what may still be spent on better ones.

    The best has the least score: its step, and `WORTH` of what its copies from accelerator to accelerator take; or it is shorter
    than one that has, and of a lower price.
    """

    problem: PlacementProblem
    bound_ns: int
    effort: float
    """Simulations that are left; one that only plays a part of the step again counts as that part."""
    ends: float
    """On `time.perf_counter`."""
    best: Assignment | None = None
    score: float = 0.0
    _known: dict[bytes, int] = field(default_factory=dict)
    _ranked: dict[bytes, tuple[float, Assignment]] = field(default_factory=dict)
    """What was offered and fits, as far as it is improved, with its score."""

    def __post_init__(self) -> None:
        self.simulator = Simulator(self.problem)
        self.limited = limits_can_bind(self.problem)
        self._group = accelerators(self.problem)
        self._several = len(self._group) > 1

    def offer(self, assignment: Assignment) -> float | None:
        """The score of an assignment; None where it does not fit."""
        if self.limited and excess(self.problem, assignment).any():
            return None
        score = self._score(assignment)
        self._ranked[assignment.device.tobytes()] = score, assignment
        best = self.best
        if (
            best is None
            or score < self.score
            or (self.step_ns(assignment) <= self.step_ns(best) and self._price(assignment) < self._price(best))
        ):
            self.best, self.score = assignment, score
        return score

    def ranked(self) -> list[Assignment]:
        """What was offered and fits, as far as it is improved, the best first."""
        return [assignment for _, assignment in sorted(self._ranked.values(), key=lambda entry: entry[0])]

    def offer_fitting(self, assignment: Assignment) -> None:
        """Offers what an assignment that does not fit can be made."""
        if (fitting := fit(self.problem, assignment)) is not None:
            self.offer(fitting)

    def step_ns(self, assignment: Assignment) -> int:
        """Its step, simulated once."""
        key = assignment.device.tobytes()
        if key not in self._known:
            self.effort -= 1
            self._known[key] = self.simulator.step_ns(assignment)
        return self._known[key]

    def _replay(self, assignment: Assignment) -> Replay | None:
        """For pricing moves from an assignment; None where simulating them takes no longer."""
        if self.problem.num_ops < REPLAYED:
            return None
        self.effort -= 1
        return Replay(self.simulator, assignment)

    def _moved_ns(self, replay: Replay | None, assignment: Assignment) -> int:
        """The step of an assignment near the one that is kept for replays."""
        if replay is None:
            return self.step_ns(assignment)
        before = replay.played
        step_ns = self._known[assignment.device.tobytes()] = replay.moved_ns(assignment)
        self.effort -= PATCHING + (replay.played - before) / self.problem.num_ops
        return step_ns

    def _score(self, assignment: Assignment) -> float:
        return self.step_ns(assignment) + (WORTH * handed_ns(self.problem, assignment, self._group) if self._several else 0.0)

    def _price(self, assignment: Assignment) -> float:
        """What a move has to lower: the step, and `WORTH` of the total cost where there are several accelerators."""
        return self.step_ns(assignment) + (WORTH * total_cost_ns(self.problem, assignment) if self._several else 0.0)

    def climb(self, reduced: Reduced, here: Assignment, effort: float) -> StopReason:
        """Moves units of a reduced problem where that lowers the price and does not lengthen the step; says why it ended.

        Once no unit or piece is worth moving, neighbours are moved in pairs (variable neighbourhood descent: Hansen, Mladenović
        2001). Where a move misses a limit, others make room for it.

        Args:
            here: an assignment of the reduced problem that fits.
            effort: the most simulations to spend.
        """
        least = self.effort - effort
        whole = reduced.invert(here)
        step_ns, price = self.step_ns(whole), self._price(whole)
        replay, tried = self._replay(whole), 0
        while tried < len(NEIGHBOURHOODS):
            improved, repairs = False, REPAIRS
            for units, device in NEIGHBOURHOODS[tried](reduced.problem, here, int(self.effort - least)):
                if step_ns <= self.bound_ns:
                    return StopReason.PROVED_OPTIMAL
                if time.perf_counter() > self.ends:
                    return StopReason.TIME_LIMIT
                if self.effort <= least:
                    return StopReason.MOVE_BUDGET
                moved = _moved(here, units, device)
                if self.limited and excess(reduced.problem, moved).any():
                    fitting = self._with_room(reduced, moved, units) if repairs else None
                    repairs -= repairs > 0
                    if fitting is None:
                        continue
                    moved = fitting
                whole = reduced.invert(moved)
                if whole.device.tobytes() in self._known:
                    continue
                if self._moved_ns(replay, whole) <= step_ns and self._price(whole) < price:
                    self._ranked.pop(reduced.invert(here).device.tobytes(), None)
                    here, step_ns, price, improved = moved, self.step_ns(whole), self._price(whole), True
                    self.offer(whole)
                    replay = self._replay(whole)
            tried = 0 if improved else tried + 1
        return StopReason.PROVED_OPTIMAL if step_ns <= self.bound_ns else StopReason.LOCAL_OPTIMUM

    def _with_room(self, reduced: Reduced, moved: Assignment, units: Ints) -> Assignment | None:
        """What other units make of an assignment that does not fit, so that these can stay; None where they find no room."""
        self.effort -= REPAIR
        return fit(reduced.problem, moved, staying=units)


def _moved(assignment: Assignment, units: Ints, device: int) -> Assignment:
    moved = assignment.device.copy()
    moved[units] = device
    return Assignment(moved)


def moves(problem: PlacementProblem, assignment: Assignment, effort: int) -> list[tuple[Ints, int]]:
    """Sets of units and a device to move them to, those that add least to the total cost first.

    Connected pieces of one device and their first and last parts in execution order; each device's side of a boundary; and
    single units at a boundary, or all of them where the effort reaches that far.
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
    found: list[tuple[int, Ints, int]] = []
    for units, to in sets[: 4 * max(PARTS, effort)]:
        can = units[allowed[units, to]]
        if len(can):
            found.append((total_cost_ns(problem, _moved(assignment, can, to)) - base, can, to))

    change = _change_ns(problem, assignment)
    edge = np.full(problem.num_units, problem.num_units <= effort)
    edge[producer[crosses]] = edge[consumer[crosses]] = True
    single, to_device = np.nonzero(allowed & edge[:, None] & (np.arange(problem.num_devices) != device[:, None]))
    found.extend(
        (cost, np.array([unit]), to)
        for cost, unit, to in zip(change[single, to_device].tolist(), single.tolist(), to_device.tolist(), strict=True)
    )
    found.sort(key=lambda move: (move[0], len(move[1]), int(move[1][0]), move[2]))
    return [(units, to) for _, units, to in found]


def pairs(problem: PlacementProblem, assignment: Assignment, effort: int) -> list[tuple[Ints, int]]:
    """Two units that hand each other something, and a device to move both to, those that add least to the total cost first; at
    most as many as the effort is.

    Each alone would have to copy what they share; together they need not.
    """
    if problem.num_devices < 2:
        return []
    device, every = assignment.device, np.arange(problem.num_devices)
    both, shared_ns = edges(problem, every)
    a, b = both.T
    change = _change_ns(problem, assignment)
    added = change[a] + change[b] - 2 * shared_ns[:, None]
    can = problem.units.allowed[a] & problem.units.allowed[b] & (device[a] == device[b])[:, None] & (every != device[a][:, None])
    pair, to = np.nonzero(can)
    order = np.argsort(added[pair, to], kind="stable")[: max(0, effort)]
    return list(zip(both[pair[order]], to[order].tolist(), strict=True))


def _change_ns(problem: PlacementProblem, assignment: Assignment) -> Ints:
    """[U, D]: what each unit alone would add to the total cost there."""
    there = problem.unit_time_ns + move_costs_ns(problem, assignment)
    return there - there[np.arange(problem.num_units), assignment.device][:, None]


NEIGHBOURHOODS = (moves, pairs)
"""Each is tried where those before it have nothing to gain."""
