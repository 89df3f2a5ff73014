"""Measures step times of many workloads under many placements, and records what their predictions need.

    python -m tests.benchmarks.bench_accuracy --out recorded
    python -m tests.benchmarks.bench_accuracy --out recorded --devices two-cpu --size small mlp_training decoding
    python -m tests.benchmarks.bench_accuracy --out recorded --score

Each workload has a process of its own, in which its placements take turns as in `bench_step_time`. Workloads that the folder
has already are not measured again. The folder has all that a prediction needs: graphs, placements, the machine and the
measurements of single ops. So models can be scored against the same step times later, anywhere, without TensorFlow. No step
time is used to fit anything.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cost_models.exports import export_json
from cost_models.machines import Machine
from cost_models.store import Store
from tests.benchmarks.cases import Case, cases, grappler_estimate_ns, workloads
from tests.benchmarks.recorded import score
from tests.benchmarks.scoring import report

if TYPE_CHECKING:
    from examples.workloads import Size
    from tests.benchmarks.bench_step_time import Variant

PROFILED = ("default", "plan", "random_0")
PROFILED_STEPS = 3
EFFECT_LIMIT_S = 0.6
"""Time limit for the rounds of an effect."""
MIN_ROUNDS = 4
"""A further placement is prepared only if so many rounds of all placements still fit into the time."""
MAX_PLACEMENTS = 10
"""The most placements of a workload that are measured."""
PRELOADED = (
    "examples.workloads",
    "tests.benchmarks.bench_step_time",
    "tests.benchmarks.more_workloads",
    "tests.helpers.model_parallel",
)
"""Modules that take long to import. They start nothing of TensorFlow that a fork would break."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("recorded"), help="folder of the measurements (default: %(default)s)")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--budget-s", type=float, default=60.0, help="for each workload, about (default: %(default)s)")
    parser.add_argument("--traces", action="store_true", help=f"also keep a profile of {', '.join(PROFILED)}")
    parser.add_argument("--effects", action="store_true", help="measure single effects instead, in this process")
    parser.add_argument("--graphs", action="store_true", help="write the workloads' graphs instead, for placer profile")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.effects:
        measure_effects(args.names, args.out, two_cpu=args.devices == "two-cpu")
        return 0
    if unknown := [name for name in args.names if name not in workloads()]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(workloads())}")
    if args.graphs:
        write_graphs(args.names or [*workloads()], args.size, args.out)
        return 0
    failed = [] if args.score else measure_all(args)
    print(report(score(args.out, args.names)))
    return bool(failed)


