"""Where the boxes of a folded graph stand: a lane per device, one box beside the other lanes' in each row, time running down."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

WIDTH, HEIGHT = 3.0, 0.5
"""Of a box, in inches."""
GAP_Y = 0.28
MARGIN = 0.75
"""Beside the boxes of a lane, on its outer side: room for arrows that pass others."""
LANE_GAP = 1.9


@dataclass(frozen=True, slots=True)
class Layout:
    """All in inches from the top left."""

    centres: dict[int, tuple[float, float]]
    """By box."""
    lanes: dict[str, tuple[float, float]]
    """By device that has boxes: left and right end of its lane."""
    height: float


def layout(folded: nx.DiGraph, devices: tuple[str, ...]) -> Layout:
    """Places the boxes of `placer.views.folding.fold`, each in the first row of its lane that is below all that feeds it.

    Of boxes that feed each other, those that start first stand above.
    """
    row = rows(folded)
    lanes: dict[str, tuple[float, float]] = {}
    left = 0.0
    for device in devices:
        if any(data["box"].device == device for _, data in folded.nodes(data=True)):
            lanes[device] = (left, left + WIDTH + 2 * MARGIN)
            left += WIDTH + 2 * MARGIN + LANE_GAP
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


def spread(wanted: list[float], apart: float) -> list[float]:
    """The positions nearest above-or-at the wanted ones that keep `apart` from each other, in the order given."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = dict.fromkeys(order[:1], wanted[order[0]] if order else 0.0)
    for before, i in pairwise(order):
        placed[i] = max(wanted[i], placed[before] + apart)
    return [placed[i] for i in range(len(wanted))]
