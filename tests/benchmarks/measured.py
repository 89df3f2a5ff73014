"""Writes docs/data/measured.md from recorded step times, without TensorFlow.

    python -m tests.benchmarks.measured

The records are those of `bench_accuracy` in `tests/data/recorded_*`, and those of `bench_fit`, `bench_keras`,
`bench_strategy` and `bench_cluster` in `tests/data/measured`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.markdown import table

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PAGE = ROOT / "docs" / "data" / "measured.md"
TEXT = Path(__file__).with_name("measured_data.md")
"""The page, with a name in braces for each table."""

Record = Mapping[str, Any]
MISSING = "–"
DEFAULT = "TensorFlow's default"
BY_HAND = {"default": DEFAULT, "all_cpu": "all CPU", "hand": "by hand", "plan": "plan"}
STEPS = BY_HAND | {"moved": "plan, variables moved"}
STRATEGY = {"default": DEFAULT, "placed": "placed", "plan": "plan"}
KERAS = ("Keras's default", "without XLA", "by a plan", "optimized")
"""The ways that each benchmark runs a step, and their columns."""
FIT = {
    "recommender": "recommender: six tables, three layers",
    "adam": "8 layers with Adam's slots",
    "giant": "one layer larger than the GPU",
    "deep": "16 layers, larger than one GPU",
    "forty": "40 layers, 60% of them on each GPU at most",
    "towers": "two towers of 8 layers",
}
"""The programs of `bench_fit`."""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    names = ("recorded_h100", "recorded_h200", "recorded_h200_field", "recorded_h200_arguments", "recorded_2xh200")
    tables = {"fit": fit(), "keras": keras(), "strategy": strategy(), "cluster": cluster()}
    return TEXT.read_text().format(**{name: steps(name) for name in names}, **tables)


def steps(folder: str) -> str:
    """A row for each step that `bench_accuracy` recorded in a folder with a plan. Ways that no step has are left out."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted((DATA / folder).glob("*.json")):
        cases = json.loads(path.read_text()).get("cases", {})
        if "plan" in cases:
            found[path.stem] = {way: median(cases[way]["rounds_ms"]) for way in STEPS if way in cases}
    ways = [way for way in STEPS if any(way in ms for ms in found.values())]
    rows = (f"{name} | {times(ms, ways)} | {ms['default'] / ms['plan']:.2f}" for name, ms in found.items())
    return table(f"step | {' | '.join(STEPS[way] for way in ways)} | default / plan", rows)


def fit() -> str:
    """A row for each program of `bench_fit`."""
    records = read("fit.json")
    rows = []
    for name, program in FIT.items():
        ways = records[f"{name}/full/seen"]
        plan = ways["plan"]
        ms = {way: record["step_ms"] for way, record in ways.items() if "step_ms" in record}
        limit = mib(plan["limit_bytes"]) if plan["limit_bytes"] else "all it has"
        peaks = (max(plan[peak][gpu] for gpu in plan["fast"]) for peak in ("predicted_peak_bytes", "peak_bytes"))
        sizes = " | ".join(mib(size) for size in (*peaks, plan["predicted_crossing_bytes"], plan["crossing_bytes"]))
        losses = difference(plan, ways["all_cpu"]) if "all_cpu" in ms else MISSING
        first = f"{program} | {len(plan['fast'])} | {limit} | {times(ms, BY_HAND, out_of_memory(ways))}"
        rows.append(f"{first} | {digits(plan['predicted_ms'])} | {sizes} | {losses} | {machine(plan)}")
    sizes = "peak MiB: predicted | measured | copies MiB: predicted | measured"
    head = f"program | GPUs | limit MiB | {' | '.join(BY_HAND.values())} | predicted ms | {sizes} | losses differ by | machine"
    return table(head, rows)


def keras() -> str:
    """A row for each model of `bench_keras`."""
    rows = [
        f"{name} | {times(record['ms'], KERAS)} | {record['used']} | {machine(record)}"
        for name, record in read("keras.json").items()
    ]
    return table(f"model | {' | '.join(KERAS)} | calls chose | machine", rows)


def strategy() -> str:
    """A row for each run of `bench_strategy`."""
    rows = []
    for path in sorted((DATA / "measured").glob("strategy_*.json")):
        ways = read(path.name)
        ms = {way: record["median_ms"] for way, record in ways.items()}
        plan = ways["plan"]
        off = max((difference(record, ways["default"]) for record in ways.values()), key=float)
        rows.append(f"{plan['replicas']} | {times(ms, STRATEGY)} | {digits(plan['predicted_ms'])} | {off} | {machine(plan)}")
    return table(f"replicas | {' | '.join(STRATEGY.values())} | predicted ms | losses differ by | machine", rows)


def cluster() -> str:
    """A row for each way of the run of `bench_cluster`."""
    record: Record = read("cluster.json")
    ways = record["ways"]
    reference = next(iter(ways.values()))
    rows = []
    for name, way in ways.items():
        predicted = digits(way["predicted_ms"]) if way["predicted_ms"] else MISSING
        peaks = [mib(size) for device, size in way["peak_bytes"].items() if "GPU" in device and size]
        times_ms = f"{digits(way['median_ms'])} | {predicted}"
        rows.append(f"{name} | {times_ms} | {', '.join(peaks) or MISSING} | {difference(way, reference)} | {machine(record)}")
    return table("way | ms | predicted ms | predicted peak of each GPU, MiB | losses differ by | machine", rows)


def read(name: str) -> dict[str, Record]:
    records: dict[str, Record] = json.loads((DATA / "measured" / name).read_text())
    return records


def machine(record: Record) -> str:
    on = record["machine"]
    return f"{len(on['gpus'])} x {on['gpus'][0]}, {on['cores']} cores, TensorFlow {on['tensorflow']}"


def times(ms: Mapping[str, float], ways: Iterable[str], without: Mapping[str, str] | None = None) -> str:
    """Cells with times in ms, the least in bold; what `without` says of ways that have none."""
    least = min(ms.values())
    cells = []
    for way in ways:
        if way not in ms:
            cells.append((without or {}).get(way, MISSING))
        else:
            cells.append(f"**{digits(ms[way])}**" if ms[way] == least else digits(ms[way]))
    return " | ".join(cells)


def digits(ms: float) -> str:
    """Three significant digits, and all digits before the point."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:#.3g}"


def out_of_memory(ways: Mapping[str, Record]) -> dict[str, str]:
    """The ways that ran out of memory."""
    said = {way: record.get("died", "") for way, record in ways.items()}
    return {way: "out of memory" for way, text in said.items() if "OOM" in text or "ResourceExhausted" in text}


def difference(record: Record, reference: Record) -> str:
    """The largest relative difference between the losses of two runs."""
    pairs = zip(record["losses"], reference["losses"], strict=True)
    return f"{max(abs(a - b) / abs(b) for a, b in pairs):.0e}".replace("0e+00", "0")


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f}"


if __name__ == "__main__":
    main()
