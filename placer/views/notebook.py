"""A placement in a notebook: its speed, its devices, and, folded, what it was compared with, its notes and a small picture."""

from __future__ import annotations

import re
from contextlib import suppress

from placer.common.html import Html, bold, folded, html_table, joined, listed, stacked
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.plan.parts import BASELINE_NAMES
from placer.plan.placement import Placement
from placer.plan.verdict import VERDICT_HEAD
from placer.views.shared.colours import colour
from placer.views.shared.words import against, headline, ops_on_machine, optimality
from placer.views.svg import svg

MAX_BOXES = 10
MAX_PIXELS = 400
"""The longer side of the picture."""


def notebook(placement: Placement) -> str:
    """HTML for a cell's output. Its picture needs matplotlib."""
    p = placement
    devices = [
        [
            joined(_swatch(name), name),
            f"{t.ops:,}",
            format_ns(t.time_ns),
            format_bytes(t.peak_bytes),
            format_bytes(t.limit_bytes) if t.limit_bytes >= 0 else "none",
        ]
        for name, t in p.totals.items()
    ]
    copies = f"{len(p.transfers)} transfers, {format_bytes(p.copied_bytes)}, {format_ns(p.transfer_ns)} per step"
    parts: list[str] = [
        joined(bold(p.graph.name), f": {headline(p)}"),
        html_table(["device", "ops", "time", "peak memory", "limit"], devices),
        folded("other placements", *_others(p), f"{ops_on_machine(p)}; {copies}; {optimality(p)}"),
    ]
    if p.notes:
        parts.append(folded(f"notes: {len(p.notes)}", listed(p.notes)))
    with suppress(OptionError):  # without matplotlib
        parts.append(folded("what runs where", _picture(p)))
    return stacked(*parts)


def _others(p: Placement) -> list[Html]:
    """The table of baselines and, after a race, that of the candidates."""
    rows = [
        [bold("this plan"), format_ns(p.step_time_ns), format_ns(p.total_cost_ns), ""],
        *(
            [BASELINE_NAMES.get(name, name), format_ns(b.step_time_ns), format_ns(b.total_cost_ns), against(p, b)]
            for name, b in p.baselines.items()
        ),
    ]
    tables = [html_table(["placement", "step time", "total cost", ""], rows)]
    if p.verdict is not None:
        tables.append(joined(html_table(VERDICT_HEAD, p.verdict.rows), p.verdict.cost))
    return tables


def _swatch(device: str) -> Html:
    fill, line = colour(device)
    box = "display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:3px"
    return Html(f'<span style="{box};background:{fill};border:1.5px solid {line}"></span>')


def _picture(placement: Placement) -> Html:
    """The view "svg" with few boxes, reduced to `MAX_PIXELS`."""
    drawn = svg(placement, boxes=MAX_BOXES)
    start = drawn.index("<svg")
    width, height = (float(re.search(rf'\b{side}="([\d.]+)pt"', drawn[start:])[1]) for side in ("width", "height"))  # type: ignore[index]
    pixels = round(width * min(1.0, MAX_PIXELS / max(width, height)))
    return Html(drawn[start:].replace("<svg ", f'<svg style="background:#fff;width:{pixels}px;max-width:100%;height:auto" ', 1))
