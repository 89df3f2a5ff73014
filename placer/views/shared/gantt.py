"""A schedule as a Gantt chart in SVG: a row for each thread, stream and link, and a bar for each op and copy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from placer.common.escaping import markup, one_line
from placer.common.units import format_ns
from placer.plan.spans import Span
from placer.views.shared.colours import CROSSING, QUIET, colour
from placer.views.shared.tracks import COPIES

ROW, BAR, HEAD, FOOT, LEFT, RIGHT = 22, 16, 30, 26, 150, 20
"""In pixels: height of a row and of a bar in it; room above and below the rows, and beside them for their names."""
LETTER = 6.5
"""Width of a letter, in pixels."""
MIN_BAR = 1.0
"""Bars narrower than this, in pixels, are drawn as one with the bars beside them."""
FONT = 'font-family="sans-serif" font-size="11"'
TICKS = 8
"""Limit of the number of ticks."""


class Picture(str):
    """SVG text that a notebook shows as a picture."""

    def _repr_svg_(self) -> str:
        return str(self)


def gantt(spans: Sequence[Span], *, title: str, width: int) -> Picture:
    """Draws spans of time.

    Args:
        spans: a track is a row; rows are in the order in which their spans come first.
        title: the line above the chart.
        width: of the picture, in pixels.
    """
    rows: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        rows.setdefault((span.process, span.track), []).append(span)
    last_ns = max((span.end_ns for span in spans), default=0)
    px_per_ns = (width - LEFT - RIGHT) / max(1, last_ns)
    bottom = HEAD + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + FOOT}" {FONT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="6" y="18" font-size="13">{markup(one_line(title))}</text>',
    ]
    for at_ns in _ticks(last_ns):
        x = LEFT + at_ns * px_per_ns
        parts.append(f'<line x1="{x:.1f}" y1="{HEAD}" x2="{x:.1f}" y2="{bottom}" stroke="{QUIET}" stroke-width="0.5"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{format_ns(at_ns)}</text>')
    for k, ((process, track), row) in enumerate(rows.items()):
        y = HEAD + ROW * k
        label = track if process == COPIES else f"{process} {track}"
        parts.append(f'<text x="{LEFT - 6}" y="{y + 15}" text-anchor="end">{markup(_cut(label, LEFT - 12))}</text>')
        fill, line = ("#f6d5d1", CROSSING) if process == COPIES else colour(process)
        for name, start_ns, end_ns in _bars(row, MIN_BAR / px_per_ns):
            x, length = LEFT + start_ns * px_per_ns, max(MIN_BAR, (end_ns - start_ns) * px_per_ns)
            tip = f"{one_line(name)}: {format_ns(end_ns - start_ns)} from {format_ns(start_ns)}"
            parts.append(
                f'<rect x="{x:.1f}" y="{y + (ROW - BAR) // 2}" width="{length:.1f}" height="{BAR}" fill="{fill}" stroke="{line}" '
                f'stroke-width="0.6"><title>{markup(tip)}</title></rect>'
            )
            if length > 4 * LETTER:
                parts.append(f'<text x="{x + 3:.1f}" y="{y + 15}" pointer-events="none">{markup(_cut(name, length - 6))}</text>')
    return Picture("\n".join([*parts, "</svg>\n"]))


def _bars(row: list[Span], min_ns: float) -> Iterator[tuple[str, int, int]]:
    """The bars of a row: name, start and end. Spans shorter than `min_ns` that are no further apart are joined."""
    joined: list[Span] = []
    for span in sorted(row, key=lambda span: span.start_ns):
        short = span.end_ns - span.start_ns < min_ns
        if joined and not (short and span.start_ns - joined[-1].end_ns < min_ns):
            yield _joined(joined)
            joined = []
        if short:
            joined.append(span)
        else:
            yield span.name, span.start_ns, span.end_ns
    if joined:
        yield _joined(joined)


def _joined(spans: list[Span]) -> tuple[str, int, int]:
    name = spans[0].name if len(spans) == 1 else f"{len(spans)} from {spans[0].name} to {spans[-1].name}"
    return name, spans[0].start_ns, spans[-1].end_ns


def _ticks(last_ns: int) -> Iterator[int]:
    """Round times from 0 to the last one: 1, 2 or 5 times a power of ten apart."""
    if last_ns <= 0:
        return iter((0,))
    scale = 10 ** math.floor(math.log10(last_ns / TICKS)) if last_ns > TICKS else 1
    step = next(step for step in (scale, 2 * scale, 5 * scale, 10 * scale) if last_ns / step <= TICKS)
    return iter(range(0, last_ns + 1, int(step)))


def _cut(text: str, pixels: float) -> str:
    """The text in one line, cut where it is wider than so many pixels."""
    letters, text = int(pixels / LETTER), one_line(text)
    return text if len(text) <= letters else text[: max(1, letters - 1)] + "…"
