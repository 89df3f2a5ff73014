"""Ideals of a graph: sets of units that contain all their predecessors. A contiguous piece is a difference of two ideals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placer.problem.arrays import Bools

Edges = list[tuple[int, int]]


def precedence(units: int, feeds: Iterable[tuple[int, int]]) -> Edges:
    """The edges between units, in the given order, without those that would close a cycle.

    Units of colocated ops can feed each other in cycles: so do layers whose forward and backward ops share weights. If the edges
    come in the order of their users, the forward edges are kept.
    """
    after: list[dict[int, None]] = [{} for _ in range(units)]
    for a, b in feeds:
        if a != b and b not in after[a] and not _reaches(after, b, a):
            after[a][b] = None
    return [(a, b) for a in range(units) for b in after[a]]


def _reaches(after: list[dict[int, None]], a: int, b: int) -> bool:
    visited, stack = {a}, [a]
    while stack:
        unit = stack.pop()
        if unit == b:
            return True
        for following in after[unit]:
            if following not in visited:
                visited.add(following)
                stack.append(following)
    return False


def depth_first(units: int, edges: Edges, *, last_first: bool = False) -> list[int]:
    """A depth-first topological order: the predecessors that only one unit needs come right before it.

    Args:
        last_first: visit predecessors with higher numbers first.
    """
    before: list[list[int]] = [[] for _ in range(units)]
    for a, b in edges:
        before[b].append(a)
    for predecessors in before:
        predecessors.sort(reverse=not last_first)  # the stack reverses the order
    ends = sorted(set(range(units)) - {a for a, _ in edges}, reverse=not last_first)
    order: list[int] = []
    state = [0] * units  # 1: its inputs are on the stack, 2: placed
    stack = ends
    while stack:
        unit = stack[-1]
        if state[unit] == 0:
            state[unit] = 1
            stack.extend(earlier for earlier in before[unit] if state[earlier] == 0)
        else:
            stack.pop()
            if state[unit] == 1:
                state[unit] = 2
                order.append(unit)
    return order


def ideals(units: int, edges: Edges, max_ideals: int) -> tuple[Bools, bool]:
    """[I, U]: the ideals in the order of size, from the empty one to all units; and whether these are all ideals.

    If there are more than `max_ideals`, only prefixes of two depth-first orders, about that many, at equal distances.
    """
    masks = _all(units, edges, max_ideals)
    if masks is not None:
        width = max(1, (units + 7) // 8)
        packed = np.frombuffer(b"".join(ideal.to_bytes(width, "little") for ideal in masks), np.uint8)
        bits = np.unpackbits(packed.reshape(len(masks), width), axis=1, count=units, bitorder="little")
        return bits.astype(np.bool_), True
    lengths = np.unique(np.linspace(0, units, max(2, max_ideals // 2)).astype(np.int64))
    rows = []
    for last_first in (False, True):
        rank = np.empty(units, np.int64)
        rank[depth_first(units, edges, last_first=last_first)] = np.arange(units)
        rows.append(rank < lengths[:, None])
    family = np.unique(np.concatenate(rows), axis=0)
    return family[np.argsort(family.sum(axis=1), kind="stable")], False


def _all(units: int, edges: Edges, max_ideals: int) -> list[int] | None:
    """All ideals as bit masks in the order of size; None if there are more than `max_ideals`."""
    if units >= max_ideals:
        return None
    before = [0] * units
    for a, b in edges:
        before[b] |= 1 << a
    known = fresh = [0]
    while fresh:
        grown: dict[int, None] = {}
        for ideal in fresh:
            for unit, needs in enumerate(before):
                if not ideal >> unit & 1 and needs & ~ideal == 0:
                    grown[ideal | 1 << unit] = None
        fresh = list(grown)
        known = known + fresh
        if len(known) > max_ideals:
            return None
    return known


def contained(family: Bools) -> Bools:
    """[I, I]: whether ideal i is a subset of ideal j."""
    counts = family.astype(np.float32)
    common = counts @ counts.T
    inside: Bools = common == counts.sum(axis=1)[:, None]
    return inside
