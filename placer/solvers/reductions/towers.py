"""Identical towers are decided as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.problem.arrays import Ints
from placer.problem.crossings import crossings_of
from placer.problem.problem import PlacementProblem
from placer.solvers.primitives.grouping import components, grouped
from placer.solvers.reductions.reduced import Reduced, roomy

ROUNDS = 100
"""How far a difference is looked for."""


def towers(reduced: Reduced) -> Reduced:
    """Decides pieces together that are equal, take the same from the rest and share nothing else; needs room on every device.

    With the rest as it is, a tower's cost is its own plus copies into it, which towers at the same places share. So putting
    all of them where the one is whose own cost is least adds nothing. Candidates come from colours, refined by those of
    neighbours (Weisfeiler, Leman 1968); each is then compared.
    """
    problem = reduced.problem
    group = np.arange(problem.num_units)
    if roomy(problem).all():
        for copies in _candidates(problem):
            first = copies[0]
            for other in copies[1:]:
                group[other] = first
    return reduced.then("towers", group, problem.units.allowed)


def _candidates(problem: PlacementProblem) -> list[list[Ints]]:
    """Classes of equal towers, each tower its units in an order that matches those of the others."""
    crossings = crossings_of(problem)
    colour = _colours(problem)
    several = np.bincount(colour)[colour] > 1
    maker = crossings.unit[crossings.user_crossing]
    joined = several[maker] & several[crossings.user]
    made, taken = grouped(crossings.unit, problem.num_units), grouped(crossings.user, problem.num_units)
    told: dict[Hashable, list[Ints]] = {}
    for piece in components(problem.num_units, maker[joined], crossings.user[joined]):
        members = np.array(piece)[np.argsort(colour[piece], kind="stable")]
        if several[members[0]] and len(np.unique(colour[members])) == len(members):
            told.setdefault(_told(problem, members.tolist(), made, taken), []).append(members)
    return [copies for copies in told.values() if len(copies) > 1]


def _colours(problem: PlacementProblem) -> Ints:
    """[U]: a number for each kind of unit, equal where time, devices and all that is near are."""
    crossings, units = crossings_of(problem), problem.num_units
    own = _numbered(np.concatenate([problem.unit_time_ns, problem.units.allowed], axis=1))
    what = _numbered(np.column_stack([crossings.nbytes, crossings.count, crossings.place]))
    how = _numbered(crossings.user_place)
    colour = own
    for _ in range(ROUNDS):
        kinds = int(np.max(colour, initial=-1)) + 1
        use = _mixed(np.column_stack([colour[crossings.user], how]))
        crossing = np.zeros(len(what), np.uint64)
        np.add.at(crossing, crossings.user_crossing, use)
        whole = _mixed(np.column_stack([what, colour[crossings.unit], crossing.view(np.int64)]))
        near = np.zeros(units, np.uint64)
        np.add.at(near, crossings.unit, whole)
        part = _mixed(np.column_stack([whole[crossings.user_crossing].view(np.int64), how]))
        np.add.at(near, crossings.user, part)
        colour = _numbered(np.column_stack([colour, near.view(np.int64)]))
        if int(np.max(colour, initial=-1)) + 1 == kinds:
            break
    return colour


def _numbered(rows: NDArray[Any]) -> Ints:
    """[len(rows)]: equal rows have equal numbers, from 0."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _mixed(rows: Ints) -> NDArray[np.uint64]:
    """[len(rows)]: rows to numbers whose sums tell sets of rows apart, all but surely (the finisher of MurmurHash3)."""
    mixed = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        mixed = (mixed ^ column) * np.uint64(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
    return mixed


def _told(problem: PlacementProblem, members: list[int], made: list[list[int]], taken: list[list[int]]) -> Hashable:
    """All that a tower's costs depend on, its own units by their position, others by their number."""
    crossings = crossings_of(problem)
    position = {unit: ("own", k) for k, unit in enumerate(members)}

    def name(unit: int) -> tuple[str, int]:
        return position.get(unit, ("rest", unit))

    def uses(x: int) -> Hashable:
        entries = range(crossings.start[x], crossings.start[x + 1])
        return frozenset(Counter((name(int(crossings.user[i])), crossings.user_place[i].tobytes()) for i in entries).items())

    rows = tuple((problem.unit_time_ns[u].tobytes(), problem.units.allowed[u].tobytes()) for u in members)
    inside = Counter(
        (name(u), int(crossings.nbytes[x]), float(crossings.count[x]), crossings.place[x].tobytes(), uses(x))
        for u in members
        for x in made[u]
    )
    outside = Counter(
        (name(u), int(crossings.user_crossing[i]), crossings.user_place[i].tobytes())
        for u in members
        for i in taken[u]
        if int(crossings.unit[crossings.user_crossing[i]]) not in position
    )
    return rows, frozenset(inside.items()), frozenset(outside.items())
