"""Positions by what they belong to, and units by what joins them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placer.problem.arrays import Ints


def grouped(group: Ints, groups: int) -> list[list[int]]:
    """For each of 0..groups-1 its positions in an array of group numbers, ascending."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(groups + 1)).tolist()
    return [order[a:b].tolist() for a, b in pairwise(starts)]


def components(units: int, left: Ints, right: Ints) -> list[list[int]]:
    """Units joined by these pairs, each piece and all of them in ascending order."""
    root = list(range(units))

    def find(unit: int) -> int:
        while root[unit] != unit:
            root[unit] = root[root[unit]]
            unit = root[unit]
        return unit

    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        root[find(a)] = find(b)
    pieces: dict[int, list[int]] = {}
    for unit in range(units):
        pieces.setdefault(find(unit), []).append(unit)
    return list(pieces.values())
