"""The plots of docs/accuracy.md, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Points: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]
"""By model, the measured and the predicted step times in ns."""

INK, GRID = "#444", "#ddd"
HUES = ("#4477aa", "#ee6677", "#228833")
SIDE, MARGIN = 260, 46


def scatter(models: Points) -> str:
    """Predicted against measured, logarithmic: a panel for each model."""
    low, high = 5.0, 9.5  # 0.1 ms to 3 s

    def at(nanoseconds: float) -> float:
        return SIDE * (min(max(math.log10(max(nanoseconds, 1)), low), high) - low) / (high - low)

    parts = []
    for k, (title, points) in enumerate(models.items()):
        left = MARGIN + k * (SIDE + 24)
        parts.append(f'<g transform="translate({left},24)"><text x="0" y="-8">{title}</text>')
        for power, label in ((5, "0.1 ms"), (6, "1 ms"), (7, "10 ms"), (8, "0.1 s"), (9, "1 s")):
            x, y = at(10**power), SIDE - at(10**power)
            parts.append(f'<path d="M{x:.0f} 0V{SIDE}M0 {y:.0f}H{SIDE}" stroke="{GRID}"/>')
            parts.append(f'<text x="{x:.0f}" y="{SIDE + 14}" text-anchor="middle">{label}</text>')
            if not k:
                parts.append(f'<text x="-4" y="{y + 4:.0f}" text-anchor="end">{label}</text>')
        parts.append(f'<path d="M0 {SIDE}L{SIDE} 0" stroke="{INK}" stroke-dasharray="3 3"/>')
        parts += [f'<circle cx="{at(m):.0f}" cy="{SIDE - at(p):.0f}" r="2.5"/>' for m, p in points]
        parts.append("</g>")
    width = MARGIN + 3 * (SIDE + 24)
    caption = f'<text x="{MARGIN}" y="{SIDE + 58}">across: measured step time; up: predicted; on the line where they agree</text>'
    return svg(width, SIDE + 66, [*parts, caption], fill=HUES[0])


def errors_plot(models: Points) -> str:
    """How many of the predictions are off by at most so much."""
    width, height = 3 * SIDE, SIDE
    parts = [f'<g transform="translate({MARGIN},16)" fill="none">']
    for tenth in range(0, 11, 2):
        x, y = width * tenth / 10, height * (1 - tenth / 10)
        parts.append(f'<path d="M{x:.0f} 0V{height}M0 {y:.0f}H{width}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:.0f}" y="{height + 14}" text-anchor="middle">{tenth * 10}%</text>')
        parts.append(f'<text x="-4" y="{y + 4:.0f}" text-anchor="end">{tenth * 10}%</text>')
    for hue, (title, pairs) in zip(HUES, models.items(), strict=True):
        errors = [abs(predicted / measured - 1) for measured, predicted in pairs]
        points = [(width * min(e, 1.0), height * (1 - (k + 1) / len(errors))) for k, e in enumerate(sorted(errors)) if e <= 1]
        parts.append(f'<path d="M0 {height}L{" ".join(f"{x:.0f} {y:.0f}" for x, y in points)}" stroke="{hue}" stroke-width="2"/>')
        place = 20 + 16 * HUES.index(hue)
        parts.append(f'<path d="M{width - 150} {place - 4}h20" stroke="{hue}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 124}" y="{place}">{title}</text>')
    parts.append(
        f'<text x="0" y="{height + 34}">across: error of a predicted step time; up: placements with at most that</text></g>'
    )
    return svg(width + 2 * MARGIN, height + 60, parts, fill=INK)


def svg(width: int, height: int, parts: list[str], fill: str) -> str:
    style = f"text{{font:11px sans-serif;fill:{INK};stroke:none}}circle{{fill:{fill};fill-opacity:.5}}"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )
