"""Positions grouped by number, and connected components."""

from __future__ import annotations

from itertools import pairwise

from networkx.utils import UnionFind

from placer.problem.arrays import Grouped, Ints


def grouped(group: Ints, groups: int) -> list[list[int]]:
    """The positions of each of the numbers 0..groups-1 in an array of them, ascending."""
    positions = Grouped.by(group, groups)
    order = positions.order.tolist()
    return [order[a:b] for a, b in pairwise(positions.start.tolist())]


def components(units: int, left: Ints, right: Ints) -> list[list[int]]:
    """The connected components of a graph on units 0..units-1; units are ascending, and components by their first unit.

    Args:
        units: the number of units.
        left: [E]: one end of each edge.
        right: [E]: the other end.
    """
    joined = UnionFind(range(units))
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        joined.union(a, b)
    pieces: dict[int, list[int]] = {}
    for unit in range(units):
        pieces.setdefault(joined[unit], []).append(unit)
    return list(pieces.values())
