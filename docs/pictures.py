"""Draws the pictures of docs/images that no screenshot shows.

    python -m docs.pictures

Each has a white background, so that it can be read on a light page and on a dark one. Needs matplotlib.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
BLUE, ORANGE, GREEN, GREY = "#3465a4", "#e07b39", "#4e8f5b", "#8a8f98"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "placer",  # the same picture is the same file
}


def main() -> None:
    """Draws them all."""
    with plt.rc_context(STYLE):
        save(speedup(), "speedup.png")


def save(figure: Figure, name: str) -> None:
    """The figure as a file of docs/images."""
    metadata = {"Date": None} if name.endswith(".svg") else None
    figure.savefig(IMAGES / name, dpi=160, metadata=metadata, bbox_inches="tight")
    plt.close(figure)


def speedup() -> Figure:
    """The steps of users in the table of docs/race.md: TensorFlow's default divided by the step after its race."""
    page = (DOCS / "race.md").read_text()
    rows = re.findall(r"^\| (\w+)(?: \*)? \|(.*)\|$", page[page.index("| step |") :], re.MULTILINE)
    cells = {name: [cell.strip(" *") for cell in line.split("|")] for name, line in rows}
    column = cells.pop("step").index("raced")
    steps = {name: (float(row[0]), float(row[column])) for name, row in list(cells.items())[:10]}
    ordered = sorted(steps, key=lambda name: steps[name][0] / steps[name][1])
    figure, axes = plt.subplots(figsize=(8, 4))
    gains = [steps[name][0] / steps[name][1] for name in ordered]
    axes.barh([name.replace("_", " ") for name in ordered], gains, color=BLUE)
    axes.axvline(1, color="black", linewidth=1)
    for k, name in enumerate(ordered):
        default, raced = steps[name]
        axes.text(gains[k] + 0.08, k, f"{default:.3g} ms → {raced:.3g} ms", va="center", fontsize=9.5)
    axes.set_xlim(0, 1.25 * max(gains))
    axes.set_xlabel("times as fast as TensorFlow's default (higher is better)")
    return figure


if __name__ == "__main__":
    main()
