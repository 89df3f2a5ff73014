"""Writes docs/accuracy.md and its plots from the measured step times in tests/data/truth.

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

from cost_models import work
from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.fitted import FittedModel
from cost_models.machines import parse_machine
from cost_models.measured import MeasuredModel
from cost_models.shipped import shipped_table
from placer.problem import formulate, lifetimes
from placer.problem import schedule as simulate
from placer.problem.problem import PlacementProblem
from tests.benchmarks import bench_truth
from tests.benchmarks.bench_truth import Peak, Prediction, Score, gpu_peaks, predictions
from tests.helpers.changed import changed

ROOT = Path(__file__).parents[2]
DATA, PAGE = ROOT / "tests" / "data" / "truth", ROOT / "docs" / "accuracy.md"
ON_H200, ON_TWO = ROOT / "tests" / "data" / "truth_h200", ROOT / "tests" / "data" / "truth_two"
AT_ONCE, TWO_AT_ONCE = ROOT / "tests" / "data" / "truth_h200_once", ROOT / "tests" / "data" / "truth_two_once"
TWO_LATER = ROOT / "tests" / "data" / "truth_two_later"
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
FEWEST = 10
"""Placements that an op type must be in to be told of."""

TEXT = """# How true predictions are

{placements} placements of {workloads} workloads on one machine with an NVIDIA H100 80GB HBM3 and 16 host cores: TensorFlow's
default, all on the CPU, a hand split, the plan, other solvers' and random cuts, measured in turns in one process a workload
by `bench_truth`; the step is the median of 15 rounds. Constants are by `placer calibrate`, ops by `placer profile`, and no
step time was used for either. This page and its plots are written by `python -m tests.benchmarks.accuracy` from
[tests/data/truth](../tests/data/truth/README.md), without a GPU; a test predicts it all again.

{overall}

![predicted against measured step times](images/accuracy.svg)

![errors](images/accuracy_errors.svg)

## By workload

{by_workload}

No rank where the slowest placement takes less than 1.3 times what the quickest does. "Rounds" is how well every other round of
the measurements themselves ranks the placements as the rest of them do: where placements are alike, no prediction can do better.

## By placement

{by_kind}

## By effect

What the predictions would be if the model did not know of one of these:

{effects}

## By op type

How far the steps are off in which an op type takes part, weighted by its part of all op time there; those with most of it
first. A row does not blame the op: what is around it counts too.

{op_types}

## Memory

The most that TensorFlow's allocator held of the GPU in a step after the first, beside the estimate that limits are kept by, for
all {peaks} placements that use the GPU:

{memory}

What the estimates would be if the model did not know of one of these:

{memory_effects}

The rules come from TensorFlow's sources and from the allocations of single steps on another machine, with an H200
(`bench_memory`). What is left is cuDNN's choice, the order of what is ready at once, and the allocator's cuts. For each
convolution several algorithms are tried at its first run, which takes more than any later one, and the quickest is kept. Most of
them need image, filter and result once more, as the matrix units take them. Of a convolution that is one op with its bias and
activation, the last of the smaller detector's took both images once again here, with its network's input twice as wide not so,
and on the H200 not; another took 7.5 MB in one process there and 3.3 MB in the next. No estimate is at most 5% below one card
and 15% above the other, so the most that was seen is counted, which is too much for the larger detector. A step that lacks it
runs by an algorithm that does without, if there is one. Under one placement of that detector (greedy) algorithms seem to have
been tried in a later step. A free piece less than twice as large as what is asked for is given whole. Where TensorFlow has all of
the memory from the start, as here, that seldom matters; where it grows, in regions of doubling size, steps on the H200 held 1%
more than they asked for in the median and up to 22% (augmented convolutions), which a limit should leave. Random cuts
leave the order of ops to when copies arrive, which no estimate knows.

## On an H200

