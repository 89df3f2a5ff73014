"""A placement as an SVG picture: a lane per device, time running down, crossings between the lanes heavy with their bytes."""

from __future__ import annotations

import io
from typing import Any

import networkx as nx

from placer.errors import OptionError
from placer.placement import Placement
from placer.units import format_bytes, format_ns
from placer.views.colours import CROSSING, QUIET, colours
from placer.views.folding import Box, Flow, fold

WIDTH, HEIGHT = 2.3, 0.62
"""Of a box, in inches."""
GAP_X, GAP_Y = 0.35, 0.55


def svg(placement: Placement, *, boxes: int = 40) -> str:
    """SVG text of the graph folded to at most `boxes` boxes.

    Raises OptionError where matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
    except ImportError as error:
        raise OptionError('the view "svg" draws with matplotlib, which is not installed: pip install "placer[viz]".') from error
    folded = fold(placement, boxes)
    centres, lanes, height = layout(folded, placement.devices)
    colour = colours(placement.devices)
    width = max(right for _, right in lanes.values()) + GAP_X
    figure = Figure(figsize=(width, height + 0.9))
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-GAP_X, width - GAP_X), ylim=(height + 0.1, -0.8))
    axes.axis("off")
    for device, (left, right) in lanes.items():
        fill, line = colour[device]
        axes.add_patch(
            FancyBboxPatch(
                (left, -0.25),
                right - left,
                height + 0.2,
                boxstyle="round,pad=0,rounding_size=0.1",
                fc=fill,
                ec="none",
                alpha=0.35,
            )
        )
        total = placement.totals[device]
        text = f"{device}   {total.ops} ops, {format_ns(total.time_ns)}"
        axes.text((left + right) / 2, -0.5, text, ha="center", va="center", fontsize=11, weight="bold", color=line)
    for source, target, data in folded.edges(data=True):
        flow: Flow = data["flow"]
        start, end = _anchors(centres[source], centres[target])
        weight = 2.6 if flow.crosses else 0.9
        axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=12 if flow.crosses else 8,
                lw=weight,
                color=CROSSING if flow.crosses else QUIET,
                connectionstyle=f"arc3,rad={_bend(start, end)}",
                linestyle="-" if flow.nbytes else ":",
                zorder=3 if flow.crosses else 1,
                shrinkA=0,
                shrinkB=0,
            )
        )
    for number, data in folded.nodes(data=True):
        box: Box = data["box"]
        x, y = centres[number]
        fill, line = colour[box.device]
        corner = (x - WIDTH / 2, y - HEIGHT / 2)
        axes.add_patch(
            FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.08", fc=fill, ec=line, lw=1.2, zorder=4)
        )
        axes.text(x, y - 0.12, _fit(box.label, 30), ha="center", va="center", fontsize=8.5, weight="bold", zorder=5)
        axes.text(x, y + 0.14, f"{_fit(box.what, 22)}, {format_ns(box.time_ns)}", ha="center", va="center", fontsize=8, zorder=5)
    for source, target, data in folded.edges(data=True):
        if data["flow"].crosses and data["flow"].nbytes:
            start, end = _anchors(centres[source], centres[target])
            axes.text(
                start[0] + 0.5 * (end[0] - start[0]),
                start[1] + 0.5 * (end[1] - start[1]),
                format_bytes(data["flow"].nbytes),
                ha="center",
                va="center",
                fontsize=8,
                color=CROSSING,
                zorder=6,
                bbox={"fc": "white", "ec": "none", "pad": 1, "alpha": 0.85},
            )
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "placer", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def layout(
    folded: nx.DiGraph, devices: tuple[str, ...]
) -> tuple[dict[int, tuple[float, float]], dict[str, tuple[float, float]], float]:
    """Centres of the boxes, left and right end of each used device's lane, and the height, all in inches from the top left.

    Rows follow the longest path; boxes that feed each other share a row. In a row of a lane they stand below what feeds them.
    """
    row = rows(folded)
    lanes: dict[str, tuple[float, float]] = {}
    centres: dict[int, tuple[float, float]] = {}
    left = 0.0
    for device in devices:
        by_row: dict[int, list[int]] = {}
        for number, data in folded.nodes(data=True):
            if data["box"].device == device:
                by_row.setdefault(row[number], []).append(number)
        if not by_row:
            continue
        widest = max(len(members) for members in by_row.values())
        right = left + widest * (WIDTH + GAP_X) + GAP_X
        for level in sorted(by_row):
            members = by_row[level]
            feeders = {n: [centres[p][0] for p in folded.pred[n] if p in centres and row[p] < level] for n in members}
            members.sort(key=lambda n: (sum(feeders[n]) / len(feeders[n]) if feeders[n] else left, n))
            span = (right - left) / len(members)
            for k, number in enumerate(members):
                centres[number] = (left + span * (k + 0.5), level * (HEIGHT + GAP_Y) + HEIGHT / 2)
        lanes[device] = (left, right)
        left = right + 2 * GAP_X
    height = (max(row.values(), default=0) + 1) * (HEIGHT + GAP_Y)
    return centres, lanes, height


def rows(folded: nx.DiGraph) -> dict[int, int]:
    """The row of each box: the longest way to it from a box that nothing feeds."""
    parts = nx.condensation(folded)
    row: dict[int, int] = {}
    for level, generation in enumerate(nx.topological_generations(parts)):
        for part in generation:
            row.update(dict.fromkeys(parts.nodes[part]["members"], level))
    return row


def _anchors(source: tuple[float, float], target: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow leaves and enters: bottom to top where it runs down, else the sides that face each other."""
    if target[1] > source[1]:
        return (source[0], source[1] + HEIGHT / 2), (target[0], target[1] - HEIGHT / 2)
    side = WIDTH / 2 if target[0] > source[0] else -WIDTH / 2
    return (source[0] + side, source[1]), (target[0] - side, target[1])


def _bend(start: tuple[float, float], end: tuple[float, float]) -> float:
    """Straight between neighbouring rows; longer arrows bow out, so that they pass beside the boxes between."""
    return 0.0 if abs(end[1] - start[1]) <= GAP_Y * 1.5 else 0.18


def _fit(text: str, length: int) -> str:
    """The end of a long name says more than its beginning."""
    return text if len(text) <= length else f"…{text[-(length - 1) :]}"
