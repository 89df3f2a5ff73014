"""Writes docs/accuracy.md, docs/data/accuracy.md and their plots from the step times recorded in tests/data.

    python -m tests.benchmarks.ablation
    python -m tests.benchmarks.accuracy

Needs no TensorFlow. What is predicted is what the models in this checkout say; nothing is measured. The first command, which
takes minutes, writes the table of terms, which the second one reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cost_models import analytic
from cost_models.analytic import AnalyticModel
from cost_models.ops import OpType, View
from cost_models.ops.work import by_bytes
from placer.plan.doubt import doubts
from placer.problem import data_flow, lifetimes
from tests.benchmarks.ablation import TABLE, without
from tests.benchmarks.accuracy_plots import Points, errors_plot, scatter
from tests.benchmarks.chosen import Choice, choices
from tests.benchmarks.left_out import (
    DATA,
    KINDS,
    SETS,
    Outcome,
    by_workload,
    differ,
    measured_by,
    model_without,
    outcomes,
    records,
    score_of,
)
from tests.benchmarks.markdown import table
from tests.benchmarks.recorded import Peak, gpu_peaks, repeated
from tests.benchmarks.scoring import NOISE, Score

ROOT = Path(__file__).parents[2]
PAGES = {
    ROOT / "docs" / "accuracy.md": Path(__file__).with_name("accuracy_page.md"),
    ROOT / "docs" / "data" / "accuracy.md": Path(__file__).with_name("accuracy_data.md"),
}
"""The pages, and their texts with a name in braces for each figure."""
IMAGES = ROOT / "docs" / "images"
MIN_PLACEMENTS = 10
"""An op type in fewer placements has no row."""
SCORES = "rank | median | 90%"


# -- tables --------------------------------------------------------------------------------------------------------------


def cells(each: Score) -> str:
    if not each.placements:
        return " |  | "
    rank = f"{each.rank_correlation:.2f}" if each.spread > 1.1 else ""
    return f"{rank} | {each.median_error:.0%} | {each.error_90:.0%}"


def overall(models: dict[str, dict[str, list[Outcome]]]) -> Iterator[str]:
    """A row for each machine and model."""
    for machine in SETS:
        for name, found in models.items():
            group = found[machine]
            inside = [score_of(each).rank_correlation for each in by_workload(group).values() if differ(each)]
            low = sum(rank < 0.9 for rank in inside)
            score = score_of(group)
            figures = f"{score.rank_correlation:.3f} | {np.mean(inside):.2f} | {low} of {len(inside)}"
            yield f"{machine} | {name} | {score.placements} | {figures} | {score.median_error:.0%} | {score.error_90:.0%}"


def by_kind(models: dict[str, dict[str, list[Outcome]]]) -> Iterator[str]:
    """A row for each kind of placement: errors of each model over all machines."""
    groups: dict[str, Callable[[Outcome], bool]] = {kind: lambda each, kind=kind: each.kind == kind for kind in KINDS}  # type: ignore[misc]
    groups["all plans"] = lambda each: each.label in ("plan", "moved")
    for kind, belongs in groups.items():
        row = []
        for found in models.values():
            errors = np.array([each.error for machine in SETS for each in found[machine] if belongs(each)])
            row.append(f"{np.median(errors):+.0%} | {np.median(np.abs(errors)):.0%} | {np.percentile(np.abs(errors), 90):.0%}")
        count = sum(belongs(each) for machine in SETS for each in next(iter(models.values()))[machine])
        yield f"{kind} | {count} | " + " | ".join(row)


def workloads(models: dict[str, dict[str, list[Outcome]]], measured: dict[str, list[Outcome]]) -> Iterator[str]:
    """A row for each workload on each machine."""
    for machine in SETS:
        rounds = {record["workload"]: f"{repeated(record):.2f}" for _, record in records(machine)}
        groups = [by_workload(found[machine]) for found in (*models.values(), measured)]
        for key in groups[0]:
            scores = [score_of(group.get(key, [])) for group in groups]
            first = f"{machine} | {key[1]} | {scores[0].placements} | {scores[0].spread:.1f} | {rounds[key[1]]}"
            yield f"{first} | " + " | ".join(cells(score) for score in scores)


def op_types(auto: list[Outcome]) -> Iterator[str]:
    """How far steps are off in which an op type takes a large part, by its part of all op time of a device."""
    parts: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for each in auto:
        shares: dict[tuple[str, str], float] = defaultdict(float)
        for op, device, nanoseconds in each.prediction.op_times():
            shares[op, device.partition(":")[0]] += nanoseconds
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
    for each in sorted(auto, key=lambda each: -abs(np.log(each.predicted / each.measured)))[:16]:
        times = f"{each.measured / 1e6:.2f} | {each.predicted / 1e6:.2f} | {each.error:+.0%}"
        yield f"{each.machine} | {each.workload} | {each.label} | {each.kind} | {times}"


def chosen_rows(chosen: list[Choice]) -> Iterator[str]:
    """A row for each choice that is not TensorFlow's default."""
    for each in chosen:
        if each.gain > 1:
            plan, default, best = each.plan, each.default, each.best
            measured = f"{plan.nearest.measured / 1e6:.2f}" if plan.is_measured else "never measured"
            times = f"{plan.predicted_ns / 1e6:.2f} | {measured} | {default.measured / 1e6:.2f} | {best.measured / 1e6:.2f}"
            used = "the plan" if each.unraced is plan else each.unraced.kind
            yield f"{default.machine} | {default.workload} | {plan.kind} | {each.gain:.2f} | {times} ({best.label}) | {used}"