{h200_placements} placements of 15 workloads on machines with an NVIDIA H200 and 16 host cores, in
[tests/data/truth_h200](../tests/data/truth_h200/README.md), with what was measured of ops there. When the first 130 were
measured, the median error was 19% and 90% were under 41%. Profiles of some of these steps then showed what crossing control
edges cost, that loops on two devices have more of them, that a caller who waits long wakes late, and that the first op of each
type in a step takes more of the host; and `placer calibrate` took what a call with a GPU takes for what any call takes, and
what copies take at best for what they take. The LSTM's plan of then, with its counter on the GPU, took 13.6 ms where
TensorFlow's default took 11.9; the plan of now has all of the loop on the host, as total cost's had, which took 4.5.
TensorFlow's own estimates of ResNet50 are not there: time was up before the first was made.

{h200_table}

Where "rounds" is low, placements are alike: the recommender's default and its plan, the same devices, took 5.9 and 6.8 ms. The
small MLP's are not: steps that cross between devices take more than is predicted, up to a quarter.
Peaks of memory: of {h200_peaks} placements that use the GPU, {h200_memory}.

{once_placements} placements of the same workloads on one more machine of the kind, all in one go after `placer calibrate` and
90 s of `placer profile` there ([tests/data/truth_h200_once](../tests/data/truth_h200_once/README.md)). As they were measured the
median error was 15% and 90% were under 37%. Profiles of the encoder then showed that the first launch of each kernel behind a
copy takes twice as long as the next ones, 13 us and 6.4, as it does at the start of a step: what is calibrated for that is
now counted behind copies too. By that the encoder's rank rose from .79 to .96 on the machine above; here its errors fell from
29% to 23%, and its rank from .98 to .89.

{once_table}

Times there rose while placements were measured, by up to half (the encoder's default took 13 ms when it was made ready and 18 to
21 later), and with them the share that is missing. Time was up after one placement of the recommender and five of ResNet50.
Peaks of memory: of {once_peaks} placements that use the GPU, {once_memory}.

## On two GPUs

{two_placements} placements of 16 workloads on a machine with two NVIDIA H200 and 32 host cores, in one go after `calibrate`
and 65 s of `profile`, which is time for a fifth of the ops
([tests/data/truth_two_once](../tests/data/truth_two_once/README.md)):

{two_table}

- Small steps are predicted too long. What a call takes had been measured in plain graphs, where an op of its own hands on each
  result, on the default device, which is a GPU: 159 us for a call on an H200's host that takes 91 as users make it, and 12 us for
  a variable that takes 2. What a further device adds was measured of the host and the second GPU beside calls of the first. With
  calls as `placer calibrate` found them on the machine below, of the same kind, rank correlation, median error and 90% of errors
  over all placements here are: {two_calls}.
- Decoding with its loop on two devices took longer than is predicted (see below); four of its placements were measured.

Peaks of memory: of {two_peaks} GPUs of these placements, {two_memory}. What is too low are
random cuts and HEFT.

{later_placements} placements of 15 of these workloads on one more machine of the kind, calibrated as now but for two details,
with 85 s of `profile` ([tests/data/truth_two_later](../tests/data/truth_two_later/README.md)). Time was short: four to six
placements of seven workloads.

{later_table}

- Steps are predicted too short: what a call takes was the least of a few batches (82 us; calls are as quick as that in some and
  take half as long again in others, by where threads wake), and what a waiting caller takes, 141 us, left out that results come
  from a GPU later after a pause. `placer calibrate` takes the median and counts that: 327 us on the machine above.
- What is on the host behind copies takes longer than is predicted, as on one GPU: decoding, and the detectors' suppressions.

Peaks of memory: of {later_peaks} GPUs of these placements, {later_memory}.

Four of the workloads a day before, in [tests/data/truth_two](../tests/data/truth_two/README.md), calibrated but not profiled:
their ops are priced by fits to what was measured on the H100. What any call takes was measured on a GPU there.

{on_two}

## What is off most

{worst}

What profiles of these steps show of the rest:

- On a GPU Grappler fuses convolutions with what follows; the fused kernel changes the layout of its inputs and outputs, some
  ten kernels where the convolution by itself is one. On a GPU ops are measured as they are written (detectors).
- What follows a wait runs on another thread, with nothing of it in that core's caches: of a loop that crosses in each round
  small ops took 5 to 15 us on the host that take 1 to 3 in a row, products of 1 x 512 by 512 x 1536 took 50 instead of 20
  (decoding on the H200, the plan and what is like it).
