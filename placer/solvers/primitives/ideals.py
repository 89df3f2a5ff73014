"""Ideals of a graph: sets of units with all that comes before them. Contiguous splits are differences of such."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from placer.problem.arrays import Bools

Edges = list[tuple[int, int]]


def precedence(units: int, feeds: Iterable[tuple[int, int]]) -> Edges:
    """The edges between units, in the order given, less those that would close a circle.

    Units of colocated ops can feed each other in circles, as layers do whose forward and backward ops share weights: taken in
    the order of their users, the forward edges are kept.
    """
    after: list[dict[int, None]] = [{} for _ in range(units)]
    for a, b in feeds:
        if a != b and b not in after[a] and not _reaches(after, b, a):
            after[a][b] = None
    return [(a, b) for a in range(units) for b in after[a]]


def _reaches(after: list[dict[int, None]], a: int, b: int) -> bool:
    seen, stack = {a}, [a]
    while stack:
        here = stack.pop()
        if here == b:
            return True
        for there in after[here]:
            if there not in seen:
                seen.add(there)
                stack.append(there)
    return False


def depth_first(units: int, edges: Edges, *, last_first: bool = False) -> list[int]:
    """A topological order in which what a unit alone needs comes right before it."""
    before: list[list[int]] = [[] for _ in range(units)]
    for a, b in edges:
        before[b].append(a)
    for made in before:
        made.sort(reverse=not last_first)  # the stack turns it around
    ends = sorted(set(range(units)) - {a for a, _ in edges}, reverse=not last_first)
    order: list[int] = []
    state = [0] * units  # 1: its inputs are on the stack, 2: placed
    stack = ends
    while stack:
        unit = stack[-1]
        if state[unit] == 0:
            state[unit] = 1
            stack.extend(made for made in before[unit] if state[made] == 0)
        else:
            stack.pop()
            if state[unit] == 1:
                state[unit] = 2
                order.append(unit)
    return order


def ideals(units: int, edges: Edges, most: int) -> tuple[Bools, bool]:
    """[I, U]: ideals by size, from the empty one to the whole; and whether these are all.

    Where there are more than `most`, the prefixes of two depth-first orders, evenly thinned out to as many.
    """
    found = _all(units, edges, most)
    if found is not None:
        width = max(1, (units + 7) // 8)
        packed = np.frombuffer(b"".join(ideal.to_bytes(width, "little") for ideal in found), np.uint8)
        bits = np.unpackbits(packed.reshape(len(found), width), axis=1, count=units, bitorder="little")
        return bits.astype(np.bool_), True
    lengths = np.unique(np.linspace(0, units, max(2, most // 2)).astype(np.int64))
    rows = []
    for last_first in (False, True):
        rank = np.empty(units, np.int64)
        rank[depth_first(units, edges, last_first=last_first)] = np.arange(units)
        rows.append(rank < lengths[:, None])
    family = np.unique(np.concatenate(rows), axis=0)
    return family[np.argsort(family.sum(axis=1), kind="stable")], False


def _all(units: int, edges: Edges, most: int) -> list[int] | None:
    """Each ideal as a bit mask, by size, or None where there are more than `most`."""
    if units >= most:
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
        if len(known) > most:
            return None
    return known


def contained(family: Bools) -> Bools:
    """[I, I]: whether ideal i lies within ideal j."""
    counts = family.astype(np.float32)
    common = counts @ counts.T
    inside: Bools = common == counts.sum(axis=1)[:, None]
    return inside
