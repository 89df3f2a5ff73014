"""Compares predicted memory peaks with what TensorFlow's allocator held on a GPU in a step.

    python -m tests.benchmarks.bench_memory --out memory
    python -m tests.benchmarks.bench_memory --out memory --devices two-cpu --size small decoding fan
    python -m tests.benchmarks.bench_memory --out memory --score

It measures the workloads of `bench_accuracy` under a few placements, and the functions of `memory_effects`. Each placement runs
in a process of its own. Several processes run at a time, because memory is measured and not time. Each has a share of the GPU
from the start, so that its allocator works as it does by default. Records that the folder has already are not measured again. A
record also has every allocation of one step from the profiler, which shows the tensors that were alive at the peak.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.auto import auto_model
from cost_models.machines import parse_machine
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.placed.predict import random_cut
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import usage
from placer.problem.problem import Assignment, PlacementProblem
from tests.benchmarks.bench_accuracy import machine_here
from tests.benchmarks.cases import as_traced, workloads

if TYPE_CHECKING:
    from examples.workloads import Workload

PLACEMENTS: dict[str, dict[str, Any]] = {
    "default": {"solver": "tf_default"},
    "plan": {},
    "random_0": {"solver": partial(random_cut, seed=0)},
    "random_1": {"solver": partial(random_cut, seed=1)},
}
STEPS = 3
LIMIT_MIB = 8192
"""GPU memory of each process."""
FIRST = ("resnet50", "encoder")
"""Workloads that take longest to prepare start first."""
TOP = 8
"""Number of tensors that are printed for a predicted peak."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="workloads and effects; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("memory"), help="folder of the measurements (default: %(default)s)")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--jobs", type=int, default=8, help="processes side by side (default: %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=90.0, help="of each (default: %(default)s)")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    parser.add_argument("--one", choices=PLACEMENTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        measure(args.names[0], args.one, args.size, args.out, two_cpu=args.devices == "two-cpu")
        return 0
    failed = [] if args.score else measure_all(args)
    print(report(args.out))
    return bool(failed)


# -- measuring -----------------------------------------------------------------------------------------------------------


def measure_all(args: argparse.Namespace) -> list[str]:
    """Measures what has no record yet; gives what failed."""
    todo = [
        (name, label)
        for name, labels in wanted(args.size).items()
        if not args.names or name in args.names
        for label in labels
        if not (args.out / f"{name}.{label}.json").exists()
    ]
    todo.sort(key=lambda case: case[0] not in FIRST)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    if args.devices == "two-cpu":
        environment["TF_CPU_ALLOCATOR_USE_BFC"] = "1"  # the GPU's kind of allocator, which tells the profiler what it does

    def run(case: tuple[str, str]) -> str:
        name, label = case
        flags = ["--one", label, "--out", str(args.out), "--devices", args.devices, "--size", args.size]
        command = [sys.executable, "-m", "tests.benchmarks.bench_memory", name, *flags]
        start = time.perf_counter()
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=args.timeout_s)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
            print(f"{name}.{label} failed: {error}\n{said[-2000:]}", file=sys.stderr, flush=True)
            return f"{name}.{label}"
        print(f"{name}.{label}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        return ""

    with ThreadPoolExecutor(args.jobs) as pool:
        return [name for name in pool.map(run, todo) if name]


def wanted(size: str) -> dict[str, tuple[str, ...]]:
    """The placements of each workload; an effect is shown by TensorFlow's own."""
    from tests.benchmarks.memory_effects import effects

    return dict.fromkeys(workloads(), tuple(PLACEMENTS)) | {name: ("default",) for name, _ in effects(size)}


def measure(name: str, label: str, size: str, out: Path, *, two_cpu: bool = False) -> None:
    """Writes the record of a workload under one placement, its graph and the allocations of a step."""
    import tensorflow as tf

    from tests.benchmarks.memory_effects import effects

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)])
    machine = machine_here(two_cpu)
    builders = {**workloads(), **{effect: lambda _, build=build: build() for effect, build in effects(size)}}
    work = builders[name](size)
    start = memory_info()["current"]
    run, placement = placed(work, label, machine)

    def step() -> None:
        tf.nest.flatten(run(*work.args))[0].numpy()

    gc.collect()
    before = reset()
    step()
    first = memory_info()["peak"]
    for _ in range(STEPS):
        step()
    gc.collect()
    held = reset()
    for _ in range(STEPS):
        step()
    peak = memory_info()["peak"]
    trace = allocations(step)
    text = json.dumps(placement.graph.to_json(), separators=(",", ":")).encode()
    graph = hashlib.sha256(text).hexdigest()[:16]
    (out / f"{graph}.graph.json.gz").write_bytes(gzip.compress(text, mtime=0))
    (out / f"{name}.{label}.trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), mtime=0))
    number = {device: str(k) for k, device in enumerate(placement.devices)}
    record = {
        "workload": name,
        "placement": label,
        "machine": machine.to_toml(),
        "graph": graph,
        "devices": "".join(number[plan.device] for plan in placement.ops.values()),
        "predicted_peak_bytes": {device: total.peak_bytes for device, total in placement.totals.items()},
        "built_bytes": start,
        "before_bytes": before,
        "first_peak_bytes": first,
        "held_bytes": held,
        "peak_bytes": peak,
    }
    (out / f"{name}.{label}.json").write_text(json.dumps(record, indent=1) + "\n")


def placed(work: Workload, label: str, machine: Any) -> tuple[Callable[..., Any], Any]:
    """What to call, and the placement that it is predicted by."""
    import placer

    options = PLACEMENTS[label]
    if label == "default":
        concrete = work.fn.get_concrete_function(*work.args)
        return concrete, placer.solve(as_traced(work), machine, **options)
    placement = placer.solve(placer.build_graph(work.fn, *work.args), machine, **options)
    return placer.apply(work.fn, placement).prepare(*work.args).run, placement


def memory_info() -> dict[str, Any]:
    """Of the first GPU; nothing is known of a CPU."""
    import tensorflow as tf

    if not tf.config.list_logical_devices("GPU"):
        return {"current": None, "peak": None}
    return dict(tf.config.experimental.get_memory_info("GPU:0"))


def reset() -> int | None:
    """Forgets the peak so far; gives what is held."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        tf.config.experimental.reset_memory_stats("GPU:0")
    return memory_info()["current"]


def allocations(step: Callable[[], object]) -> list[tuple[int, str, str, int, int, int, str]]:
    """What a step takes and gives back, in order of time.

    Bytes, negative where given back; the op; the kind (output, temp, …); bytes asked for; address; bytes in use then; shape.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    from placer.tf.run.harvesting import _stats

    quiet = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, quiet)
        try:
            step()
        finally:
            tf.profiler.experimental.stop()
        record = xplane_pb2.XSpace.FromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    found = []
    for plane in record.planes:
        for line in plane.lines:
            for event in line.events:
                kind = plane.event_metadata[event.metadata_id].name
                if kind not in ("MemoryAllocation", "MemoryDeallocation"):
                    continue
                stats = _stats(plane, event)
                if not stats["allocator_name"].startswith(("GPU_0_", "bfc_cpu")):
                    continue
                sign = 1 if kind == "MemoryAllocation" else -1
                figures = [stats[key] for key in ("requested_bytes", "addr", "bytes_allocated")]
                words = [str(stats.get(key, "")) for key in ("tf_op", "region_type", "shape")]
                at = line.timestamp_ns * 1000 + event.offset_ps
                found.append((at, sign * stats["allocation_bytes"], *words[:2], *figures, words[2]))
    return [entry[1:] for entry in sorted(found)]


