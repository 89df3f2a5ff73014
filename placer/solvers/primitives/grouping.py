"""Positions by what they belong to, and units by what joins them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from networkx.utils import UnionFind

from placer.problem.arrays import Ints


def grouped(group: Ints, groups: int) -> list[list[int]]:
    """For each of 0..groups-1 its positions in an array of group numbers, ascending."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(groups + 1)).tolist()
    return [order[a:b].tolist() for a, b in pairwise(starts)]


def components(units: int, left: Ints, right: Ints) -> list[list[int]]:
    """Units joined by these pairs, each piece and all of them in ascending order."""
    joined = UnionFind(range(units))
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        joined.union(a, b)
    pieces: dict[int, list[int]] = {}
    for unit in range(units):
        pieces.setdefault(joined[unit], []).append(unit)
    return list(pieces.values())
