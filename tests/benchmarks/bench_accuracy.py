"""Measures step times of many workloads under many placements, and records what their predictions need.

    python -m tests.benchmarks.bench_accuracy --out recorded --calibrate-s 75 --profile-s 60
    python -m tests.benchmarks.bench_accuracy --out recorded --devices two-cpu --size small mlp_training decoding
    python -m tests.benchmarks.bench_accuracy --out recorded --score

Each workload has a process of its own, in which its placements take turns as in `bench_step_time`. The process is ended
`GRACE_S` after its time; what was measured until then is in the folder. Workloads that the folder has already are not measured
again. The folder has all that a prediction needs: graphs, placements, the machine and the measurements of single ops. So models
can be scored against the same step times later, anywhere, without TensorFlow. No step time is used to fit anything.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.exports import export_json
from cost_models.files import write_whole
from cost_models.machines import Machine
from cost_models.store import Store
from tests.benchmarks.cases import Case, cases, grappler_estimate_ns, workloads
from tests.benchmarks.recorded import score
from tests.benchmarks.scoring import report

if TYPE_CHECKING:
    from examples.workloads import Size
    from tests.benchmarks.bench_step_time import Variant

PROFILED = ("default", "plan")
PROFILED_STEPS = 3
MAX_PROFILE_BYTES = 3 << 20
"""A larger compressed profile of `PROFILED_STEPS` steps is replaced by one of a single step."""
GRACE_S = 10.0
"""How much longer than its time a workload may take, for profiles and TensorFlow's own predictions."""
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
    "tests.benchmarks.public_situations",
    "tests.helpers.model_parallel",
)
"""Modules that take long to import. They start nothing of TensorFlow that a fork would break."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("recorded"), help="folder of the measurements (default: %(default)s)")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--field", type=Path, metavar="FOLDER", help="a folder whose file field.py has more workloads")
    parser.add_argument("--budget-s", type=float, default=60.0, help="for each workload (default: %(default)s)")
    parser.add_argument("--traces", default="", metavar="NAMES", help=f"also profile {' and '.join(PROFILED)} of these workloads")
    parser.add_argument("--calibrate-s", type=float, help="first calibrate this machine, for about this time")
    parser.add_argument("--profile-s", type=float, help="at the end, measure the ops of the recorded graphs, for this time")
    parser.add_argument("--effects", action="store_true", help="measure single effects instead, in this process")
    parser.add_argument("--graphs", action="store_true", help="write the workloads' graphs instead, for placer profile")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.effects:
        measure_effects(args.names, args.out, two_cpu=args.devices == "two-cpu")
        return 0
    known, traced = workloads(args.field), [name for name in args.traces.split(",") if name]
    if unknown := [name for name in [*args.names, *traced] if name not in known]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(known)}")
    if args.graphs:
        write_graphs(args.names or [*known], args.size, args.out, args.field)
        return 0
    if args.score:
        print(report(score(args.out, args.names)))
        return 0
    return bool(measure_all(args.names or [*known], args, traced))


def measure_all(names: Sequence[str], args: argparse.Namespace, traced: Collection[str]) -> list[str]:
    """Measures each workload without a record, in a process of its own. Returns the names of those that failed.

    The processes are forked from one that has imported TensorFlow and has not used it.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([*PRELOADED])
    two_cpu = args.devices == "two-cpu"
    failed = []

    def run(label: str, function: Callable[..., None], *arguments: Any, limit_s: float) -> None:
        start = time.perf_counter()
        process = forks.Process(target=function, args=arguments)
        process.start()
        process.join(limit_s)
        if ended := process.is_alive():
            process.kill()
            process.join()
        elif process.exitcode:
            failed.append(label)
        how = "out of time, " if ended else "failed, " if process.exitcode else ""
        print(f"{label}: {how}{time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)

    if args.calibrate_s:
        run("calibration", calibrate_here, args.calibrate_s, two_cpu, args.out, limit_s=2 * args.calibrate_s + 60)
    for name in names:
        if not (args.out / f"{name}.json").exists():
            options = args.size, args.out, args.budget_s, two_cpu, name in traced, args.field
            run(name, measure, name, *options, limit_s=args.budget_s + GRACE_S)
    if args.profile_s:
        run("profile", profile_here, args.profile_s, two_cpu, args.out, limit_s=2 * args.profile_s + 60)
    return failed


def calibrate_here(budget_s: float, two_cpu: bool, out: Path) -> None:
    """Measures the constants of this machine, which later processes then use, and writes them as `machine.toml`."""
    from placer.verbs.calibrate import calibrate

    machine_here(two_cpu)
    (out / "machine.toml").write_text(calibrate(budget_s).to_toml())


def profile_here(budget_s: float, two_cpu: bool, out: Path) -> None:
    """Measures the ops of the graphs in a folder, on the devices here."""
    from placer.graph.op_graph import OpGraph
    from placer.verbs.profile import profile

    machine_here(two_cpu)
    graphs = [OpGraph.from_json(json.loads(gzip.decompress(path.read_bytes()))) for path in sorted(out.glob("*.graph.json.gz"))]
    print(profile(graphs, budget_s), file=sys.stderr, flush=True)
    export_json(Store().rows(), out / "measurements.json")


def measure(
    name: str, size: Size, out: Path, budget_s: float, two_cpu: bool = False, traced: bool = False, field: Path | None = None
) -> None:
    """Writes the record and the graphs of a workload, and the measurements of single ops.

    At most `MAX_PLACEMENTS` are prepared: as many as seem to fit into the time together with `MIN_ROUNDS` rounds. Until the
    rounds end, the record has one step of each.
    """
    from tests.benchmarks import bench_step_time as bench

    started = time.perf_counter()
    machine = machine_here(two_cpu)
    export_json(Store().rows(), out / "measurements.json")
    ready: dict[str, tuple[Case, bench.Variant]] = {}
    prepared_s = round_s = 0.0
    begun = time.perf_counter()
    for case in cases(name, size, machine, field):
        variant = bench.warm_up(case.run, case.args)
        ready[case.label] = case, variant
        keep(name, ready, {label: [variant.step_s] for label, (_, variant) in ready.items()}, machine, out)
        now = time.perf_counter()
        print(f"{name}, {case.label}: {1e3 * variant.step_s:.1f} ms, ready at {now - started:.0f} s", file=sys.stderr, flush=True)
        prepared_s, begun = now - begun, now
        round_s += max(bench.ROUND_S, variant.step_s)
        if len(ready) == MAX_PLACEMENTS or now - started + prepared_s + MIN_ROUNDS * round_s > budget_s:
            break
    within_s = budget_s - (time.perf_counter() - started)
    rounds = bench.interleaved({label: variant.step for label, (_, variant) in ready.items()}, within_s)
    keep(name, ready, rounds, machine, out)
    for label in PROFILED if traced else ():
        if label in ready:
            keep_profile(ready[label][1].step, out / f"{name}.{label}.xplane.pb.gz")
    keep_grappler(name, ready, machine, out)


def keep_profile(step: Callable[[], None], path: Path) -> None:
    """Writes TensorFlow's compressed profile of a few steps."""
    from placer.tf.run.harvesting import record_steps

    recorded = gzip.compress(record_steps(step, PROFILED_STEPS))
    path.write_bytes(recorded if len(recorded) <= MAX_PROFILE_BYTES else gzip.compress(record_steps(step, 1)))


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


def write_graphs(names: Sequence[str], size: Size, out: Path, field: Path | None = None) -> None:
    """Saves the graphs of workloads, for `placer profile`."""
    import placer

    for name in names:
        work = workloads(field)[name](size)
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
        write_whole(out / f"{files[id(graph)]}.graph.json.gz", gzip.compress(text, mtime=0))
    record = {
        "workload": name,
        "tensorflow": tf.__version__,
        "machine": machine.to_toml(),
        "cases": {
            label: {
                "graph": files[id(case.graph)],
                "devices": case.devices,
                **({"variables": "move"} if case.placement.options.get("variables") == "move" else {}),
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
    write_record(record, out)


def write_record(record: dict[str, Any], out: Path) -> None:
    """Writes a record completely or not at all: its process may be ended at any time."""
    write_whole(out / f"{record['workload']}.json", (json.dumps(record, indent=1) + "\n").encode())


def keep_grappler(name: str, ready: Mapping[str, tuple[Case, Variant]], machine: Machine, out: Path) -> None:
    """Adds TensorFlow's own predictions to a record, one at a time: for a large graph each takes a while."""
    record = json.loads((out / f"{name}.json").read_text())
    for label, (case, _) in ready.items():
        record["cases"][label]["grappler_ns"] = grappler_estimate_ns(case.placed, machine)
        write_record(record, out)


if __name__ == "__main__":
    sys.exit(main())
