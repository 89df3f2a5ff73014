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
from placer.views.layout import GAP_X, GAP_Y, HEIGHT, LANE_GAP, WIDTH, Layout, layout, spread

HEAD = 0.75
"""Inches above the lanes for their titles."""


def svg(placement: Placement, *, boxes: int = 40) -> str:
    """SVG text of the graph folded to at most `boxes` boxes; quiet edges that only repeat a longer path are left out.

    Raises OptionError where matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("the view 'svg' draws with matplotlib, which is not installed: pip install matplotlib.") from error
    folded = fold(placement, boxes)
    plan = layout(folded, placement.devices)
    width = max((right for _, right in plan.lanes.values()), default=WIDTH) + 2 * GAP_X
    figure = Figure(figsize=(width, plan.height + HEAD + GAP_Y))
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-GAP_X, width - GAP_X), ylim=(plan.height + GAP_Y / 2, -HEAD - GAP_Y / 2))
    axes.axis("off")
    _draw_lanes(axes, placement, plan)
    _draw_edges(axes, folded, plan, placement.devices)
    _draw_boxes(axes, folded, plan, placement.devices)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "placer", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw_lanes(axes: Any, placement: Placement, plan: Layout) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour = colours(placement.devices)
    for device, (left, right) in plan.lanes.items():
        fill, line = colour[device]
        corner, round_ = (left, -GAP_Y / 2), "round,pad=0,rounding_size=0.1"
        axes.add_patch(
            FancyBboxPatch(corner, right - left, plan.height, boxstyle=round_, fc=fill, ec="none", alpha=0.4, zorder=0)
        )
        total = placement.totals[device]
        middle = (left + right) / 2
        axes.text(middle, -0.62, device, ha="center", va="center", fontsize=12, weight="bold", color=line)
        text = f"{total.ops} ops, {format_ns(total.time_ns)}"
        axes.text(middle, -0.38, text, ha="center", va="center", fontsize=9, color=line)


def _draw_boxes(axes: Any, folded: nx.DiGraph, plan: Layout, devices: tuple[str, ...]) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour = colours(devices)
    for number, data in folded.nodes(data=True):
        box: Box = data["box"]
        x, y = plan.centres[number]
        fill, line = colour[box.device]
        corner, round_ = (x - WIDTH / 2, y - HEIGHT / 2), "round,pad=0,rounding_size=0.08"
        axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=round_, fc=fill, ec=line, lw=1.2, zorder=4))
        axes.text(x, y - 0.12, _fit(box.label, 28), ha="center", va="center", fontsize=8.5, weight="bold", zorder=5)
        text = _fit(box.what, 22) + (f", {format_ns(box.time_ns)}" if box.time_ns else "")
        axes.text(x, y + 0.14, text, ha="center", va="center", fontsize=8, zorder=5)


def _draw_edges(axes: Any, folded: nx.DiGraph, plan: Layout, devices: tuple[str, ...]) -> None:
    labels: list[tuple[float, float, str]] = []
    for source, target, data in folded.edges(data=True):
        flow: Flow = data["flow"]
        start, end = plan.centres[source], plan.centres[target]
        if not flow.crosses:
            if flow.nbytes or not _repeats(folded, source, target):
                _arrow(axes, *_down(start, end), QUIET, 0.9, "-" if flow.nbytes else ":")
            continue
        side = WIDTH / 2 if end[0] > start[0] else -WIDTH / 2
        start, end = (start[0] + side, start[1]), (end[0] - side, end[1])
        _arrow(axes, start, end, CROSSING, 2.4, "-" if flow.nbytes else ":")
        if flow.nbytes:
            left, right = plan.lanes[folded.nodes[source]["box"].device]
            gap = right + LANE_GAP / 2 if side > 0 else left - LANE_GAP / 2
            share = (gap - start[0]) / (end[0] - start[0])
            labels.append((gap, start[1] + share * (end[1] - start[1]), format_bytes(flow.nbytes)))
    for gap in dict.fromkeys(x for x, _, _ in labels):
        here = [(y, text) for x, y, text in labels if x == gap]
        for y, (_, text) in zip(spread([y for y, _ in here], 0.2), here, strict=True):
            paper = {"fc": "white", "ec": CROSSING, "lw": 0.5, "pad": 1.5}
            axes.text(gap, y, text, ha="center", va="center", fontsize=8, color=CROSSING, zorder=6, bbox=paper)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, weight: float, line: str) -> None:
    from matplotlib.patches import FancyArrowPatch

    # A long way down bows out, so that it passes beside the boxes between.
    bend = 0.18 if colour == QUIET and end[1] - start[1] > 2 * GAP_Y else 0.0
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            connectionstyle=f"arc3,rad={bend}",
            mutation_scale=8 + 2 * weight,
            lw=weight,
            linestyle=line,
            color=colour,
            shrinkA=0,
            shrinkB=0,
            zorder=1 + weight,
        )
    )


def _down(start: tuple[float, float], end: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the lower edge of a box to the upper edge of the next, or between the sides of boxes in one row."""
    if end[1] > start[1]:
        return (start[0], start[1] + HEIGHT / 2), (end[0], end[1] - HEIGHT / 2)
    side = WIDTH / 2 if end[0] > start[0] else -WIDTH / 2
    return (start[0] + side, start[1]), (end[0] - side, end[1])


def _repeats(folded: nx.DiGraph, source: int, target: int) -> bool:
    """Whether there is another way from `source` to `target`."""
    return any(after != target and nx.has_path(folded, after, target) for after in folded.successors(source))


def _fit(text: str, length: int) -> str:
    """The end of a long name says more than its beginning."""
    return text if len(text) <= length else f"…{text[-(length - 1) :]}"
