"""Positions by what they belong to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placer.problem.problem import Ints


def grouped(group: Ints, groups: int) -> list[list[int]]:
    """For each of 0..groups-1 its positions in an array of group numbers, ascending."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(groups + 1)).tolist()
    return [order[a:b].tolist() for a, b in pairwise(starts)]
