"""A placement as an SVG picture: a lane per device, time running down, thick arrows for crossings, with their bytes and time."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx

from placer.common.escaping import one_line
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.plan.placement import Placement
from placer.views.shared.colours import CROSSING, QUIET, colours
from placer.views.shared.folding import Box, Flow, fold, without_repeats
from placer.views.shared.layout import GAP_Y, HEIGHT, MARGIN, WIDTH, Layout, layout, spread

HEAD, FOOT, EDGE = 0.85, 0.6, 0.3
"""Inches above the lanes for their titles, below for the legend, and around everything."""
BESIDE, STUB = 0.8, 1.45
"""Inches from a box to the middle of the label of its arrow, and to the point where the arrow leaves the box's row."""
LETTER = 0.085
"""Width of a letter of the legend in inches, for the widest font."""
LABEL = 0.22
"""Inches between labels, one below the other."""
Point: TypeAlias = tuple[float, float]
LEGEND = (
    ("crosses: bytes and time per step", CROSSING, 2.4, "-"),
    ("stays on the device", QUIET, 1.2, "-"),
    ("order only", QUIET, 1.2, ":"),
)


def svg(placement: Placement, *, boxes: int = 30) -> str:
    """SVG text of the graph folded to at most `boxes` boxes.

    An arrow that crosses nothing is left out if a longer path connects its ends too. A tensor that crosses has one arrow for each
    other device, to the first box that reads it there.

    Raises:
        OptionError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("the view 'svg' draws with matplotlib, which is not installed: pip install matplotlib.") from error
    folded = fold(placement, boxes)
    plan = layout(folded, placement.devices)
    width = max((right for _, right in plan.lanes.values()), default=WIDTH)
    figure = Figure(figsize=(width + 2 * EDGE, HEAD + plan.height + FOOT + 2 * EDGE))
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-EDGE, width + EDGE), ylim=(plan.height + FOOT + EDGE, -HEAD - EDGE))
    axes.axis("off")
    _draw_lanes(axes, placement, plan)
    _draw_edges(axes, without_repeats(folded), plan)
    _draw_boxes(axes, folded, plan, placement.devices)
    _draw_legend(axes, placement.devices, plan)
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "placer", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _draw_lanes(axes: Any, placement: Placement, plan: Layout) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour = colours(placement.devices)
    for device, (left, right) in plan.lanes.items():
        fill, line = colour[device]
        round_ = "round,pad=0,rounding_size=0.1"
        axes.add_patch(
            FancyBboxPatch((left, 0), right - left, plan.height, boxstyle=round_, fc=fill, ec="none", alpha=0.4, zorder=0)
        )
        total = placement.totals[device]
        middle = (left + right) / 2
        _text(axes, middle, -0.5, device, ha="center", va="center", fontsize=14, weight="bold", color=line)
        text = f"{total.ops} ops, {format_ns(total.time_ns)}"
        _text(axes, middle, -0.2, text, ha="center", va="center", fontsize=10.5, color=line)
    title = f"{placement.graph.name} on {placement.machine}: {format_ns(placement.step_time_ns)} per step"
    _text(axes, 0, -HEAD, title, ha="left", va="center", fontsize=10.5)


def _draw_boxes(axes: Any, folded: nx.DiGraph, plan: Layout, devices: tuple[str, ...]) -> None:
    from matplotlib.patches import FancyBboxPatch

    colour = colours(devices)
    for number, data in folded.nodes(data=True):
        box: Box = data["box"]
        x, y = plan.centres[number]
        fill, line = colour[box.device]
        corner, round_ = (x - WIDTH / 2, y - HEIGHT / 2), "round,pad=0,rounding_size=0.08"
        axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=round_, fc=fill, ec=line, lw=1.2, zorder=4))
        _text(axes, x, y - 0.1, _fit(box.label, 32), ha="center", va="center", fontsize=9.5, weight="bold", zorder=5)
        text = _fit(box.content, 28) + (f", {format_ns(box.time_ns)}" if box.time_ns else "")
        _text(axes, x, y + 0.11, text, ha="center", va="center", fontsize=9, zorder=5)


def _draw_edges(axes: Any, folded: nx.DiGraph, plan: Layout) -> None:
    heavy = [edge for *edge, flow in folded.edges(data="flow") if flow.crosses and flow.nbytes]
    leaving, coming = (Counter(edge[k] for edge in heavy) for k in (0, 1))
    routes = _Routes(plan)
    labels: dict[float, list[_Crossing]] = defaultdict(list)
    for src, dst, data in folded.edges(data=True):
        flow: Flow = data["flow"]
        (x, y), (to_x, to_y) = plan.centres[src], plan.centres[dst]
        if not flow.crosses:
            points = _within(plan, (x, y), (to_x, to_y))
            _arrow(axes, points, QUIET, 1.2, "-" if flow.nbytes else ":", curved=len(points) > 2)
            continue
        side = 1 if to_x > x else -1
        start, end = (x + side * WIDTH / 2, y), (to_x - side * WIDTH / 2, to_y)
        if flow.nbytes:  # its label is beside the box at which fewer arrows meet
            at_start = leaving[src] <= coming[dst]
            at, far_y = (start[0] + side * BESIDE, end[1]) if at_start else (end[0] - side * BESIDE, start[1])
            labels[round(at, 3)].append(_Crossing(flow, start, end, at_start, far_y))
        else:
            _arrow(axes, routes.between(start, end), CROSSING, 1.2, ":")
    for at, here in labels.items():
        here.sort(key=lambda crossing: (crossing.row, crossing.far_y))
        for y, crossing in zip(spread([crossing.row for crossing in here], LABEL), here, strict=True):
            _arrow(axes, crossing.through(y, routes), CROSSING, 2.4, "-")
            text = f"{format_bytes(crossing.flow.nbytes)}, {format_ns(crossing.flow.time_ns)}"
            paper = {"fc": "white", "ec": CROSSING, "lw": 0.6, "pad": 1.5}
            _text(axes, at, y, text, ha="center", va="center", fontsize=9, color=CROSSING, zorder=6, bbox=paper)


@dataclass(frozen=True, slots=True)
class _Crossing:
    """An arrow with a label beside one of its ends."""

    flow: Flow
    start: Point
    end: Point
    at_start: bool
    """Whether the label is beside the start of the arrow."""
    far_y: float
    """Position of the other end."""

    @property
    def row(self) -> float:
        """Position of the box that the label is beside."""
        return (self.start if self.at_start else self.end)[1]

    def through(self, y: float, routes: _Routes) -> list[Point]:
        """The points of the arrow through its label, which is at `y`."""
        side = 1 if self.end[0] > self.start[0] else -1
        if self.at_start:
            return [self.start, (self.start[0] + side * 0.2, y), *routes.between((self.start[0] + side * STUB, y), self.end)]
        return [*routes.between(self.start, (self.end[0] - side * STUB, y)), (self.end[0] - side * 0.2, y), self.end]


class _Routes:
    """Routes from lane to lane that cross no box: they pass the lanes between in the gap between two rows."""

    def __init__(self, plan: Layout) -> None:
        self.lanes = sorted(plan.lanes.values())
        self.routes_in_gap: Counter[tuple[float, int]] = Counter()

    def between(self, start: Point, end: Point) -> list[Point]:
        """The corners of a route from one point to another, both beside lanes."""
        (x, y), (to_x, to_y) = start, end
        passed = [(left + MARGIN, right - MARGIN) for left, right in self.lanes if min(x, to_x) < left and right < max(x, to_x)]
        points = [start]
        for left, right in passed if x < to_x else reversed(passed):
            height = y + (to_y - y) * ((left + right) / 2 - x) / (to_x - x)
            row = round((height - GAP_Y / 2) / (HEIGHT + GAP_Y))
            others = self.routes_in_gap[left, row]
            self.routes_in_gap[left, row] += 1
            gap = GAP_Y / 2 + row * (HEIGHT + GAP_Y) + (0.0, -0.07, 0.07)[others % 3]
            points += [(left, gap), (right, gap)] if x < to_x else [(right, gap), (left, gap)]
        return [*points, end]


def _within(plan: Layout, start: Point, end: Point) -> list[Point]:
    """The points from a box to another of its lane: straight down to the next one, or around those between.

    The way around is on the side that faces no other lane, or on the left.
    """
    (x, y), (_, to_y) = start, end
    distance = to_y - y
    if 0 < distance <= HEIGHT + GAP_Y + 1e-9:
        return [(x, y + HEIGHT / 2), (x, to_y - HEIGHT / 2)]
    last = x + WIDTH / 2 + MARGIN >= max(right for _, right in plan.lanes.values()) - 1e-9 and len(plan.lanes) > 1
    side = 1 if last else -1
    edge = x + side * WIDTH / 2
    bow = edge + side * min(1.25 * MARGIN, 0.35 + 0.06 * abs(distance))
    return [(edge, y), (bow, y), (bow, to_y), (edge, to_y)]


def _arrow(axes: Any, points: list[Point], colour: str, weight: float, line: str, *, curved: bool = False) -> None:
    """Draws an arrow through points, or along the cubic curve that four points define."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    codes = [Path.MOVETO, *[Path.CURVE4 if curved else Path.LINETO] * (len(points) - 1)]
    axes.add_patch(
        FancyArrowPatch(
            path=Path(points, codes),
            arrowstyle="-|>",
            mutation_scale=8 + 2 * weight,
            lw=weight,
            linestyle=line,
            color=colour,
            joinstyle="round",
            zorder=1 + weight,
        )
    )


def _draw_legend(axes: Any, devices: tuple[str, ...], plan: Layout) -> None:
    from matplotlib.patches import Rectangle

    x, y = 0.0, plan.height + FOOT / 2 + 0.1
    colour = colours(devices)
    for device in plan.lanes:
        fill, line = colour[device]
        axes.add_patch(Rectangle((x, y - 0.1), 0.35, 0.2, fc=fill, ec=line, lw=1.2))
        _text(axes, x + 0.45, y, device, ha="left", va="center", fontsize=9.5)
        x += 0.85 + LETTER * len(device)
    for text, arrow, weight, style in LEGEND:
        _arrow(axes, [(x, y), (x + 0.5, y)], arrow, weight, style)
        _text(axes, x + 0.6, y, text, ha="left", va="center", fontsize=9.5)
        x += 1.0 + LETTER * len(text)


def _text(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    """Draws text. Without `parse_math`, a name with two dollar signs would be read as a formula."""
    axes.text(x, y, one_line(text), parse_math=False, **style)


def _fit(text: str, length: int) -> str:
    """The text, shortened at its start: the end of a long name says more."""
    return text if len(text) <= length else f"…{text[-(length - 1) :]}"
