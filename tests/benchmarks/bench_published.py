"""Solves the published placement problems, and compares values and bounds with the best known and a plain constraint program.

Run: python -m tests.benchmarks.bench_published [--tables max_load latency total_cost intra_operator]
[--shares 0.5] [--only NAME ...] [--cpu-time] [--out published.json]
Then: python -m tests.benchmarks.bench_published --tables --page docs/published.md
replaces the rows of the new results and keeps the other rows.

Each instance is solved by this package within the time limit of its table. Except for the contest on intra-operator
parallelism, it is then solved by one constraint program within the same limit, started from everything on the CPU. Values are
recomputed from the files (`tests/helpers/published.py`). Results are written after each instance, and a second start
continues where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import Assignment, PlacementProblem
from placer.research.instances.dnn_partitioning import load_placement, load_split
from placer.research.instances.iopddl import load_pairwise
from placer.research.pairwise.minimise import minimise_pairwise
from placer.research.splits import latency_model
from placer.research.splits.latency import minimise_latency
from placer.research.splits.max_load import minimise_max_load
from placer.research.splits.model import decide_anew
from placer.research.splits.problem import SplitProblem
from placer.solvers.primitives.cp_model import Model
from placer.solvers.registry import solver
from tests.helpers import published

TABLES = ("max_load", "latency", "total_cost", "intra_operator")
SECONDS = {"max_load": 90.0, "latency": 120.0, "total_cost": 20.0}
SHARES = (0.5, 0.25, 0.75)
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


def split(table: str, path: Path, method: str, seconds: float) -> tuple[float, float]:
    problem = load_split(path)
    if method == "placer":
        minimise = minimise_latency if table == "latency" else minimise_max_load
        found = minimise(problem, time_limit_s=seconds)
        assert found.device is not None
        device, bound = found.device, found.lower_bound_ns
    else:
        device, bound = plain_split(table, problem, seconds)
    by_node = nodes(problem, device)
    published.checked(path, by_node)
    value = published.latency(path, by_node) if table == "latency" else max(published.loads(path, by_node).values())
    return value, bound / 1e6


def plain_split(table: str, problem: SplitProblem, seconds: float) -> tuple[Ints, int]:
    start, free = np.full(problem.units, problem.accelerators), np.ones(problem.units, np.bool_)
    if table == "latency":
        found = latency_model.decide_anew(problem, start, free, seconds=seconds, seed=0)
    else:
        found = decide_anew(problem, start, free, list(range(problem.devices)), seconds=seconds, seed=0)
    return start if found.device is None else found.device, found.bound_ns


def total_cost(path: Path, method: str, seconds: float, share: float) -> tuple[float, float]:
    problem = load_placement(path, share=share)
    if method == "placer":
        found = solver("auto").solve(problem, "total_cost", time_limit_s=seconds)
        assert found.assignment is not None
        device, bound = found.assignment.device, found.lower_bound_ns
    else:
        device, bound = plain_placement(problem, seconds)
    where = (device[problem.ops.unit] - 1).tolist()
    by_node = dict(zip(published.node_ids(problem.ops.names), where, strict=True))
    published.checked(path, by_node, limit_bytes=float(problem.devices.memory_limit_bytes[1]))
    return published.total_cost(path, by_node), bound / 1e6


def plain_placement(problem: PlacementProblem, seconds: float) -> tuple[Ints, int]:
    model = Model(problem)
    model.limit_where_exceeded(Assignment(np.ones(problem.num_units, np.int64)))
    on_cpu = Assignment(np.zeros(problem.num_units, np.int64))
    _, found, bound = model.minimise(on_cpu, seconds, 0)
    return (on_cpu if found is None else found).device, bound


def intra_operator(path: Path) -> tuple[float, float, float]:
    """Value, bound and seconds, of which reading the file takes some and checking the answer none."""
    started = time.perf_counter()
    limit = INTRA_OPERATOR[contest_name(path)][2]
    problem = load_pairwise(path)
    found = minimise_pairwise(problem, time_limit_s=limit - (time.perf_counter() - started))
    seconds = time.perf_counter() - started
    assert found.choice is not None
    cost, peak, most = published.pairwise(path, found.choice.tolist())
    assert peak <= most
    return cost, found.lower_bound, seconds


def contest_name(path: Path) -> str:
    return path.name.removesuffix(".json.gz")[-1]


def nodes(problem: SplitProblem, device: Ints) -> dict[int, int]:
    """The device of each node of the file, CPUs from -1 down."""
    k = problem.accelerators
    where = np.where(device < k, device, k - 1 - device)[problem.op_unit].tolist()
    return dict(zip(published.node_ids(problem.op_names), where, strict=True))


def instances(table: str) -> list[Path]:
    if table == "intra_operator":
        return published.INTRA_OPERATOR
    if table == "latency":
        return published.LATENCY
    return [p for p in published.THROUGHPUT if table == "max_load" or f"{p.parent.name}/{p.stem}" in TOTAL_COST]


def measure(table: str, path: Path, method: str, share: float) -> tuple[float, float, float]:
    """The value, the bound, and the seconds it took."""
    if table == "intra_operator":
        return intra_operator(path)
    started = time.perf_counter()
    if table == "total_cost":
        value, bound = total_cost(path, method, SECONDS[table], share)
    else:
        value, bound = split(table, path, method, SECONDS[table])
    return value, bound, time.perf_counter() - started


def rows_of(page: str) -> list[Record]:
    """What a page says, to its digits."""
    found = []
    titles = {"## Max load": "max_load", "## Latency": "latency", "## Total cost": "total_cost"}
    table, share = "", 1.0
    for line in page.splitlines():
        table = next((name for title, name in titles.items() if line.startswith(title)), table)
        if told := re.match(r"The accelerator may hold (\d+)%", line):
            share = int(told[1]) / 100
        name, *cells = (cell.strip(" *") for cell in line.strip("| ").split("|"))
        if name in INTRA_OPERATOR:
            value, bound, seconds = (float(cells[k].replace(",", "")) for k in (2, 4, 6))
            found.append(Record("intra_operator", name, 1.0, "placer", value, bound, seconds))
        elif re.match("(Layer|Operator)/", name):
            value, bound, seconds = (float(cells[k]) for k in (2, 3, 5))
            instance, of = name.replace("/", "Graphs/"), share if table == "total_cost" else 1.0
            found.append(Record(table, instance, of, "placer", value, bound, seconds))
            if plain := cells[6:]:
                found.append(Record(table, instance, of, "cp_sat", float(plain[0]), float(plain[1]), SECONDS[table]))
    return found


def page(done: list[Record], present: str) -> str:
    """The page with these results in their rows."""
    done = rows_of(present) + done
    by = {(r.table, r.instance, r.share, r.method): r for r in done}

    def rows(table: str, share: float, best: dict[str, tuple[float, float]]) -> str:
        lines = []
        for path in instances(table):
            instance = f"{path.parent.name}/{path.stem}"
            ours, plain = (by.get((table, instance, share, method)) for method in ("placer", "cp_sat"))
            if ours is None:
                continue
            value, bound = best.get(instance, (0.0, 0.0))
            known = f"{value:.3f}" if value else ""
            lines.append(
                f"| {instance.replace('Graphs', '')} | {known} | {f'{bound:.3f}' if bound else ''} "
                f"| **{ours.value:.3f}** | {ours.bound:.3f} | {max(0.0, 1 - ours.bound / ours.value):.2%} | {ours.seconds:.0f} "
                f"| {f'{plain.value:.3f} | {plain.bound:.3f}' if plain else ' | '} |"
            )
        return HEAD + "\n".join(lines) + "\n"

    halves = "".join(
        f"\nThe accelerator may hold {share:.0%} of all bytes:\n\n{rows('total_cost', share, TOTAL_COST if share == 0.5 else {})}"
        for share in SHARES
    )
    sections = {
        "max_load": MAX_LOAD_SECTION.format(rows=rows("max_load", 1.0, MAX_LOAD)),
        "latency": LATENCY_SECTION.format(
            rows=rows("latency", 1.0, LATENCY),
            experts=", ".join(f"{name} {held:.2f} times" for name, held in experts().items()),
        ),
        "total_cost": TOTAL_COST_SECTION.format(rows=halves),
        "intra_operator": INTRA_OPERATOR_SECTION.format(
            rows=contest_rows([r for r in by.values() if r.table == "intra_operator"])
        ),
    }
    for table, section in sections.items():
        if any(r.table == table for r in done):
            title = section.partition("\n")[0]
            whole = re.compile(rf"^{re.escape(title)}$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
            present = whole.sub(lambda _, new=section: new, present)
    return present


def contest_rows(done: list[Record]) -> str:
    lines = []
    for record in sorted(done, key=lambda r: r.instance):
        best, bound, limit = INTRA_OPERATOR[record.instance]
        lines.append(
            f"| {record.instance} | {best:,} | {bound:,} | **{record.value:,.0f}** | {record.value / best - 1:+.4%} "
            f"| {record.bound:,.0f} | {max(0.0, 1 - record.bound / record.value):.2%} | {record.seconds:.0f} | {limit:.0f} |"
        )
    return "\n".join(lines)


def experts() -> dict[str, float]:
    """By how much the fullest accelerator of an expert's split fills its memory, where that is more than there is."""
    found = {}
    for path in published.LATENCY:
        split_path = published.FOLDER / "human-experts" / f"{path.stem}_expert.json"
        if path.parent.name == "LayerGraphs" and split_path.exists():
            file = json.loads(path.read_text())
            size = {node["id"]: node["size"] for node in file["nodes"]}
            pieces = json.loads(split_path.read_text())["fpgas"]
            held = max(sum(size[i] for i in piece["nodes"]) for piece in pieces) / file["maxSizePerFPGA"]
            if held > 1:
                found[path.stem] = held
    return found


