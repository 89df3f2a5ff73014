"""A placement in a notebook: its figures, devices, baselines and notes, and a picture if matplotlib is installed."""

from __future__ import annotations

from placer.common.escaping import markup
from placer.common.units import format_bytes, format_ns
from placer.errors import OptionError
from placer.plan.parts import BASELINE_NAMES
from placer.plan.placement import Placement
from placer.views.shared.colours import colour
from placer.views.shared.words import VERDICT_HEAD, against, end_of_race, headline, optimality, verdict_rows
from placer.views.svg import svg

MAX_BOXES = 14
_LEFT, _RIGHT = 'style="text-align:left;padding:2px 8px"', 'style="text-align:right;padding:2px 8px"'


def notebook(placement: Placement) -> str:
    """HTML for a cell's output. It inherits the notebook's colours, so it suits a dark theme too."""
    p = placement
    devices = []
    for name, t in p.totals.items():
        limit = format_bytes(t.limit_bytes) if t.limit_bytes >= 0 else "none"
        devices.append([_swatch(name) + markup(name), f"{t.ops:,}", format_ns(t.time_ns), format_bytes(t.peak_bytes), limit])
    baselines = [
        [markup(BASELINE_NAMES.get(name, name)), format_ns(b.step_time_ns), format_ns(b.total_cost_ns), markup(against(p, b))]
        for name, b in p.baselines.items()
    ]
    copies = f"{len(p.transfers)} transfers, {format_bytes(p.copied_bytes)}, {format_ns(p.transfer_ns)} per step"
    parts = [
        f"<b>{markup(p.graph.name)}</b>: {markup(headline(p))}",
        f"{len(p.ops):,} ops on {markup(p.machine)}; {copies}; {markup(optimality(p))}",
        _table(["device", "ops", "time", "peak memory", "limit"], devices),
        _table(
            ["placement", "step time", "total cost", ""],
            [["<b>this plan</b>", format_ns(p.step_time_ns), format_ns(p.total_cost_ns), ""], *baselines],
        ),
    ]
    if p.verdict is not None:
        rows = [[markup(cell) for cell in row] for row in verdict_rows(p.verdict)]
        parts.append(_table(list(VERDICT_HEAD), rows) + markup(end_of_race(p.verdict)))
    if p.notes:
        items = "".join(f"<li>{markup(note)}</li>" for note in p.notes)
        parts.append(f"<details><summary>notes: {len(p.notes)}</summary><ul>{items}</ul></details>")
    try:
        drawn = svg(p, boxes=MAX_BOXES)
        fitting = drawn[drawn.index("<svg") :].replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
        picture = f'<div style="background:#fff;max-width:760px">{fitting}</div>'
        parts.append(f"<details open><summary>what runs where</summary>{picture}</details>")
    except OptionError:  # without matplotlib
        pass
    return "".join(f'<div style="margin:4px 0">{part}</div>' for part in parts)


def _swatch(device: str) -> str:
    fill, line = colour(device)
    box = "display:inline-block;width:10px;height:10px;margin-right:6px;border-radius:3px"
    return f'<span style="{box};background:{fill};border:1.5px solid {line}"></span>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    last = len(head) - 1 if not head[-1] else -1

    def cells(row: list[str], tag: str) -> str:
        return "".join(f"<{tag} {_LEFT if k in (0, last) else _RIGHT}>{cell}</{tag}>" for k, cell in enumerate(row))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"
