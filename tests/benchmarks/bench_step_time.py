"""Measures step times: TensorFlow's default, all on the CPU, placer's plan, and a split by hand.

    python -m tests.benchmarks.bench_step_time --json step_time.json
    python -m tests.benchmarks.bench_step_time --devices two-cpu detector_256

Each workload runs in a process of its own. Its variants take turns in rounds, and each round starts with another variant. A
step is a call whose first result is fetched before the next call begins. A figure is the median over the rounds of the mean
step of a round. Workloads that the JSON file has already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from examples import workloads
from examples.workloads import Workload
from placer.tf.run.timing import time_in_turns

VARIANTS = ("default", "all_cpu", "plan", "hand")
BUILDERS: dict[str, Callable[..., Workload]] = {
    **workloads.WORKLOADS,
    "resnet50": partial(workloads.resnet50_training, batch=32),
}
BY_HAND = ("lstm_then_wide", "detector_256", "detector_512")
"""Builders that take ``by_hand``."""

ROUNDS = 15
ROUND_S = 0.1
"""A round repeats a step for about this long, once at least."""
WORKLOAD_S = 12.0
"""How long the rounds of a workload may take."""


@dataclass(frozen=True)
class Variant:
    """A way to run a workload: one call of ``step`` is one step, finished when it returns."""

    step: Callable[[], None]
    first_call_s: float
    peak_bytes: dict[str, int]
    """By GPU, in one step after the first, variables and arguments included."""
    held_bytes: dict[str, int]
    """What of it was taken before that step, by whatever is in the process."""
    step_s: float
    """The last of the steps so far."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(BUILDERS), help="workloads; all if none is named")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated: %(default)s")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--json", type=Path, default=Path("step_time.json"), help="results, read first to skip what is there")
    parser.add_argument("--trace-out", type=Path, help="folder to save each workload's placement in")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in BUILDERS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(BUILDERS)}")
    if args.one:
        record = measure(args.names[0], args.variants.split(","), args.size, args.devices == "two-cpu", args.trace_out)
        args.one.write_text(json.dumps(record))
        return 0
    return measure_all(args)


def measure_all(args: argparse.Namespace) -> int:
    """Measures each workload in a process of its own and keeps the JSON file current; 1 if any of them failed.

    Figures of different runs do not compare, so a workload with a variant missing is measured anew.
    """
    results: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json.exists() else {}
    variants = args.variants.split(",")
    failed = []
    for name in args.names:
        key = f"{name}/{args.size}/{args.devices}"
        if set(variants) <= set(results.get(key, {}).get("variants", ())):
            continue
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "record.json"
            flags = ["--variants", args.variants, "--devices", args.devices, "--size", args.size, "--one", str(one)]
            if args.trace_out:
                flags += ["--trace-out", str(args.trace_out)]
            run = subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.bench_step_time", name, *flags],
                check=False,
                stderr=subprocess.PIPE,
                text=True,
            )
            if run.returncode:
                failed.append(name)
                print(f"{name} failed:\n{run.stderr[-3000:]}", file=sys.stderr)
                continue
            results[key] = json.loads(one.read_text())
        args.json.write_text(json.dumps(results, indent=1))
        print(f"{name}: {results[key]['seconds']:.0f} s", file=sys.stderr)
    print_table(results)
    return bool(failed)


def measure(name: str, variants: list[str], size: str, two_cpu: bool, trace_out: Path | None) -> dict[str, Any]:
    """Everything there is to say about one workload, ready for JSON."""
    start = time.perf_counter()
    machine = two_cpu_machine() if two_cpu else None
    gpus = tf.config.list_physical_devices("GPU")
    model = tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "no GPU"
    record: dict[str, Any] = {"device": model, "cores": os.cpu_count(), "tensorflow": tf.__version__, "variants": variants}
    build = partial(BUILDERS[name], size)
    ready: dict[str, Variant] = {}

    # The default and the plan share one workload: same variables, same arguments, each where TensorFlow put them. They come
    # first, so that the memory they need is measured while nothing else is on the GPU.
    if "default" in variants or "plan" in variants:
        work = build()
        if "default" in variants:
            ready["default"] = warm_up(work.fn, work.args)
        if "plan" in variants:
            from placer import place

            work.fn.get_concrete_function(*work.args)  # so that what is timed is planning without tracing
            planning = time.perf_counter()
            placed = place(work.fn, *work.args, devices=machine)
            record["planning_s"] = time.perf_counter() - planning
            ready["plan"] = warm_up(placed, work.args)
            record["placement"] = describe(placed.placement)
            if trace_out:
                trace_out.mkdir(parents=True, exist_ok=True)
                placed.placement.save(trace_out / f"{name}.json")
    if "all_cpu" in variants:
        with tf.device("/CPU:0"):
            work = build()
            ready["all_cpu"] = warm_up(on_cpu(work.fn), work.args)
    if "hand" in variants and name in BY_HAND and gpus:
        work = build(by_hand=True)
        ready["hand"] = warm_up(work.fn, work.args)

    rounds = interleaved({variant: ready[variant].step for variant in ready})
    record["step_ms"] = {variant: 1e3 * statistics.median(times) for variant, times in rounds.items()}
    record["rounds_ms"] = {variant: [1e3 * t for t in times] for variant, times in rounds.items()}
    record["first_call_s"] = {variant: ready[variant].first_call_s for variant in ready}
    record["peak_bytes"] = {variant: ready[variant].peak_bytes for variant in ready}
    record["seconds"] = time.perf_counter() - start
    return record


