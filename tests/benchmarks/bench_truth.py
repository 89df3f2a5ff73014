"""How true the predicted step times are: many workloads, each under many placements, measured and predicted.

    python -m tests.benchmarks.bench_truth --out truth --profile-s 60
    python -m tests.benchmarks.bench_truth --out truth --devices two-cpu --size small mlp_training decoding
    python -m tests.benchmarks.bench_truth --out truth --score

One process a workload, its placements interleaved in it as `bench_step_time` does; what is in the folder already is not measured
again. The folder keeps all that a prediction needs (graphs, assignments, machine, op measurements), so that models can be scored
against the same measurements later, anywhere, without TensorFlow. No step time is used to fit anything.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.analytic import AnalyticModel
from cost_models.auto import auto_model
from cost_models.base import CostModel
from cost_models.machines import Machine, parse_machine
from cost_models.store import Store, export_json, import_json
from placer.opgraph import OpGraph
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.problem import Assignment, PlacementProblem

RANDOM_CUTS = 4
WORTH_RANKING = 1.3
"""Placements of a workload differ enough for their order to mean something where the slowest takes this much longer."""
MODELS = ("auto", "analytic", "grappler")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("truth"), help="folder of the measurements (default: %(default)s)")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--profile-s", type=float, default=0.0, help="measure each workload's ops for so long first")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        measure(args.names[0], args.size, args.devices == "two-cpu", args.profile_s, args.out)
        return 0
    failed = [] if args.score else measure_all(args)
    print(report(score(args.out)))
    return bool(failed)


# -- measuring -----------------------------------------------------------------------------------------------------------


def measure_all(args: argparse.Namespace) -> list[str]:
    """Measures each workload that has no record yet in a process of its own; gives the names of those that failed."""
    names = args.names or [*builders()]
    failed = []
    for name in names:
        if (args.out / f"{name}.json").exists():
            continue
        flags = ["--out", str(args.out), "--devices", args.devices, "--size", args.size, "--profile-s", str(args.profile_s)]
        start = time.perf_counter()
        command = [sys.executable, "-m", "tests.benchmarks.bench_truth", name, "--one", *flags]
        run = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
        if run.returncode:
            failed.append(name)
            print(f"{name} failed:\n{run.stderr[-3000:]}", file=sys.stderr)
        else:
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return failed


def builders() -> dict[str, Callable[..., Any]]:
    from tests.benchmarks.bench_step_time import BUILDERS
    from tests.benchmarks.more_workloads import MORE

    return {**BUILDERS, **MORE}


def measure(name: str, size: str, two_cpu: bool, profile_s: float, out: Path) -> None:
    """Writes a workload's record and graphs."""
    import tensorflow as tf

    import placer
    from placer.tf.devices import local_machine
    from tests.benchmarks import bench_step_time as bench

    if two_cpu:
        bench.two_cpu_machine()
    machine = local_machine()
    build = partial(builders()[name], size)
    cases: dict[str, Case] = {}
    base = build()
    graph = placer.build_graph(base.fn, *base.args)
    if profile_s:
        placer.profile(graph, profile_s)
    export_json(Store().rows(), out / "measurements.json")
    cases["default"] = Case.of(base.fn, base.args, graph, machine, solver="tf_default").as_it_is(base.fn)
    for label, options in placements():
        cases[label] = Case.of(base.fn, base.args, graph, machine, **options)
    with tf.device("/CPU:0"):
        work = build()
        case = Case.of(work.fn, work.args, placer.build_graph(work.fn, *work.args), machine, solver="all_cpu")
        cases["all_cpu"] = case.as_it_is(work.fn)
    if name in bench.BY_HAND and tf.config.list_logical_devices("GPU"):
        work = build(by_hand=True)
        case = Case.of(work.fn, work.args, placer.build_graph(work.fn, *work.args), machine, solver="tf_default")
        cases["hand"] = case.as_it_is(work.fn)

    ready = {label: bench.warm_up(case.run, case.args) for label, case in cases.items()}
    rounds = bench.interleaved({label: variant.step for label, variant in ready.items()})
    graphs = {case.graph.fingerprint: case.graph for case in cases.values()}
    for fingerprint, each in graphs.items():
        with gzip.open(out / f"{fingerprint[:16]}.graph.json.gz", "wt") as file:
            json.dump(each.to_json(), file, separators=(",", ":"))
    record = {
        "workload": name,
        "size": size,
        "tensorflow": tf.__version__,
        "machine": machine.to_toml(),
        "cases": {
            label: {
                "graph": case.graph.fingerprint[:16],
                "devices": case.devices,
                "grappler_ns": case.grappler_ns,
                "rounds_ms": [1e3 * seconds for seconds in rounds[label]],
                "peak_bytes": ready[label].peak_bytes,
                "predicted_peak_bytes": case.peak_bytes,
            }
            for label, case in cases.items()
        },
    }
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def placements() -> Iterator[tuple[str, dict[str, Any]]]:
    """What is solved for beside TensorFlow's default and all on the CPU."""
    yield "plan", {}
    yield "total_cost", {"objective": "total_cost"}
    yield "greedy", {"solver": "greedy"}
    yield "heft", {"solver": "heft"}
    for seed in range(RANDOM_CUTS):
        yield f"random_{seed}", {"solver": partial(random_cut, seed=seed)}


