"""Writes docs/data/published.md from the results in tests/data/published.json.

    python -m tests.benchmarks.published_tables
    python -m tests.benchmarks.published_tables published.json

The second command first puts the results of `bench_published` in that file in the place of the recorded ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.markdown import table

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "tests" / "data" / "published.json"
PAGE = ROOT / "docs" / "data" / "published.md"
TEXT = Path(__file__).with_name("published_data.md")
"""The page, with a name in braces for each table."""

TABLES = ("max_load", "latency", "total_cost", "intra_operator")
INTRA_OPERATOR = {
    "A": (6_548_640_000, 6_513_810_000, 60.0),
    "B": (532_843, 532_843, 60.0),
    "G": (217_039, 216_931, 120.0),
    "K": (2_274_280_000, 2_065_620_000, 180.0),
    "M": (49_928_500_000, 49_407_400_000, 180.0),
}
"""The best score of the contest, the bound known, the time limit in seconds."""

MAX_LOAD = {
    "LayerGraphs/bert24_inference": (17.715, 16.15),
    "LayerGraphs/bert24_training": (39.790, 39.790),
    "LayerGraphs/gnmt_inference": (31.687, 30.34),
    "LayerGraphs/gnmt_training": (88.462, 86.11),
    "LayerGraphs/inceptionv3_inference": (51.552, 50.98),
    "LayerGraphs/inceptionv3_training": (118.371, 116.51),
    "LayerGraphs/resnet50_inference": (33.775, 33.02),
    "LayerGraphs/resnet50_training": (77.256, 75.80),
    "OperatorGraphs/bert_L-12_training": (391.828, 313.02),
    "OperatorGraphs/bert_l-12_inference": (147.478, 106.36),
    "OperatorGraphs/bert_l-3_inference": (21.908, 21.908),
    "OperatorGraphs/bert_l-3_training": (54.207, 54.207),
    "OperatorGraphs/bert_l-6_inference": (29.383, 25.45),
    "OperatorGraphs/bert_l-6_training": (71.642, 63.39),
    "OperatorGraphs/resnet50_inference": (124.349, 124.349),
    "OperatorGraphs/resnet50_training": (255.194, 113.33),
}
"""The best known max load and lower bound."""
LATENCY = {
    "LayerGraphs/bert24_inference": (100.218, 100.218),
    "LayerGraphs/gnmt_inference": (225.648, 0.0),
    "LayerGraphs/inceptionv3_inference": (865.519, 0.0),
    "LayerGraphs/resnet50_inference": (1014.927, 0.0),
    "OperatorGraphs/bert_l-12_inference": (867.839, 0.0),
    "OperatorGraphs/bert_l-3_inference": (408.475, 0.0),
    "OperatorGraphs/bert_l-6_inference": (444.020, 0.0),
    "OperatorGraphs/resnet50_inference": (839.536, 0.0),
}
TOTAL_COST = {
    "LayerGraphs/gnmt_training": (812.14, 812.14),
    "LayerGraphs/inceptionv3_training": (1605.89, 1603.42),
    "OperatorGraphs/bert_L-12_training": (13270.48, 13157.97),
    "OperatorGraphs/bert_l-12_inference": (4951.94, 4830.11),
    "OperatorGraphs/bert_l-3_inference": (500.25, 500.25),
    "OperatorGraphs/bert_l-6_inference": (778.15, 773.69),
    "OperatorGraphs/resnet50_inference": (2276.75, 2264.91),
    "OperatorGraphs/resnet50_training": (4855.81, 4746.75),
}
"""At half of the bytes."""


Key = tuple[str, str, float, str]
"""Table, instance, share and method of a record."""


@dataclass(frozen=True, slots=True)
class Record:
    """One instance solved one way. Milliseconds, or the costs of the contest, recomputed from the file."""

    table: str
    instance: str
    share: float
    method: str
    value: float
    bound: float
    seconds: float

    @property
    def key(self) -> Key:
        return self.table, self.instance, self.share, self.method

    @property
    def gap(self) -> float:
        return max(0.0, 1 - self.bound / self.value)


def main() -> None:
    if sys.argv[1:]:
        write(RECORDS, (read(RECORDS) | read(Path(sys.argv[1]))).values())
    PAGE.write_text(page())


def read(path: Path) -> dict[Key, Record]:
    records = [Record(**entry) for entry in json.loads(path.read_text())]
    return {record.key: record for record in records}


def write(path: Path, records: Iterable[Record]) -> None:
    """A line for each record."""
    lines = (json.dumps(asdict(record)) for record in sorted(records, key=lambda record: record.key))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def page() -> str:
    done = read(RECORDS)
    return TEXT.read_text().format(
        max_load=rows(done, "max_load", MAX_LOAD),
        latency=rows(done, "latency", LATENCY),
        half=rows(done, "total_cost", TOTAL_COST, 0.5),
        quarter=rows(done, "total_cost", {}, 0.25),
        three_quarters=rows(done, "total_cost", {}, 0.75),
        intra_operator=contest_rows(done),
    )


def rows(done: Mapping[Key, Record], name: str, best: Mapping[str, tuple[float, float]], share: float = 1.0) -> str:
    """A row for each instance of a table."""
    lines = []
    for (of, instance, at, method), ours in sorted(done.items()):
        if (of, at, method) == (name, share, "placer"):
            value, bound = best.get(instance, (0.0, 0.0))
            plain = done.get((of, instance, at, "cp_sat"))
            lines.append(
                f"{instance.replace('Graphs', '')} | {known(value)} | {known(bound)} "
                f"| **{ours.value:.3f}** | {ours.bound:.3f} | {ours.gap:.2%} | {ours.seconds:.0f} "
                f"| {f'{plain.value:.3f} | {plain.bound:.3f}' if plain else ' | '}"
            )
    return table("instance | best known | its bound | placer | bound | gap | s | plain CP-SAT | its bound", lines)


def known(value: float) -> str:
    return f"{value:.3f}" if value else ""


def contest_rows(done: Mapping[Key, Record]) -> str:
    """A row for each instance of the contest."""
    lines = []
    for (of, instance, _, _), ours in sorted(done.items()):
        if of == "intra_operator":
            best, bound, limit = INTRA_OPERATOR[instance]
            lines.append(
                f"{instance} | {best:,} | {bound:,} | **{ours.value:,.0f}** | {ours.value / best - 1:+.4%} "
                f"| {ours.bound:,.0f} | {ours.gap:.2%} | {ours.seconds:.0f} | {limit:.0f}"
            )
    return table("instance | best score | its bound | placer | over best | bound | gap | s | limit, s", lines)


if __name__ == "__main__":
    main()
