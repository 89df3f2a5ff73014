"""The records of `bench_choice` as a Markdown table, and how they compare with what they should reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

UNCOMPILED = ("default", "all CPU", "all CPU, variables there", "plan", "plan, variables moved")
"""Ways to run a step without XLA."""
OTHERS = (*UNCOMPILED, "compiled on CPU", "compiled on GPU")
"""Ways to run a step without a race."""
CHOSEN = ("raced", "tuned")
RATIOS = ("raced / default", "raced / best uncompiled", "tuned / best")


def markdown(records: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each step: times in ms, the least of the other ways in bold, and ratios of what was chosen to them."""
    head = ["step", *OTHERS, *CHOSEN, *RATIOS]
    rows = [_row(name, record) for name, record in records.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---", *["---:"] * (len(head) - 1)], *rows))


def summary(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Geometric means, and on how many steps each aim is reached."""
    lines = []
    for label in sorted({record["set"] for record in records.values()}):
        of_set = [record for record in records.values() if record["set"] == label]
        gains = [f"{what} {_gain(of_set, names):.2f}" for what, names in _WAYS.items() if _gain(of_set, names)]
        lines.append(f"{label}, {len(of_set)} steps: geometric mean over the default: {', '.join(gains)}")
    for ratio, limit in zip(RATIOS, (1.02, 1.10, 1.05), strict=True):
        values = {name: value for name, record in records.items() if (value := ratios(record)[ratio]) is not None}
        if values:
            worst = max(values, key=lambda name: values[name])
            within = sum(value <= limit for value in values.values())
            lines.append(f"{ratio}: at most {limit} on {within} of {len(values)} steps, worst {values[worst]:.3f} ({worst})")
    races = [record["race"] for record in records.values() if record.get("race", {}).get("verdict")]
    if races:
        paid, said = (
            statistics.median(values) for values in zip(*((r["paid_s"], r["verdict"]["cost_s"]) for r in races), strict=True)
        )
        lines.append(f"{len(races)} races, median cost {paid:.2f} s beyond later calls; their verdicts say {said:.2f} s")
    return "\n".join(lines)


_WAYS = {"raced": ("raced",), "tuned": ("tuned",), "best uncompiled": UNCOMPILED, "best": OTHERS}


def ratios(record: Mapping[str, Any]) -> dict[str, float | None]:
    """The times of what was chosen, divided by those of other ways. None where one was not measured."""
    pairs = zip(RATIOS, (("raced", ("default",)), ("raced", UNCOMPILED), ("tuned", OTHERS)), strict=True)
    return {ratio: _ratio(record["ms"], chosen, others) for ratio, (chosen, others) in pairs}


def _ratio(ms: Mapping[str, float], chosen: str, others: Iterable[str]) -> float | None:
    best = _best(ms, others)
    return ms[chosen] / best if chosen in ms and best is not None else None


def _best(ms: Mapping[str, float], names: Iterable[str]) -> float | None:
    return min((ms[name] for name in names if name in ms), default=None)


def _gain(records: Iterable[Mapping[str, Any]], names: Iterable[str]) -> float:
    """Geometric mean of the default's time divided by the least time of these ways; 0 where none was measured."""
    gains = [record["ms"]["default"] / best for record in records if (best := _best(record["ms"], names)) is not None]
    return statistics.geometric_mean(gains) if gains else 0.0


def _row(name: str, record: Mapping[str, Any]) -> list[str]:
    ms, best = record["ms"], _best(record["ms"], OTHERS)
    times = [f"**{ms[way]:.3g}**" if ms.get(way) == best else f"{ms[way]:.3g}" if way in ms else "–" for way in OTHERS]
    chosen = [f"{ms[way]:.3g}" if way in ms else "–" for way in CHOSEN]
    return [name, *times, *chosen, *("–" if value is None else f"{value:.2f}" for value in ratios(record).values())]