def measure_all(args: argparse.Namespace) -> list[str]:
    """Measures each workload without a record, in a process of its own. Returns the names of those that failed.

    The processes are forked from one that has imported TensorFlow and has not used it.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([*PRELOADED])
    failed = []
    for name in args.names or [*workloads()]:
        if (args.out / f"{name}.json").exists():
            continue
        start = time.perf_counter()
        arguments = (name, args.size, args.out, args.budget_s, args.devices == "two-cpu", args.traces)
        process = forks.Process(target=measure, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            failed.append(name)
        print(f"{name}: {'failed, ' * bool(process.exitcode)}{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return failed


def measure(name: str, size: Size, out: Path, budget_s: float, two_cpu: bool = False, traces: bool = False) -> None:
    """Writes the record and the graphs of a workload, and the measurements of single ops.

    At most `MAX_PLACEMENTS` are prepared: as many as seem to fit into the time together with `MIN_ROUNDS` rounds.
    """
    from tests.benchmarks import bench_step_time as bench

    started = time.perf_counter()
    machine = machine_here(two_cpu)
    ready: dict[str, tuple[Case, bench.Variant]] = {}
    prepared_s = round_s = 0.0
    begun = time.perf_counter()
    for case in cases(name, size, machine):
        variant = bench.warm_up(case.run, case.args)
        ready[case.label] = case, variant
        now = time.perf_counter()
        print(f"{name}, {case.label}: {1e3 * variant.step_s:.1f} ms, ready at {now - started:.0f} s", file=sys.stderr, flush=True)
        prepared_s, begun = now - begun, now
        round_s += max(bench.ROUND_S, variant.step_s)
        if len(ready) == MAX_PLACEMENTS or now - started + prepared_s + MIN_ROUNDS * round_s > budget_s:
            break
    within_s = budget_s - (time.perf_counter() - started)
    rounds = bench.interleaved({label: variant.step for label, (_, variant) in ready.items()}, within_s)
    export_json(Store().rows(), out / "measurements.json")
    keep(name, ready, rounds, machine, out)
    keep_grappler(name, ready, machine, out)
    from placer.tf.run.harvesting import record_steps

    for label in PROFILED if traces else ():
        if label in ready:
            (out / f"{name}.{label}.xplane.pb.gz").write_bytes(gzip.compress(record_steps(ready[label][1].step, PROFILED_STEPS)))


def measure_effects(names: Sequence[str], out: Path, *, two_cpu: bool = False) -> None:
    """Writes a record for each function of `tests.benchmarks.effects` that has none, with the devices that are written in it."""
    from tests.benchmarks import bench_step_time as bench
    from tests.benchmarks.effects import effects

    machine = machine_here(two_cpu)
    export_json(Store().rows(), out / "measurements.json")
    for name, build in effects():
        if (names and name not in names) or (out / f"{name}.json").exists():
            continue
        work = build()
        case = Case.as_it_is("default", work, machine, solver="tf_default")
        ready = {"default": (case, bench.warm_up(case.run, case.args))}
        rounds = bench.interleaved({"default": ready["default"][1].step}, EFFECT_LIMIT_S)
        keep(name, ready, rounds, machine, out)
        keep_grappler(name, ready, machine, out)
        measured_us = 1e6 * float(np.median(rounds["default"]))
        print(f"{name:34}{measured_us:12.1f} us, predicted {1e3 * case.predicted_ms:12.1f}", flush=True)


def write_graphs(names: Sequence[str], size: Size, out: Path) -> None:
    """Saves the graphs of workloads, for `placer profile`."""
    import placer

    for name in names:
        work = workloads()[name](size)
        placer.build_graph(work.fn, *work.args).save(out / f"{name}.json")


def machine_here(two_cpu: bool) -> Machine:
    """The machine of this process, with two logical CPU devices if ``two_cpu``."""
    from tests.benchmarks.bench_step_time import two_cpu_machine

    if two_cpu:
        two_cpu_machine()
    from placer.tf.devices import local_machine

    return local_machine()


def keep(
    name: str, ready: Mapping[str, tuple[Case, Variant]], rounds: Mapping[str, list[float]], machine: Machine, out: Path
) -> None:
    """Writes the record of a workload and its graphs."""
    import tensorflow as tf

    files: dict[int, str] = {}
    for graph in {id(case.graph): case.graph for case, _ in ready.values()}.values():
        text = json.dumps(graph.to_json(), separators=(",", ":")).encode()
        files[id(graph)] = hashlib.sha256(text).hexdigest()[:16]
        (out / f"{files[id(graph)]}.graph.json.gz").write_bytes(gzip.compress(text, mtime=0))
    record = {
        "workload": name,
        "tensorflow": tf.__version__,
        "machine": machine.to_toml(),
        "cases": {
            label: {
                "graph": files[id(case.graph)],
                "devices": case.devices,
                "predicted_ms": case.predicted_ms,
                "grappler_ns": None,
                "rounds_ms": [round(1e3 * seconds, 5) for seconds in rounds[label]],
                "first_call_s": variant.first_call_s,
                "peak_bytes": variant.peak_bytes,
                "held_bytes": variant.held_bytes,
                "predicted_peak_bytes": case.predicted_peak_bytes,
            }
            for label, (case, variant) in ready.items()
        },
    }
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def keep_grappler(name: str, ready: Mapping[str, tuple[Case, Variant]], machine: Machine, out: Path) -> None:
    """Adds TensorFlow's own predictions to a record, one at a time: for a large graph each takes a while."""
    path = out / f"{name}.json"
    record = json.loads(path.read_text())
    for label, (case, _) in ready.items():
        record["cases"][label]["grappler_ns"] = grappler_estimate_ns(case.placed, machine)
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