def random_cut(problem: PlacementProblem, seed: int) -> Assignment:
    """The ops in order, cut at one to three places, each piece on another device than the one before, where it may be there."""
    rng = np.random.default_rng(seed)
    first = np.full(len(problem.unit_allowed), problem.ops)
    np.minimum.at(first, problem.op_unit, np.arange(problem.ops))
    cuts = np.sort(rng.integers(0, problem.ops, size=rng.integers(1, 4)))
    wanted = (np.searchsorted(cuts, first) + rng.integers(problem.devices)) % problem.devices
    allowed = problem.unit_allowed
    return Assignment(np.where(allowed[np.arange(len(first)), wanted], wanted, allowed.argmax(axis=1)))


@dataclass(frozen=True)
class Case:
    """A workload under one placement: what to call, and what a prediction of it needs."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    graph: OpGraph
    devices: str
    """A digit for each op: its device's position in the machine."""
    peak_bytes: dict[str, int]
    """By device, as predicted."""
    grappler_ns: int
    """What Grappler's virtual cluster predicts; see `grappler_estimate_ns`."""

    @classmethod
    def of(cls, fn: Any, args: tuple[Any, ...], graph: OpGraph, machine: Machine, **options: Any) -> Case:
        """The function run by a plan that these options give."""
        import placer

        placement = placer.solve(graph, machine, **options)
        placed = placer.apply(fn, placement)
        run = placed._prepared(args, {}, None).run
        number = {name: str(k) for k, name in enumerate(placement.devices)}
        devices = "".join(number[plan.device] for plan in placement.ops.values())
        peaks = {name: total.peak_bytes for name, total in placement.totals.items()}
        return cls(run, args, graph, devices, peaks, grappler_estimate_ns(run, machine))

    def as_it_is(self, fn: Any) -> Case:
        """The function itself, without what `tf.function` does in Python at each call, which no placement changes."""
        return replace(self, run=fn.get_concrete_function(*self.args))


def grappler_estimate_ns(concrete: Any, machine: Machine) -> int:
    """TensorFlow's own prediction for a placed function: its virtual cluster's roofline and schedule (to the microsecond)."""
    from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
    from tensorflow.python.grappler import cluster, item

    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(concrete.graph.as_graph_def())
    meta.collection_def["train_op"].node_list.value.extend(tensor.op.name for tensor in concrete.outputs)
    devices = []
    for device in machine.devices:
        properties = device_properties_pb2.DeviceProperties(
            type=device.kind,
            frequency=2500 if device.kind == "CPU" else 1700,
            num_cores=device.cores,
            memory_size=device.memory_bytes,
            bandwidth=int(device.memory_bytes_per_s / 1e3),
        )
        if device.kind == "GPU":
            properties.environment["architecture"] = "9"
        name = f"/job:localhost/replica:0/task:0/device:{device.name}"
        devices.append(device_properties_pb2.NamedDevice(name=name, properties=properties))
    _, seconds, _ = cluster.Cluster(devices=devices).MeasureCosts(item.Item(meta))
    return round(1e9 * seconds)


# -- scoring -------------------------------------------------------------------------------------------------------------


