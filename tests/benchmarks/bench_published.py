"""Solves the published placement problems, and compares values and bounds with the best known and a plain constraint program.

Run: python -m tests.benchmarks.bench_published [--tables max_load latency total_cost intra_operator]
[--shares 0.5] [--only NAME ...] [--cpu-time] [--out published.json]
Then: python -m tests.benchmarks.published_tables published.json
puts the new results into docs/data/published.md and keeps the others.

Each instance is solved by this package within the time limit of its table. Except for the contest on intra-operator
parallelism, it is then solved by one constraint program within the same limit, started from everything on the CPU. Values are
recomputed from the files (`tests/helpers/published.py`). Results are written after each instance, and a second start
continues where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
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
from tests.benchmarks.published_tables import INTRA_OPERATOR, TABLES, TOTAL_COST, Record
from tests.helpers import published

SECONDS = {"max_load": 90.0, "latency": 120.0, "total_cost": 20.0}
SHARES = (0.5, 0.25, 0.75)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--methods", nargs="*", choices=("placer", "cp_sat"), default=["placer", "cp_sat"])
    parser.add_argument("--shares", nargs="*", type=float, choices=SHARES, default=list(SHARES), help="of the total cost")
    parser.add_argument("--only", nargs="*", default=[""], help="instances whose names contain one of these")
    parser.add_argument("--out", type=Path, default=Path("published.json"))
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
                    known = {record.key for record in done}
                    if (table, instance, share, method) in known or not any(name in instance for name in arguments.only):
                        continue
                    value, bound, seconds = measure(table, path, method, share)
                    record = Record(table, instance, share, method, value, bound, seconds)
                    done.append(record)
                    arguments.out.write_text(json.dumps([asdict(r) for r in done], indent=1))
                    print(f"{table:10s} {instance:36s} {share:4.2f} {method:6s} {value:10.3f} ≥ {bound:10.3f} {record.gap:7.2%}"
                          f" {record.seconds:6.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