# -- scoring -------------------------------------------------------------------------------------------------------------


def records(folder: Path) -> Iterator[tuple[dict[str, Any], OpGraph, PlacementProblem, Assignment]]:
    """Each record with what an estimate of it needs."""
    problems: dict[str, tuple[OpGraph, PlacementProblem]] = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        if "held_bytes" not in record:
            continue
        key = record["graph"]
        if key not in problems:
            with gzip.open(folder / f"{key}.graph.json.gz", "rt") as file:
                graph = OpGraph.from_json(json.load(file))
            machine = parse_machine(record["machine"])
            problems[key] = graph, formulate(graph, constrain(graph, machine, Options()), auto_model(), machine).problem
        graph, problem = problems[key]
        device = np.zeros(problem.num_units, np.int64)
        device[problem.ops.unit] = [int(digit) for digit in record["devices"]]
        yield record, graph, problem, Assignment(device)


def report(folder: Path) -> str:
    """A line for each record: measured, then the estimate and its parts, in MB."""
    columns = ("built", "held", "first peak", "peak", "estimate", "error", "kept", "workspace")
    lines = [f"{'MB on the last device':36}" + "".join(f"{column:>11}" for column in columns) + "  at"]
    for record, _, problem, assignment in records(folder):
        held = usage(problem, assignment)[-1]
        moment, estimate = int(np.argmax(held)), int(held.max())
        kept = int(problem.units.persistent_bytes[assignment.device == problem.num_devices - 1].sum())
        on_it = assignment.device[problem.ops.unit[moment]] == problem.num_devices - 1
        workspace = int(problem.ops.workspace_bytes[moment, -1]) if on_it else 0
        measured = [record[key] for key in ("built_bytes", "held_bytes", "first_peak_bytes", "peak_bytes")]
        figures = ["-" if each is None else f"{each / 1e6:.2f}" for each in (*measured, estimate)]
        error = f"{estimate / record['peak_bytes'] - 1:+.0%}" if record["peak_bytes"] else "-"
        cells = [*figures, error, f"{kept / 1e6:.2f}", f"{workspace / 1e6:.2f}"]
        name = f"{record['workload']}.{record['placement']}"
        lines.append(f"{name:36}" + "".join(f"{cell:>11}" for cell in cells) + f"  {problem.ops.names[moment]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