def score(folder: Path) -> dict[str, Any]:
    """For each model: over all placements, and within each workload, how its predictions compare with the measurements."""
    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "measurements.sqlite")
        if (folder / "measurements.json").exists():
            store.add(import_json(folder / "measurements.json"))
        models = {"auto": auto_model(store), "analytic": AnalyticModel()}
        pairs: dict[str, dict[str, tuple[list[float], list[float]]]] = {model: {} for model in MODELS}
        for path in sorted(folder.glob("*.json")):
            record = json.loads(path.read_text())
            if "cases" not in record:
                continue
            measured = [1e6 * float(np.median(case["rounds_ms"])) for case in record["cases"].values()]
            for name, model in models.items():
                pairs[name][record["workload"]] = measured, predict(record, folder, model)
            pairs["grappler"][record["workload"]] = measured, [case["grappler_ns"] for case in record["cases"].values()]
    return {model: _scores(found) for model, found in pairs.items()}


def predict(record: dict[str, Any], folder: Path, model: CostModel) -> list[float]:
    """Step times in ns of a record's cases, by the execution model over a cost model."""
    machine = parse_machine(record["machine"])
    problems: dict[str, PlacementProblem] = {}
    found = []
    for case in record["cases"].values():
        key = case["graph"]
        if key not in problems:
            with gzip.open(folder / f"{key}.graph.json.gz", "rt") as file:
                graph = OpGraph.from_json(json.load(file))
            problems[key] = formulate(graph, constrain(graph, machine, Options()), model, machine).problem
        problem = problems[key]
        device = np.zeros(len(problem.unit_allowed), np.int64)
        device[problem.op_unit] = [int(digit) for digit in case["devices"]]
        found.append(float(problem.simulator.step_ns(Assignment(device))))
    return found


def _scores(pairs: dict[str, tuple[list[float], list[float]]]) -> dict[str, Any]:
    everything = (
        [np.concatenate([np.array(pair[k], np.float64) for pair in pairs.values()]) for k in (0, 1)]
        if pairs
        else [np.empty(0)] * 2
    )
    return {
        "all": asdict(Score.of(*everything)),
        "workloads": {name: asdict(Score.of(np.array(m), np.array(p))) for name, (m, p) in pairs.items()},
    }


@dataclass(frozen=True)
class Score:
    """Predicted against measured times."""

    placements: int
    spread: float
    """The longest measured time over the shortest."""
    rank_correlation: float
    """Spearman's."""
    median_error: float
    """Of |predicted / measured - 1|."""
    error_90: float
    """Its 90th percentile."""

    @classmethod
    def of(cls, measured: Any, predicted: Any) -> Score:
        if not len(measured):
            return cls(0, 1.0, 0.0, 0.0, 0.0)
        median, high = np.percentile(np.abs(predicted / measured - 1), (50, 90))
        return cls(
            len(measured),
            float(measured.max() / measured.min()),
            rank_correlation(measured, predicted),
            float(median),
            float(high),
        )


def rank_correlation(one: Any, other: Any) -> float:
    """Spearman's; 0 where one of the two is all the same."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (one, other)]
    if min(rank.std() for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Any) -> Any:
    """Equal values share their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def report(scores: dict[str, Any]) -> str:
    """A table: one line a workload, then all together."""
    head = f"{'':26}{'n':>4}{'spread':>8}" + "".join(f"{model:>12}{'median':>8}{'90%':>8}" for model in scores)
    lines = [head]
    first = next(iter(scores.values()))
    for name in [*first["workloads"], "all"]:
        rows = [found["all"] if name == "all" else found["workloads"][name] for found in scores.values()]
        cells = "".join(f"{_rank(row):>12}{row['median_error']:>8.0%}{row['error_90']:>8.0%}" for row in rows)
        lines.append(f"{name:26}{rows[0]['placements']:>4}{rows[0]['spread']:>8.2f}{cells}")
    lines.append(
        "under each model's name: Spearman's rank correlation with what was measured; beside it, errors of the predicted times"
    )
    return "\n".join(lines)


def _rank(row: dict[str, Any]) -> str:
    return f"{row['rank_correlation']:.3f}" if row["spread"] >= WORTH_RANKING else "-"


if __name__ == "__main__":
    sys.exit(main())