- A product of 512 x 4096 by 4096 x 4096 took 34 ms on the H200's host in rows by which it is priced, and 25 in functions with
  variables, in the same process (wide MLPs).
- Memory not used lately: a product of 1 x 512 by 512 x 1536 took 60 us in a row and 120 to 220 between others (decoding).
  On a host of 32 cores, a vector times 24 matrices of 4 MiB took 158 us each with one matrix for all, 275 us with one for each.
  Taking a matrix of 213,000 strings apart took 3.0 ms in a row and
  5.5 in a step (recommender).
- The values of an axis, a permutation or of data to be sorted decide as well: reversing the columns of images took 2.0 ms,
  reversing their order, which is what was measured, 0.4. Numbers that are in order already are sorted in a tenth of the time.
- 16 products of 256 x 256 that need each other took 300 us each, with pauses or without, which is what one core takes for them,
  and 50 in a row of hundreds, which one core cannot. What waking the threads takes is counted after pauses alone.
- What no result needs still ran in placed functions where it crossed (attention training by greedy and HEFT).
- From the moment a copy is given to the driver until what waits for it is told, profiles show medians of 26 to 75 us, most of it
  until TensorFlow's poller looks: the calibrated 42 and 44 us are what the model needs. Half of a round trip, 70 us, has an op
  and the launch of a kernel in it too, which the model counts by themselves.