HEAD = """\
| instance | best known | its bound | placer | bound | gap | s | plain CP-SAT | its bound |
|---|---|---|---|---|---|---|---|---|
"""
MAX_LOAD_SECTION = """\
## Max load, 90 s

The load of the busiest device. A load is the time of the ops and, on an accelerator, of one copy of each tensor that goes in
or out.

{rows}
"""
LATENCY_SECTION = """\
## Latency, 120 s

The time for one sample. Each accelerator runs all its ops at once, and memory limits bind.

{rows}
The best known latencies for inceptionv3 and the layers of resnet50 are splits by experts that exceed the memory limit. The
bounds prove that no split within the limit reaches them. The memory of their fullest accelerators, over the limit: {experts}.

"""
TOTAL_COST_SECTION = """\
## Total cost on one CPU and one accelerator, 20 s
{rows}
"""
INTRA_OPERATOR_SECTION = """\
## Intra-operator parallelism

The problems are those of the ASPLOS 2025 contest: M. D. Moffitt, P. Fegade, The ASPLOS 2025 / EuroSys 2025 contest on
intra-operator parallelism for distributed deep learning, 2025, github.com/google/iopddl. Each op has one choice. Pairs of
choices have costs, and memory over time has a limit.

The contest has 25 instances, `A` to `Y`. Five were measured: `A`, `B`, `G`, `K` and `M`. The files of the other 20 could not be
downloaded to the machine of these measurements, so nothing is said of them. `placer solve iopddl:NAME --data FOLDER` solves any
whose file is there. No cost of the five is above the best score of the contest. `A`, `K` and `M` are below it, `B` and `G`
equal to it.

The time limits of `A`, `B` and `G` are those of the contest. Those of `K` and `M` are taken to be 180 s. The limits include
reading the file. They are CPU time (`--cpu-time`), because other work shared the cores. The solver has one thread. "Best score"
and "its bound" are the best known of the contest. "Over best" says by how much placer's cost exceeds that score.

| instance | best score | its bound | placer | over best | bound | gap | s | limit, s |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--methods", nargs="*", choices=("placer", "cp_sat"), default=["placer", "cp_sat"])
    parser.add_argument("--shares", nargs="*", type=float, choices=SHARES, default=list(SHARES), help="of the total cost")
    parser.add_argument("--only", nargs="*", default=[""], help="instances whose names contain one of these")
    parser.add_argument("--out", type=Path, default=Path("published.json"))
    parser.add_argument("--page", type=Path, help="put the results into their rows there")
    parser.add_argument("--cpu-time", action="store_true", help="seconds are CPU time of this process, if others use the machine")
    arguments = parser.parse_args()
    if arguments.cpu_time:
        time.perf_counter = time.process_time
    done = [Record(**entry) for entry in json.loads(arguments.out.read_text())] if arguments.out.exists() else []
    for method in arguments.methods:
        for table in arguments.tables:
            for share in arguments.shares if table == "total_cost" else (1.0,):
                for path in instances(table) if (table, method) != ("intra_operator", "cp_sat") else []:
                    instance = contest_name(path) if table == "intra_operator" else f"{path.parent.name}/{path.stem}"
                    known = {(r.table, r.instance, r.share, r.method) for r in done}
                    if (table, instance, share, method) in known or not any(name in instance for name in arguments.only):
                        continue
                    value, bound, seconds = measure(table, path, method, share)
                    record = Record(table, instance, share, method, value, bound, seconds)
                    done.append(record)
                    arguments.out.write_text(json.dumps([asdict(r) for r in done], indent=1))
                    gap = max(0.0, 1 - bound / value)
                    print(f"{table:10s} {instance:36s} {share:4.2f} {method:6s} {value:10.3f} ≥ {bound:10.3f} {gap:7.2%}"
                          f" {record.seconds:6.1f} s", flush=True)  # fmt: skip
    if arguments.page:
        arguments.page.write_text(page(done, arguments.page.read_text()))


if __name__ == "__main__":
    main()