def chosen_errors(chosen: list[Choice]) -> str:
    """A sentence on the errors of the plans that are not TensorFlow's default and were measured."""
    plans = [each.plan for each in chosen if each.gain > 1]
    errors = [each.predicted_ns / each.nearest.measured - 1 for each in plans if each.is_measured]
    return (
        f"{len(errors)} of the {len(plans)} were measured. The median of their errors is {np.median(np.abs(errors)):.0%}, "
        f"and that of their signed errors {np.median(errors):+.0%}."
    )


def doubt_rows() -> Iterator[str]:
    for kind, doubt in doubts().items():
        yield f"{kind} | {doubt.low:.2f} | {doubt.high:.2f} | {doubt.gain:.2f}"


def unraced_rows(chosen: list[Choice]) -> Iterator[str]:
    """How good the plan is, and what calls run that do not race: against the fastest recorded placement, and the default."""
    for name in ("plan", "unraced"):
        measured = [(getattr(each, name).nearest.measured, each) for each in chosen if getattr(each, name).is_measured]
        near = sum(ns <= 1.1 * each.best.measured for ns, each in measured)
        slower = [ns / each.default.measured - 1 for ns, each in measured if ns > 1.05 * each.default.measured]
        most = f"{len(slower)}, by up to {max(slower):.0%}" if slower else "none"
        what = {"plan": "the plan", "unraced": "what calls run without a race"}[name]
        yield f"{what} | {len(measured)} of {len(chosen)} | {near} ({near / len(measured):.0%}) | {most}"


# -- memory --------------------------------------------------------------------------------------------------------------

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
    groups: dict[str, list[Peak]] = defaultdict(list)
    for peak in peaks:
        groups[peak.workload].append(peak)
    for name, group in groups.items():
        default = next(peak for peak in group if peak.label == "default")
        errors = [peak.error for peak in group]
        sizes = f"{default.measured / 1e6:.2f} | {default.estimate / 1e6:.2f} | {default.error:+.0%}"
        yield f"{name} | {sizes} | {len(group)} | {np.median(errors):+.0%} | {min(errors):+.0%} | {max(errors):+.0%}"


def memory_effects(peaks: list[Peak]) -> Iterator[str]:
    yield f"nothing left out | {memory_row(peaks)}"
    for name, module, where, instead in MEMORY_EFFECTS:
        with without(module, where, instead):
            yield f"{name} | {memory_row(list(gpu_peaks(DATA / 'recorded_h100')))}"