def two_cpu_machine() -> Any:
    """Two logical CPU devices in this process, and the machine that prices the second as a GPU."""
    from tests.helpers.machines import two_cpus

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return two_cpus()


def on_cpu(fn: Any) -> Callable[..., Any]:
    """The function called under CPU:0, which is where its ops then go."""

    def call(*args: Any) -> Any:
        with tf.device("/CPU:0"):
            return fn(*args)

    return call


def warm_up(fn: Callable[..., Any], args: tuple[Any, ...]) -> Variant:
    """Calls until allocators and autotuning have settled."""

    def step() -> None:
        tf.nest.flatten(fn(*args))[0].numpy()

    start = time.perf_counter()
    step()
    first_call_s = time.perf_counter() - start
    gpus = [f"GPU:{k}" for k in range(len(tf.config.list_logical_devices("GPU")))]
    for name in gpus:
        tf.config.experimental.reset_memory_stats(name)
    held = {name: tf.config.experimental.get_memory_info(name)["current"] for name in gpus}
    step()
    peak = {name: tf.config.experimental.get_memory_info(name)["peak"] for name in gpus}
    start = time.perf_counter()
    step()
    return Variant(step, first_call_s, peak, held, time.perf_counter() - start)


def interleaved(steps: dict[str, Callable[[], None]], within_s: float = WORKLOAD_S) -> dict[str, list[float]]:
    """Seconds a step by variant, one figure a round."""
    return time_in_turns(steps, within_s, rounds=ROUNDS, round_s=ROUND_S)


def describe(placement: Any) -> dict[str, Any]:
    """What a placement predicts, and its shape."""
    return {
        "step_ms": placement.step_time_ns / 1e6,
        "baselines_ms": {name: b.step_time_ns / 1e6 for name, b in placement.baselines.items() if b.feasible},
        "solver": placement.solver,
        "solver_s": placement.solver_seconds,
        "status": str(placement.status),
        "gap": 1 - placement.lower_bound_ns / placement.objective_ns if placement.objective_ns else 0.0,
        "ops": {device: total.ops for device, total in placement.totals.items()},
        "peak_bytes": {device: total.peak_bytes for device, total in placement.totals.items()},
        "transfers": len(placement.transfers),
        "transfer_bytes": sum(int(t.nbytes * t.count) for t in placement.transfers),
    }


def print_table(results: dict[str, dict[str, Any]]) -> None:
    """One line a workload: measured and predicted ms a step, then the plan's shape."""
    columns = [*VARIANTS, "predicted", "planning s", "ops", "transfers", "peak MB", "predicted MB"]
    print("\n" + f"{'ms a step':28}" + "".join(f"{column:>13}" for column in columns))
    for key, record in results.items():
        plan = record.get("placement")
        cells = [f"{record['step_ms'][v]:.3f}" if v in record["step_ms"] else "" for v in VARIANTS]
        if plan:
            last = list(plan["ops"])[-1]
            peak = record["peak_bytes"]["plan"].get(last)
            cells += [f"{plan['step_ms']:.3f}", f"{record['planning_s']:.2f}", "+".join(map(str, plan["ops"].values()))]
            cells += [str(plan["transfers"]), f"{peak / 1e6:.0f}" if peak else "", f"{plan['peak_bytes'][last] / 1e6:.0f}"]
        print(f"{key:28}" + "".join(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
