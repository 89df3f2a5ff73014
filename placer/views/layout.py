"""Where the boxes of a folded graph stand: a lane per device, time running down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

WIDTH, HEIGHT = 2.2, 0.6
"""Of a box, in inches."""
GAP_X, GAP_Y = 0.3, 0.42
LANE_GAP = 1.1
ABREAST = 4
"""Boxes side by side in a lane at most; more wrap into further lines."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All in inches from the top left."""

    centres: dict[int, tuple[float, float]]
    """By box."""
    lanes: dict[str, tuple[float, float]]
    """By device that has boxes: left and right end of its lane."""
    height: float


def layout(folded: nx.DiGraph, devices: tuple[str, ...]) -> Layout:
    """Places the boxes of `placer.views.folding.fold`.

    Rows follow the longest path, boxes that feed each other sharing one; what nothing feeds stands right above its first user.
    Within a row of a lane, boxes stand below what feeds them.
    """
    row = rows(folded)
    cells: dict[tuple[str, int], list[int]] = {}
    for number, data in folded.nodes(data=True):
        cells.setdefault((data["box"].device, row[number]), []).append(number)
    top, tops = 0.0, {}
    for level in sorted(set(row.values())):
        tops[level] = top
        lines = max(-(-len(cells.get((device, level), ())) // ABREAST) for device in devices)
        top += lines * (HEIGHT + GAP_Y)
    centres: dict[int, tuple[float, float]] = {}
    lanes: dict[str, tuple[float, float]] = {}
    left = 0.0
    for device in devices:
        mine = {level: cells[device, level] for level in tops if (device, level) in cells}
        if not mine:
            continue
        widest = min(ABREAST, max(map(len, mine.values())))
        right = left + widest * (WIDTH + GAP_X) + GAP_X
        for level, members in mine.items():
            members.sort(key=lambda n: (_pull(folded, centres, n, left), n))
            for first in range(0, len(members), ABREAST):
                line = members[first : first + ABREAST]
                span = (right - left) / len(line)
                y = tops[level] + (first // ABREAST) * (HEIGHT + GAP_Y) + HEIGHT / 2
                centres.update({number: (left + span * (k + 0.5), y) for k, number in enumerate(line)})
        lanes[device] = (left, right)
        left = right + LANE_GAP
    return Layout(centres, lanes, top)


def rows(folded: nx.DiGraph) -> dict[int, int]:
    """The row of each box."""
    parts = nx.condensation(folded)
    generations = list(nx.topological_generations(parts))
    level = {part: k for k, generation in enumerate(generations) for part in generation}
    for part in generations[0] if generations else ():
        if parts.out_degree(part):
            level[part] = max(0, min(level[after] for after in parts.successors(part)) - 1)
    return {number: level[part] for part, data in parts.nodes(data=True) for number in data["members"]}


def spread(wanted: list[float], apart: float) -> list[float]:
    """The positions nearest above-or-at the wanted ones that keep `apart` from each other, in the order given."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = dict.fromkeys(order[:1], wanted[order[0]] if order else 0.0)
    for before, i in pairwise(order):
        placed[i] = max(wanted[i], placed[before] + apart)
    return [placed[i] for i in range(len(wanted))]


def _pull(folded: nx.DiGraph, centres: dict[int, tuple[float, float]], number: int, default: float) -> float:
    """The mean place across of what feeds a box and stands already."""
    across = [centres[p][0] for p in folded.pred[number] if p in centres]
    return sum(across) / len(across) if across else default
