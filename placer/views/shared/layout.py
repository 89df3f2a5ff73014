"""The positions of a folded graph's boxes: a column, or lane, per device, and one row per box of a lane, time running down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

WIDTH, HEIGHT = 3.0, 0.5
"""Size of a box, in inches."""
GAP_Y = 0.28
"""Between the rows of a lane, in inches."""
MARGIN = 0.75
"""Between the boxes of a lane and its border, in inches: room for arrows that pass other boxes."""
LANE_GAP = 1.9
"""Between lanes, in inches."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions in inches from the top left."""

    centres: dict[int, tuple[float, float]]
    """By box."""
    lanes: dict[str, tuple[float, float]]
    """Left and right end of a lane, by device; only devices that have boxes."""
    height: float


def layout(folded: nx.DiGraph, devices: tuple[str, ...]) -> Layout:
    """Places the boxes of `fold`, each in the first free row of its lane below all boxes that feed it.

    Of boxes that feed each other, the one that starts first is above.
    """
    row = rows(folded)
    lanes: dict[str, tuple[float, float]] = {}
    lane_left = 0.0
    for device in devices:
        if any(data["box"].device == device for _, data in folded.nodes(data=True)):
            lanes[device] = (lane_left, lane_left + WIDTH + 2 * MARGIN)
            lane_left += WIDTH + 2 * MARGIN + LANE_GAP
    centres = {}
    for number, data in folded.nodes(data=True):
        start, end = lanes[data["box"].device]
        centres[number] = ((start + end) / 2, GAP_Y + row[number] * (HEIGHT + GAP_Y) + HEIGHT / 2)
    return Layout(centres, lanes, GAP_Y + (1 + max(row.values(), default=-1)) * (HEIGHT + GAP_Y))


def rows(folded: nx.DiGraph) -> dict[int, int]:
    """The row of each box."""
    parts = nx.condensation(folded)
    row: dict[int, int] = {}
    free: dict[str, int] = {}
    for part in nx.lexicographical_topological_sort(parts, key=lambda p: min(parts.nodes[p]["members"])):
        for number in sorted(parts.nodes[part]["members"]):
            device = folded.nodes[number]["box"].device
            above = [row[before] + 1 for before in folded.pred[number] if before in row]
            row[number] = max([free.get(device, 0), *above])
            free[device] = row[number] + 1
    return row


def spread(wanted: list[float], distance: float) -> list[float]:
    """The nearest positions at or after the wanted ones that keep a distance from each other, in the order given."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = dict.fromkeys(order[:1], wanted[order[0]] if order else 0.0)
    for before, i in pairwise(order):
        placed[i] = max(wanted[i], placed[before] + distance)
    return [placed[i] for i in range(len(wanted))]