def memory_elsewhere() -> Iterator[str]:
    for folder in SETS["H200"]:
        held = list(gpu_peaks(DATA / folder))
        yield f"{folder} | {len(held)} | {memory_row(held)}"


# -- the page ------------------------------------------------------------------------------------------------------------


def main() -> None:
    auto = {machine: outcomes(machine, model_without) for machine in SETS}
    formulas = {machine: outcomes(machine, lambda folder, name: AnalyticModel()) for machine in SETS}
    measured = {machine: outcomes(machine, lambda folder, name: measured_by(folder)) for machine in SETS}
    grappler = {machine: [each.by_grappler() for each in found if each.grappler is not None] for machine, found in auto.items()}
    models = {"`auto`": auto, "analytic": formulas, "Grappler": grappler}
    every = [each for found in auto.values() for each in found]
    chosen = [each for found in auto.values() for each in choices(found)]
    held = list(gpu_peaks(DATA / "recorded_h100"))
    figures = {
        "placements": len(every),
        "workloads": len({each.workload for each in every}),
        "median": f"{score_of(every).median_error:.0%}",
        "high": f"{score_of(every).error_90:.0%}",
        "rank": f"{score_of(every).rank_correlation:.2f}",
        "memory_median": memory_row(held).partition(" | ")[0],
        "noise": f"{NOISE:.1%}",
        "overall": table(
            "machine | model | placements | rank | mean rank within workloads | below 0.9 | median error | 90% of errors under",
            overall(models),
        ),
        "by_kind": table(
            "placement | number | auto: signed | median | 90% | analytic: signed | median | 90% "
            "| Grappler: signed | median | 90%",
            by_kind(models),
        ),
        "chosen_defaults": sum(each.gain <= 1 for each in chosen),
        "choices": len(chosen),
        "chosen": table(
            "machine | workload | kind | predicted gain | predicted ms | measured ms | default ms | fastest recorded ms "
            "| used without a race",
            chosen_rows(chosen),
        ),
        "chosen_errors": chosen_errors(chosen),
        "doubts": table("kind of placement | low | high | gain", doubt_rows()),
        "without_race": table(
            "placement | measured | at most 10% slower than the fastest recorded | more than 5% slower than the default",
            unraced_rows(chosen),
        ),
        "measured_overall": table(
            "machine | model | placements | rank | mean rank within workloads | below 0.9 | median error | 90% of errors under",
            overall({"every op measured": measured}),
        ),
        "by_workload": table(
            "machine | workload | placements | spread | rounds | auto: rank | median | 90% | analytic: rank | median | 90% "
            "| Grappler: rank | median | 90% | ops measured: rank | median | 90%",
            workloads(models, measured),
        ),
        "effects": TABLE.read_text().rstrip(),
        "op_types": table("op type | device | placements | mean share of op time | weighted error of the steps", op_types(every)),
        "peaks": len(held),
        "memory": table(
            "workload | default: measured MB | estimate MB | error | placements | median error | lowest | highest",
            memory_by_workload(held),
        ),
        "memory_effects": table("left out | median error | within 15% | at most 5% too low", memory_effects(held)),
        "memory_elsewhere": table("records | placements | median error | within 15% | at most 5% too low", memory_elsewhere()),
        "worst": table("machine | workload | placement | kind | measured ms | predicted ms | error", worst(every)),
    }
    for page, text in PAGES.items():
        page.write_text(text.read_text().format(**figures))
    points: Points = {
        name: [(each.measured, each.predicted) for machine in SETS for each in found[machine]]
        for name, found in zip(("other ops measured", "formulas alone", "TensorFlow's own"), models.values(), strict=True)
    }
    (IMAGES / "accuracy.svg").write_text(scatter(points))
    (IMAGES / "accuracy_errors.svg").write_text(errors_plot(points))


if __name__ == "__main__":
    main()
