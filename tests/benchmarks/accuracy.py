"""Writes docs/accuracy.md and its plots from the step times recorded in tests/data.

    python -m tests.benchmarks.accuracy

Needs no TensorFlow. What is predicted is what the models in this checkout say; nothing is measured.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cost_models import analytic
from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.fitted import FittedModel
from cost_models.measured import MeasuredModel
from cost_models.ops import OpType, View
from cost_models.ops.work import by_bytes
from cost_models.shipped import shipped_table
from placer.problem import data_flow, formulate, lifetimes, model_tables
from placer.problem.problem import PlacementProblem
from tests.benchmarks.recorded import MODELS, Peak, Prediction, gpu_peaks, predictions, repeated
from tests.benchmarks.recorded import score as score_folder
from tests.benchmarks.scoring import MIN_RANKED_SPREAD, Score
from tests.helpers.changed import changed

ROOT = Path(__file__).parents[2]
PAGE, PAGE_TEXT = ROOT / "docs" / "accuracy.md", Path(__file__).with_name("accuracy_page.md")
"""The page, and its text with a name in braces for each figure."""
DATA, ON_H200, ON_TWO = (ROOT / "tests" / "data" / f"recorded_{machine}" for machine in ("h100", "h200", "2xh200"))
KINDS = {
    "default": "TensorFlow's default",
    "all_cpu": "all on the CPU",
    "hand": "by hand",
    "plan": "the plan",
    "random": "random cuts",
}
BY_MODEL = (
    "workload | placements | rounds | auto: rank | median | 90% | analytic: rank | median | 90% | Grappler: rank | median | 90%"
)
MIN_PLACEMENTS = 10
"""An op type in fewer placements has no row."""

Change = Callable[[PlacementProblem], PlacementProblem]


@dataclass(frozen=True)
class Outcome:
    """The measured and the predicted step times of a placement, in ns."""

    workload: str
    label: str
    measured: float
    predicted: float
    grappler: float
    prediction: Prediction

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def outcomes_of(model: CostModel, change: Change = lambda problem: problem, pageable: bool = True) -> list[Outcome]:
    outcomes = []
    for path in sorted(DATA.glob("*.json")):
        record = json.loads(path.read_text())
        cases = record["cases"] if pageable else {k: {**c, "pageable": False} for k, c in record["cases"].items()}
        priced = predictions({**record, "cases": cases}, DATA, model)
        for (label, case), plain in zip(cases.items(), priced, strict=True):
            prediction = replace(plain, problem=change(plain.problem))
            measured = 1e6 * float(np.median(case["rounds_ms"]))
            outcomes.append(Outcome(record["workload"], label, measured, prediction.step_ns, case["grappler_ns"], prediction))
    return outcomes


def score(outcomes: list[Outcome], predicted: Callable[[Outcome], float] = lambda each: each.predicted) -> Score:
    return Score.of(np.array([each.measured for each in outcomes]), np.array([predicted(each) for each in outcomes]))


def by(outcomes: list[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        groups[key(each)].append(each)
    return groups


# -- effects -------------------------------------------------------------------------------------------------------------


def least_model() -> CostModel:
    """What ops take at best, rather than typically."""
    tables = cache(shipped_table)
    return MeasuredModel(tables, FittedModel(tables, AnalyticModel()))


@contextmanager
def without(module: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def effects() -> Iterator[tuple[str, list[Outcome]]]:
    """The predictions of the model with one of its effects left out, and the name of that effect."""
    auto = auto_model()
    yield "nothing left out", outcomes_of(auto)
    yield "typical op times (with the least ones instead)", outcomes_of(least_model())
    yield "ordinary memory of tensors that the host makes in placed functions", outcomes_of(auto, pageable=False)
    yield "the least interval between copies", outcomes_of(auto, lambda p: changed(p, links_interval_ns=None))
    yield "waking the threads of a CPU", outcomes_of(auto, lambda p: changed(p, devices_wake_ns=None))
    yield (
        "call times that depend on the devices in use",
        outcomes_of(auto, lambda p: changed(p, devices_call_ns=None, devices_split_ns=0)),
    )
    yield (
        "waiting for GPU ops whose results the host needs to continue",
        outcomes_of(auto, lambda p: changed(p, ops_awaited=None)),
    )
    with without(model_tables, "SMALL_NS", 0):
        yield "small ops of a CPU run one at a time", outcomes_of(auto)
    with without(model_tables, "WIDE_NS", 10**15):
        yield "large ops of a CPU run one at a time", outcomes_of(auto)
    with without(formulate, "_with_copied_reads", list):
        yield "reads that copy a variable which is also gathered from", outcomes_of(auto)


# -- the page ------------------------------------------------------------------------------------------------------------


def rank(each: Score) -> str:
    return f"{each.rank_correlation:.2f}" if each.spread >= MIN_RANKED_SPREAD else ""


def cells(each: Score) -> str:
    if not each.placements:
        return " |  | "
    return f"{rank(each)} | {each.median_error:.0%} | {each.error_90:.0%}"


def table(head: str, rows: Iterator[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + "---|" * columns, *(f"| {row} |" for row in rows)])


def overall(auto: list[Outcome], analytic: list[Outcome]) -> Iterator[str]:
    yield f"measured ops (`auto`) | {cells(score(auto))}"
    yield f"analytic model alone | {cells(score(analytic))}"
    yield f"TensorFlow's own (Grappler's virtual cluster) | {cells(score(auto, lambda each: each.grappler))}"


def rounds_of(folder: Path) -> dict[str, str]:
    """By workload, how well the rounds rank placements as they do themselves."""
    records = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {record["workload"]: f"{repeated(record):.2f}" for record in records if "cases" in record}


def workloads(auto: list[Outcome], analytic: list[Outcome]) -> Iterator[str]:
    rounds = rounds_of(DATA)
    formulas = by(analytic, lambda each: each.workload)
    for name, group in by(auto, lambda each: each.workload).items():
        own = score(group)
        other = score(group, lambda each: each.grappler)
        scores = " | ".join(cells(each) for each in (own, score(formulas[name]), other))
        yield f"{name} | {own.placements} | {own.spread:.1f} | {rounds[name]} | {scores}"


def placements(auto: list[Outcome]) -> Iterator[str]:
    for kind, group in by(auto, lambda each: KINDS.get(each.label.split("_")[0], KINDS.get(each.label, "other solvers"))).items():
        errors = [each.error for each in group]
        yield f"{kind} | {len(group)} | {np.median(errors):+.0%} | {np.median(np.abs(errors)):.0%}"


def op_types(auto: list[Outcome]) -> Iterator[str]:
    """How far steps are off in which an op type takes a large part, by its part of all op time of a device."""
    parts: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for each in auto:
        shares: dict[tuple[str, str], float] = defaultdict(float)
        for op, device, nanoseconds in each.prediction.op_times():
            shares[op, device] += nanoseconds
        total = sum(shares.values())
        for key, taken in shares.items():
            parts[key].append((taken / total, each.error))
    rows = []
    for (op, device), pairs in parts.items():
        share, error = np.array(pairs).T
        if len(pairs) >= MIN_PLACEMENTS:
            rows.append(
                (float(share.sum()), f"{op} | {device} | {len(pairs)} | {share.mean():.0%} | {share @ error / share.sum():+.0%}")
            )
    return (row for _, row in sorted(rows, reverse=True)[:20])


def worst(auto: list[Outcome]) -> Iterator[str]:
    for each in sorted(auto, key=lambda each: -abs(each.error))[:12]:
        yield f"{each.workload} | {each.label} | {each.measured / 1e6:.2f} | {each.predicted / 1e6:.2f} | {each.error:+.0%}"


MEMORY_EFFECTS: tuple[tuple[str, Any, str, Any], ...] = (
    ("breadth-first start of ops", data_flow, "breadth_first", lambda ops, src, dst: np.arange(ops)),
    ("results in the memory of inputs", lifetimes, "entry_of", lambda op_type: OpType()),
    ("views counted once", lifetimes, "view_of", lambda op: View.NONE),
    ("a copied variable counted twice in a loop", data_flow, "_rounds_at_once", lambda ops, producer, *_: 1),
    ("constant push-down", data_flow, "pushed_down", lambda ops, constant, op, output, kept, entries: (ops, entries)),
    ("workspaces of kernels", analytic, "work_of", by_bytes),
)
"""What is left out, by the name in a module that says so and what it is then."""


def memory_row(peaks: list[Peak]) -> str:
    errors = np.array([peak.error for peak in peaks])
    return f"{np.median(np.abs(errors)):.1%} | {(np.abs(errors) <= 0.15).mean():.0%} | {(errors >= -0.05).mean():.0%}"


def memory_by_workload(peaks: list[Peak]) -> Iterator[str]:
    for name, group in by(peaks, lambda each: each.workload).items():
        default = next(peak for peak in group if peak.label == "default")
        errors = [peak.error for peak in group]
        sizes = f"{default.measured / 1e6:.2f} | {default.estimate / 1e6:.2f} | {default.error:+.0%}"
        yield f"{name} | {sizes} | {len(group)} | {np.median(errors):+.0%} | {min(errors):+.0%} | {max(errors):+.0%}"


def memory_effects(peaks: list[Peak]) -> Iterator[str]:
    yield f"nothing left out | {memory_row(peaks)}"
    for name, module, where, instead in MEMORY_EFFECTS:
        with without(module, where, instead):
            yield f"{name} | {memory_row(list(gpu_peaks(DATA)))}"


def elsewhere(folder: Path, scores: Mapping[str, Any], *models: str) -> Iterator[str]:
    """By workload and in all, for each of these models."""
    rounds = rounds_of(folder)
    for name in [*scores["auto"]["workloads"], "all"]:
        rows = [Score(**(scores[model]["all"] if name == "all" else scores[model]["workloads"][name])) for model in models]
        yield f"{name} | {rows[0].placements} | {rounds.get(name, '')} | " + " | ".join(cells(row) for row in rows)


def figures_of(key: str, folder: Path) -> dict[str, Any]:
    """The figures of another machine, by their names in the text of the page."""
    scores, held = score_folder(folder), list(gpu_peaks(folder))
    sentence = "the median error is {}; {} are within 15%, and {} are at most 5% too low"
    return {
        f"{key}_table": table(BY_MODEL, elsewhere(folder, scores, *MODELS)),
        f"{key}_placements": scores["auto"]["all"]["placements"],
        f"{key}_peaks": len(held),
        f"{key}_memory": sentence.format(*memory_row(held).split(" | ")),
    }


def main() -> None:
    auto, analytic = outcomes_of(auto_model()), outcomes_of(AnalyticModel())
    terms = list(effects())
    held = list(gpu_peaks(DATA))
    figures = {
        "auto_rank": rank(score(auto)),
        "auto_median": f"{score(auto).median_error:.0%}",
        "memory_median": memory_row(held).partition(" | ")[0],
        "placements": len(auto),
        "workloads": len({each.workload for each in auto}),
        "overall": table("| rank correlation | median error | 90% of errors under", overall(auto, analytic)),
        "by_workload": table(
            "workload | placements | spread | rounds | auto: rank | median | 90% | analytic: rank | median | 90% "
            "| Grappler: rank | median | 90%",
            workloads(auto, analytic),
        ),
        "by_kind": table("placement | number | median error, signed | median error", placements(auto)),
        "effects": table(
            "left out | rank correlation | median error | 90% of errors under",
            (f"{name} | {cells(score(outcomes))}" for name, outcomes in terms),
        ),
        "op_types": table("op type | device | placements | mean share of op time | weighted error of the steps", op_types(auto)),
        "peaks": len(held),
        "memory": table(
            "workload | default: measured MB | estimate MB | error | placements | median error | lowest | highest",
            memory_by_workload(held),
        ),
        "memory_effects": table("left out | median error | within 15% | at most 5% too low", memory_effects(held)),
        **figures_of("h200", ON_H200),
        "on_two": table(
            "workload | placements | rounds | rank correlation | median error | 90% of errors under",
            elsewhere(ON_TWO, score_folder(ON_TWO), "auto"),
        ),
        "worst": table("workload | placement | measured ms | predicted ms | error", worst(auto)),
    }
    PAGE.write_text(PAGE_TEXT.read_text().format(**figures))
    (PAGE.parent / "images" / "accuracy.svg").write_text(scatter(auto, analytic))
    (PAGE.parent / "images" / "accuracy_errors.svg").write_text(errors_plot(auto, analytic))


# -- plots ---------------------------------------------------------------------------------------------------------------

INK, GRID = "#444", "#ddd"
HUES = ("#4477aa", "#ee6677", "#228833")
SIDE, MARGIN = 260, 46


def scatter(auto: list[Outcome], analytic: list[Outcome]) -> str:
    """Predicted against measured, logarithmic: a panel for each model."""
    low, high = 5.0, 9.5  # 0.1 ms to 3 s

    def at(nanoseconds: float) -> float:
        return SIDE * (min(max(math.log10(max(nanoseconds, 1)), low), high) - low) / (high - low)

    panels = (
        ("measured ops", [(each.measured, each.predicted) for each in auto]),
        ("formulas alone", [(each.measured, each.predicted) for each in analytic]),
        ("TensorFlow's own", [(each.measured, each.grappler) for each in auto]),
    )
    parts = []
    for k, (title, points) in enumerate(panels):
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


def errors_plot(auto: list[Outcome], analytic: list[Outcome]) -> str:
    """How many of the predictions are off by at most so much."""
    width, height = 3 * SIDE, SIDE
    lines = (
        ("measured ops", [abs(each.error) for each in auto]),
        ("formulas alone", [abs(each.error) for each in analytic]),
        ("TensorFlow's own", [abs(each.grappler / each.measured - 1) for each in auto]),
    )
    parts = [f'<g transform="translate({MARGIN},16)" fill="none">']
    for tenth in range(0, 11, 2):
        x, y = width * tenth / 10, height * (1 - tenth / 10)
        parts.append(f'<path d="M{x:.0f} 0V{height}M0 {y:.0f}H{width}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x:.0f}" y="{height + 14}" text-anchor="middle">{tenth * 10}%</text>')
        parts.append(f'<text x="-4" y="{y + 4:.0f}" text-anchor="end">{tenth * 10}%</text>')
    for hue, (title, errors) in zip(HUES, lines, strict=True):
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


if __name__ == "__main__":
    main()