- A machine that others share is slower at times: the quickest of 15 rounds of small steps takes a quarter less than the median.
"""

Change = Callable[[PlacementProblem], PlacementProblem]


@dataclass(frozen=True)
class Found:
    """A placement, measured and predicted, in ns."""

    workload: str
    label: str
    measured: float
    predicted: float
    grappler: float
    prediction: Prediction

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def everything(model: CostModel, change: Change = lambda problem: problem, pageable: bool = True) -> list[Found]:
    found = []
    for path in sorted(DATA.glob("*.json")):
        record = json.loads(path.read_text())
        cases = record["cases"] if pageable else {k: {**c, "pageable": False} for k, c in record["cases"].items()}
        priced = predictions({**record, "cases": cases}, DATA, model)
        for (label, case), plain in zip(cases.items(), priced, strict=True):
            prediction = replace(plain, problem=change(plain.problem))
            measured = 1e6 * float(np.median(case["rounds_ms"]))
            found.append(Found(record["workload"], label, measured, prediction.step_ns, case["grappler_ns"], prediction))
    return found


def score(found: list[Found], predicted: Callable[[Found], float] = lambda each: each.predicted) -> Score:
    return Score.of(np.array([each.measured for each in found]), np.array([predicted(each) for each in found]))


def by(found: list[Found], key: Callable[[Found], str]) -> dict[str, list[Found]]:
    groups: dict[str, list[Found]] = defaultdict(list)
    for each in found:
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


def effects() -> Iterator[tuple[str, list[Found]]]:
    """What the predictions would be if the model did not know of something."""
    auto = auto_model()
    yield "nothing left out", everything(auto)
    yield "ops take the least that was measured, not what is typical", everything(least_model())
    yield "what a host makes is sent from pinned memory by placed functions, which it was not", everything(auto, pageable=False)
    yield "no least interval between copies", everything(auto, lambda p: changed(p, links_interval_ns=None))
    yield "threads of a CPU never sleep", everything(auto, lambda p: changed(p, devices_wake_ns=None))
    yield (
        "calls take the same whatever devices they use",
        everything(auto, lambda p: changed(p, devices_call_ns=None, devices_split_ns=0)),
    )
    yield (
        "nothing on a GPU waits for ops that tell the host how to go on",
        everything(auto, lambda p: changed(p, ops_awaited=None)),
    )
    with without(simulate, "SMALL_NS", 0):
        yield "small ops of a CPU run side by side", everything(auto)
    with without(simulate, "WIDE_NS", 10**15):
        yield "large ops of a CPU run side by side", everything(auto)
    with without(formulate, "BY_ROWS", ("none",)):
        yield "variables that are gathered from are not copied when read", everything(auto)


# -- the page ------------------------------------------------------------------------------------------------------------


def rank(each: Score) -> str:
    return f"{each.rank_correlation:.2f}" if each.spread >= 1.3 else ""


def cells(each: Score) -> str:
    if not each.placements:
        return " |  | "
    return f"{rank(each)} | {each.median_error:.0%} | {each.error_90:.0%}"


def table(head: str, rows: Iterator[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|" + "---|" * columns, *(f"| {row} |" for row in rows)])


def overall(auto: list[Found], analytic: list[Found]) -> Iterator[str]:
    yield f"measured ops (`auto`) | {cells(score(auto))}"
    yield f"analytic model alone | {cells(score(analytic))}"
    yield f"TensorFlow's own (Grappler's virtual cluster) | {cells(score(auto, lambda each: each.grappler))}"


def repeated(folder: Path) -> dict[str, str]:
    """By workload, how well the rounds rank placements as they do themselves."""
    records = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return {record["workload"]: f"{bench_truth.repeated(record):.2f}" for record in records if "cases" in record}


def workloads(auto: list[Found], analytic: list[Found]) -> Iterator[str]:
    rounds = repeated(DATA)
    formulas = by(analytic, lambda each: each.workload)
    for name, group in by(auto, lambda each: each.workload).items():
        own = score(group)
        other = score(group, lambda each: each.grappler)
        scores = " | ".join(cells(each) for each in (own, score(formulas[name]), other))
        yield f"{name} | {own.placements} | {own.spread:.1f} | {rounds[name]} | {scores}"


def placements(auto: list[Found]) -> Iterator[str]:
    for kind, group in by(auto, lambda each: KINDS.get(each.label.split("_")[0], KINDS.get(each.label, "other solvers"))).items():
        errors = [each.error for each in group]
        yield f"{kind} | {len(group)} | {np.median(errors):+.0%} | {np.median(np.abs(errors)):.0%}"


def op_types(auto: list[Found]) -> Iterator[str]:
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
    for (op, device), found in parts.items():
        share, error = np.array(found).T
        if len(found) >= FEWEST:
            rows.append(
                (float(share.sum()), f"{op} | {device} | {len(found)} | {share.mean():.0%} | {share @ error / share.sum():+.0%}")
            )
    return (row for _, row in sorted(rows, reverse=True)[:20])


def worst(auto: list[Found]) -> Iterator[str]:
    for each in sorted(auto, key=lambda each: -abs(each.error))[:12]:
        yield f"{each.workload} | {each.label} | {each.measured / 1e6:.2f} | {each.predicted / 1e6:.2f} | {each.error:+.0%}"


MEMORY_EFFECTS: tuple[tuple[str, Any, str, Any], ...] = (
    ("ops start breadth first", formulate, "breadth_first", lambda ops, src, dst: np.arange(ops)),
    ("results take the place of inputs", lifetimes, "IN_PLACE", frozenset()),
    ("views are counted once", lifetimes, "VIEWS", frozenset()),
    ("a copied variable is there twice in a loop", formulate, "_rounds_at_once", lambda ops, producer, *_: 1),
    ("constants are pushed down", formulate, "pushed_down", lambda ops, constant, op, output, kept, entries: (ops, entries)),
    ("kernels have a workspace", work, "FORMULAS", {}),
)
"""What is left out, by the name in a module that says so and what it is then."""


def memory_row(found: list[Peak]) -> str:
    errors = np.array([peak.error for peak in found])
    return f"{np.median(np.abs(errors)):.1%} | {(np.abs(errors) <= 0.15).mean():.0%} | {(errors >= -0.05).mean():.0%}"


def memory_by_workload(found: list[Peak]) -> Iterator[str]:
    for name, group in by(found, lambda each: each.workload).items():
        default = next(peak for peak in group if peak.label == "default")
        errors = [peak.error for peak in group]
        sizes = f"{default.measured / 1e6:.2f} | {default.estimate / 1e6:.2f} | {default.error:+.0%}"
        yield f"{name} | {sizes} | {len(group)} | {np.median(errors):+.0%} | {min(errors):+.0%} | {max(errors):+.0%}"


def memory_effects(found: list[Peak]) -> Iterator[str]:
    yield f"nothing left out | {memory_row(found)}"
    for name, module, where, instead in MEMORY_EFFECTS:
        with without(module, where, instead):
            yield f"{name} | {memory_row(list(gpu_peaks(DATA)))}"


def elsewhere(folder: Path, scores: Mapping[str, Any], *models: str) -> Iterator[str]:
    """By workload and in all, for each of these models."""
    rounds = repeated(folder)
    for name in [*scores["auto"]["workloads"], "all"]:
        rows = [Score(**(scores[model]["all"] if name == "all" else scores[model]["workloads"][name])) for model in models]
        yield f"{name} | {rows[0].placements} | {rounds.get(name, '')} | " + " | ".join(cells(row) for row in rows)


def figures_of(key: str, folder: Path) -> dict[str, Any]:
    """What the page tells of another machine, by the names that it has there."""
    scores, held = bench_truth.score(folder), list(gpu_peaks(folder))
    told = "the median error is {}, {} are within 15%, {} not over 5% too low"
    return {
        f"{key}_table": table(BY_MODEL, elsewhere(folder, scores, *bench_truth.MODELS)),
        f"{key}_placements": scores["auto"]["all"]["placements"],
        f"{key}_peaks": len(held),
        f"{key}_memory": told.format(*memory_row(held).split(" | ")),
    }


def with_later_calls() -> dict[str, Any]:
    """Over all placements on the first machine with two GPUs, calls taking what was calibrated on the second."""
    record = json.loads((TWO_LATER / "mlp_inference.json").read_text())
    found: dict[str, Any] = bench_truth.score(TWO_AT_ONCE, calls=parse_machine(record["machine"]))["auto"]["all"]
    return found


def main() -> None:
    auto, analytic = everything(auto_model()), everything(AnalyticModel())
    terms = list(effects())
    held = list(gpu_peaks(DATA))
    figures = {
        "placements": len(auto),
        "workloads": len({each.workload for each in auto}),
        "overall": table("| rank correlation | median error | 90% of errors under", overall(auto, analytic)),
        "by_workload": table(
            "workload | placements | spread | rounds | auto: rank | median | 90% | analytic: rank | median | 90% "
            "| Grappler: rank | median | 90%",
            workloads(auto, analytic),
        ),
        "by_kind": table("placement | how many | median error, signed | median error", placements(auto)),
        "effects": table(
            "left out | rank correlation | median error | 90% of errors under",
            (f"{name} | {cells(score(found))}" for name, found in terms),
        ),
        "op_types": table(
            "op type | device | placements | mean part of the op time there | error of the steps, by that part", op_types(auto)
        ),
        "peaks": len(held),
        "memory": table(
            "workload | default: measured MB | estimate MB | error | placements | median error | lowest | highest",
            memory_by_workload(held),
        ),
        "memory_effects": table("left out | median error | within 15% | not over 5% too low", memory_effects(held)),
        **figures_of("h200", ON_H200),
        **figures_of("once", AT_ONCE),
        **figures_of("two", TWO_AT_ONCE),
        **figures_of("later", TWO_LATER),
        "two_calls": "{rank_correlation:.2f}, {median_error:.0%}, {error_90:.0%}".format(**with_later_calls()),
        "on_two": table(
            "workload | placements | rounds | rank correlation | median error | 90% of errors under",
            elsewhere(ON_TWO, bench_truth.score(ON_TWO), "auto"),
        ),
        "worst": table("workload | placement | measured ms | predicted ms | error", worst(auto)),
    }
    PAGE.write_text(TEXT.format(**figures))
    (PAGE.parent / "images" / "accuracy.svg").write_text(scatter(auto, analytic))
    (PAGE.parent / "images" / "accuracy_errors.svg").write_text(errors_plot(auto, analytic))


# -- plots ---------------------------------------------------------------------------------------------------------------

INK, GRID = "#444", "#ddd"
HUES = ("#4477aa", "#ee6677", "#228833")
SIDE, MARGIN = 260, 46


def scatter(auto: list[Found], analytic: list[Found]) -> str:
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


def errors_plot(auto: list[Found], analytic: list[Found]) -> str:
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
