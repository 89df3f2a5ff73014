"""Records as SVG pictures: performance profiles, and the gap over time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placer.common.gap import relative_gap
from placer.errors import OptionError
from placer.research.arena.records import Record
from placer.research.arena.scores import fits, performance_profiles, scored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MIN_DRAWN_GAP = 1e-4
"""The lower end of the logarithmic scale of gaps. Smaller gaps are drawn here."""
COLUMNS = 3


def profiles(records: Sequence[Record], others: Sequence[Record] = ()) -> str:
    """See `Comparison.profiles`."""
    figure = _figure(7.0, 4.4)
    axes = figure.add_subplot()
    steps = performance_profiles(records, others)
    ratios = [ratio for profile in steps.values() for ratio, _ in profile if np.isfinite(ratio)]
    last = max(1.05, max(ratios, default=1.0) * 1.05)
    ends = {label: profile[-1][1] if profile else 0.0 for label, profile in steps.items()}
    for k, label in enumerate(sorted(steps, key=lambda label: -ends[label])):
        profile = [step for step in steps[label] if np.isfinite(step[0])]
        x = [1.0, *(ratio for ratio, _ in profile), last]
        y = [0.0, *(share for _, share in profile), profile[-1][1] if profile else 0.0]
        axes.step(x, y, where="post", label=label, lw=1.4, ls=("-", "--", ":")[k // 10 % 3])
    axes.set(
        xscale="log", xlim=(1, last), ylim=(0, 1.02), xlabel="within this factor of the best answer", ylabel="share of problems"
    )
    if steps:
        figure.legend(loc="outside right center", fontsize=7)
    return _svg(figure)


def gaps(records: Sequence[Record], others: Sequence[Record] = ()) -> str:
    """See `Comparison.gaps`."""
    problems = scored(records, others)
    rows = max(1, -(-len(problems) // COLUMNS))
    columns = min(COLUMNS, max(1, len(problems)))
    figure = _figure(4.2 * columns, 0.6 + 3.0 * rows)
    names = list(dict.fromkeys(run["solver"] + run["options"] for run in records))
    drawn: dict[str, Any] = {}
    for k, problem in enumerate(problems):
        axes: Any = figure.add_subplot(rows, columns, k + 1)
        axes.set_title(f"{problem.problem}, {problem.record['objective']}", fontsize=8)
        for number, name in enumerate(names):
            points: dict[float, tuple[list[float], list[float]]] = {}
            for score in problem.scores:
                for run in score.runs:
                    if run["solver"] + run["options"] == name and fits(run) and score.bound_ns:
                        seconds, values = points.setdefault(run["time_limit_s"], ([], []))
                        seconds.append(run["seconds"])
                        values.append(max(MIN_DRAWN_GAP, relative_gap(run["objective_ns"], score.bound_ns)))
            at = sorted((float(np.median(seconds)), float(np.median(values))) for seconds, values in points.values())
            if at:
                style = {"color": f"C{number % 10}", "marker": "os^vD"[number // 10 % 5], "ms": 4, "lw": 1.2}
                (drawn[name],) = axes.plot([x for x, _ in at], [y for _, y in at], **style)
        axes.set(xscale="log", yscale="log", ylim=(MIN_DRAWN_GAP / 1.5, 1.5), xlabel="seconds", ylabel="gap to the best bound")
        axes.tick_params(labelsize=7)
    if drawn:
        figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=min(6, max(1, len(drawn))), fontsize=7)
    return _svg(figure)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError("drawing needs matplotlib, which is not installed: pip install matplotlib.") from error
    return Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure) -> str:
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "placer", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
