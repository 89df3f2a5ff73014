"""Joins the units of identical towers, which are placed alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.problem.arrays import Ints
from placer.problem.crossings import crossings_of
from placer.problem.grouping import components, grouped
from placer.problem.problem import PlacementProblem
from placer.solvers.reductions.reduced import Reduced, holds_anything

MAX_ROUNDS = 100
"""Limit of the distance, in edges, over which a difference between two units is noticed."""


def towers(reduced: Reduced) -> Reduced:
    """Joins towers: equal connected sets of units that have the same inputs from the rest and share nothing else.

    Requires that no memory limit can bind. With the rest fixed, a tower costs its own cost plus the copies into it, which towers
    on the same devices share. So it costs no more to place all towers like the one whose own cost is least. Candidates are
    found by colour refinement (Weisfeiler, Leman 1968) and then compared exactly.
    """
    problem = reduced.problem
    group = np.arange(problem.num_units)
    if holds_anything(problem).all():
        for copies in _candidates(problem):
            first = copies[0]
            for other in copies[1:]:
                group[other] = first
    return reduced.joined(group, problem.units.allowed)


def _candidates(problem: PlacementProblem) -> list[list[Ints]]:
    """Classes of equal towers. Each tower is an array of units; units at one position correspond to each other."""
    crossings = crossings_of(problem)
    colour = _colours(problem)
    several = np.bincount(colour)[colour] > 1
    maker = crossings.unit[crossings.user_crossing]
    joined = several[maker] & several[crossings.user]
    made_by, used_by = grouped(crossings.unit, problem.num_units), grouped(crossings.user, problem.num_units)
    towers_by_description: dict[Hashable, list[Ints]] = {}
    for piece in components(problem.num_units, maker[joined], crossings.user[joined]):
        members = np.array(piece)[np.argsort(colour[piece], kind="stable")]
        if several[members[0]] and len(np.unique(colour[members])) == len(members):
            towers_by_description.setdefault(_description(problem, members.tolist(), made_by, used_by), []).append(members)
    return [copies for copies in towers_by_description.values() if len(copies) > 1]


def _colours(problem: PlacementProblem) -> Ints:
    """[U]: colours of units; equal if their times, allowed devices and neighbourhoods are equal."""
    crossings, units = crossings_of(problem), problem.num_units
    own = _numbered(np.concatenate([problem.unit_time_ns, problem.units.allowed], axis=1))
    tensor_kind = _numbered(np.column_stack([crossings.nbytes, crossings.count, crossings.place]))
    use_kind = _numbered(crossings.user_place)
    colour = own
    for _ in range(MAX_ROUNDS):
        kinds = int(np.max(colour, initial=-1)) + 1
        use = _hashed(np.column_stack([colour[crossings.user], use_kind]))
        crossing = np.zeros(len(tensor_kind), np.uint64)
        np.add.at(crossing, crossings.user_crossing, use)
        whole = _hashed(np.column_stack([tensor_kind, colour[crossings.unit], crossing.view(np.int64)]))
        neighbourhood = np.zeros(units, np.uint64)
        np.add.at(neighbourhood, crossings.unit, whole)
        part = _hashed(np.column_stack([whole[crossings.user_crossing].view(np.int64), use_kind]))
        np.add.at(neighbourhood, crossings.user, part)
        colour = _numbered(np.column_stack([colour, neighbourhood.view(np.int64)]))
        if int(np.max(colour, initial=-1)) + 1 == kinds:
            break
    return colour


def _numbered(rows: NDArray[Any]) -> Ints:
    """[len(rows)]: numbers from 0, equal for equal rows."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _hashed(rows: Ints) -> NDArray[np.uint64]:
    """[len(rows)]: hashes of rows, whose sums very likely differ for different sets of rows (the finisher of MurmurHash3)."""
    hashed = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        hashed = (hashed ^ column) * np.uint64(0xFF51AFD7ED558CCD)
        hashed = (hashed ^ (hashed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        hashed ^= hashed >> np.uint64(33)
    return hashed


def _description(problem: PlacementProblem, members: list[int], made: list[list[int]], taken: list[list[int]]) -> Hashable:
    """Everything that a tower's costs depend on. Its own units are named by their position, others by their number."""
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
