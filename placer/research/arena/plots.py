"""Records as pictures: performance profiles, the gap over time, and mean ranks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from placer.common.gap import relative_gap
from placer.errors import OptionError
from placer.research.arena.records import Record, limit_text
from placer.research.arena.scores import fits, performance_profiles, scored
from placer.research.arena.statistics import LEVEL, Blocks, blocks_text, rank_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Picture: TypeAlias = Literal["svg", "pdf"]
PICTURES: tuple[Picture, ...] = ("svg", "pdf")
MIN_DRAWN_GAP = 1e-4
"""The lower end of the logarithmic scale of gaps. Smaller gaps are drawn here."""
COLUMNS = 3
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that people with any colour vision tell apart: M. Okabe, K. Ito, Color universal design, 2008."""
LINES = ("-", "--", "-.", ":")
MARKERS = "os^vD"
"""The pairs of a line and a marker differ for 20 solvers, because 4 lines and 5 markers have no common divisor."""


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By name, the colour, the line and the marker that a solver has in a picture."""
    return {
        name: {
            "color": COLOURS[k % len(COLOURS)],
            "ls": LINES[k % len(LINES)],
            "marker": MARKERS[k % len(MARKERS)],
            "ms": 4,
            "lw": 1.3,
        }
        for k, name in enumerate(dict.fromkeys(names))
    }


def profiles(records: Sequence[Record], others: Sequence[Record] = (), picture: Picture = "svg") -> bytes:
    """See `Comparison.profiles`."""
    figure = _figure(7.0, 4.4)
    axes = figure.add_subplot()
    steps = performance_profiles(records, others)
    style = styles(steps)
    ratios = [ratio for profile in steps.values() for ratio, _ in profile if np.isfinite(ratio)]
    last = max(1.05, max(ratios, default=1.0) * 1.05)
    ends = {label: profile[-1][1] if profile else 0.0 for label, profile in steps.items()}
    for label in sorted(steps, key=lambda label: -ends[label]):
        profile = [step for step in steps[label] if np.isfinite(step[0])]
        x = [1.0, *(ratio for ratio, _ in profile), last]
        y = [0.0, *(share for _, share in profile), profile[-1][1] if profile else 0.0]
        axes.step(x, y, where="post", label=label, markevery=slice(1, None), **style[label])
    axes.set(
        xscale="log", xlim=(1, last), ylim=(0, 1.02), xlabel="within this factor of the best answer", ylabel="share of problems"
    )
    if steps:
        figure.legend(loc="outside right center", fontsize=7, handlelength=3.5)
    return _drawn(figure, picture)


def gaps(records: Sequence[Record], others: Sequence[Record] = (), picture: Picture = "svg") -> bytes:
    """See `Comparison.gaps`."""
    problems = scored(records, others)
    rows = max(1, -(-len(problems) // COLUMNS))
    columns = min(COLUMNS, max(1, len(problems)))
    figure = _figure(4.2 * columns, 0.6 + 3.0 * rows)
    style = styles(run["solver"] + run["options"] for run in records)
    drawn: dict[str, Any] = {}
    for k, problem in enumerate(problems):
        axes: Any = figure.add_subplot(rows, columns, k + 1)
        axes.set_title(f"{problem.problem}, {problem.record['objective']}", fontsize=8)
        for name in style:
            points: dict[str, tuple[list[float], list[float]]] = {}
            for score in problem.scores:
                for run in score.runs:
                    if run["solver"] + run["options"] == name and fits(run) and score.bound_ns:
                        seconds, values = points.setdefault(limit_text(run), ([], []))
                        seconds.append(run["seconds"])
                        values.append(max(MIN_DRAWN_GAP, relative_gap(run["objective_ns"], score.bound_ns)))
            at = sorted((float(np.median(seconds)), float(np.median(values))) for seconds, values in points.values())
            if at:
                (drawn[name],) = axes.plot([x for x, _ in at], [y for _, y in at], **style[name])
        axes.set(xscale="log", yscale="log", ylim=(MIN_DRAWN_GAP / 1.5, 1.5), xlabel="seconds", ylabel="gap to the best bound")
        axes.tick_params(labelsize=7)
    if drawn:
        columns_of_legend = min(6, len(drawn))
        figure.legend(
            list(drawn.values()), list(drawn), loc="outside lower center", ncols=columns_of_legend, fontsize=7, handlelength=3.5
        )
    return _drawn(figure, picture)


def ranks(blocks: Blocks, picture: Picture = "svg") -> bytes:
    """See `Comparison.ranks`."""
    if blocks.untestable:
        figure = _figure(7.0, 1.0)
        figure.text(0.5, 0.5, blocks.untestable, ha="center", va="center", fontsize=8, wrap=True)
        return _drawn(figure, picture)
    test = rank_test(blocks)
    ranked = list(test.mean_rank.items())
    style = styles(blocks.labels)
    left = (len(ranked) + 1) // 2  # the better half is named at the left, the rest at the right, the worst on top
    bars = groups([rank for _, rank in ranked], test.critical_difference)
    first_bar, line = 0.35, 0.25
    first_name = first_bar + line * (len(bars) + 1)
    depth = first_name + 0.4 * left
    figure = _figure(7.0, 0.9 + 0.55 * depth)
    axes: Any = figure.add_subplot()
    for k, (name, rank) in enumerate(ranked):
        at_left = k < left
        y = first_name + 0.4 * (k if at_left else len(ranked) - 1 - k)
        end = 1 - 0.05 * len(ranked) if at_left else 1.05 * len(ranked)
        axes.plot([rank, rank, end], [0, y, y], lw=1, color=style[name]["color"], ls=style[name]["ls"])
        axes.plot([rank], [0], color=style[name]["color"], marker=style[name]["marker"], ms=5, clip_on=False, zorder=3)
        axes.annotate(
            f"{name}  {rank:.2f}", (end, y), (-4 if at_left else 4, 0), textcoords="offset points",
            va="center", ha="right" if at_left else "left", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    for k, (low, high) in enumerate(bars):
        axes.plot([low - 0.03, high + 0.03], [first_bar + line * k] * 2, lw=3.5, color="black", solid_capstyle="round")
    axes.set(xlim=(1 - 0.05 * len(ranked), 1.05 * len(ranked)), ylim=(depth, 0), yticks=[])
    axes.set_xticks(range(1, len(ranked) + 1))
    axes.xaxis.tick_top()
    for side in ("left", "right", "bottom"):
        axes.spines[side].set_visible(False)
    distance = f"critical difference {test.critical_difference:.2f} ({1 - LEVEL:.0%}, Nemenyi)"
    axes.set_title(f"mean rank over {blocks_text(test.blocks, blocks.over)}; {distance}", fontsize=8)
    return _drawn(figure, picture)


def groups(ranks: Sequence[float], distance: float) -> list[tuple[float, float]]:
    """The first and the last rank of each largest group of ascending ranks less than `distance` apart, of two or more."""
    found: list[tuple[int, int]] = []
    for first, low in enumerate(ranks):
        last = max(k for k, rank in enumerate(ranks) if rank - low < distance or k == first)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return [(ranks[first], ranks[last]) for first, last in found]


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("drawing needs matplotlib, which is not installed: pip install 'placer[research]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


def _drawn(figure: Figure, picture: Picture) -> bytes:
    """The file of a figure, the same for the same figure. Raises OptionError if there is no such kind of file."""
    import matplotlib

    if picture not in PICTURES:
        raise OptionError(f"picture={picture!r} must be one of {', '.join(PICTURES)}.")
    out = io.BytesIO()
    settings: Any = {"svg.hashsalt": "placer", "svg.fonttype": "none", "pdf.fonttype": 42}  # 42: fonts that journals accept
    with matplotlib.rc_context(settings):
        figure.savefig(out, format=picture, metadata={"Date": None} if picture == "svg" else {"CreationDate": None})
    return out.getvalue()
