"""Runs training steps that exceed a GPU's memory: TensorFlow's default, all on the CPU, a split by hand, placer's plan.

    python -m tests.benchmarks.bench_fit --devices two-cpu --size small
    python -m tests.benchmarks.bench_fit --json fit.json
    python -m tests.benchmarks.bench_fit --devices split adam deep

Each variant of each program of `tests/helpers/fitting.py` runs in a process of its own. The program's memory limit is
TensorFlow's limit of each GPU there, so a variant that needs more runs out of memory. Every variant makes the same model and
takes the same steps without TF32, so that losses can be compared. Then it is timed with TF32, as TensorFlow has it by default
and as costs are measured. Variants that the JSON file has already are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from placer.common.tables import table
from tests.helpers.fitting import FULL, SMALL, At, Program, crossings
from tests.helpers.machines import two_cpus, two_fast
from tests.helpers.measured_on import measured_on

if TYPE_CHECKING:
    from placer.plan.placement import Placement

VARIANTS = ("default", "all_cpu", "hand", "plan")
STEPS = 5
"""Whose losses are compared."""
ROUNDS, ROUND_S = 7, 0.3
CHILD_S = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FULL), help="programs; all if none is named")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated: %(default)s")
    parser.add_argument(
        "--devices",
        choices=("seen", "split", "two-cpu"),
        default="seen",
        help="the GPUs that are here; the first of them as two logical ones; or two logical CPUs",
    )
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--json", type=Path, default=Path("fit.json"), help="results, read first to skip what is there")
    parser.add_argument("--plans", type=Path, help="folder to save the plans in")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in FULL]:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(FULL)}")
    if args.one:
        args.one.write_text(json.dumps(measured(args.names[0], args.variants, args)))
        return 0
    results: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json.exists() else {}
    for name in args.names:
        for variant in args.variants.split(","):
            key = f"{name}/{args.size}/{args.devices}"
            if variant not in results.setdefault(key, {}):
                results[key][variant] = in_its_process(name, variant, args)
                args.json.write_text(json.dumps(results, indent=1))
    print_table(results)
    return 0


def in_its_process(name: str, variant: str, args: argparse.Namespace) -> dict[str, Any]:
    """What a variant does, or what it dies of."""
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder) / "record.json"
        flags = ["--variants", variant, "--devices", args.devices, "--size", args.size, "--one", str(one)]
        flags += ["--plans", str(args.plans)] if args.plans else []
        command = [sys.executable, "-m", "tests.benchmarks.bench_fit", name, *flags]
        try:
            run = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=CHILD_S)
        except subprocess.TimeoutExpired:
            return {"died": f"not done within {CHILD_S} s"}
        if run.returncode == 0:
            return dict(json.loads(one.read_text()))
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        said = next((line for line in reversed(lines) if "Error" in line or "OOM" in line), lines[-1] if lines else "")
        print(f"{name}, {variant}:\n{run.stderr[-4000:]}", file=sys.stderr)
        return {"died": said[:300]}


def measured(name: str, variant: str, args: argparse.Namespace) -> dict[str, Any]:
    """The losses of some steps, the time of one, peak memory, and for a plan what it promised and what crossed."""
    import tensorflow as tf

    from placer.tf._private.runtime import recorded_partitions
    from placer.tf.run.timing import blocking_step, mean_seconds

    program = (SMALL if args.size == "small" else FULL)[name]()
    fast = fast_devices(program, args.devices)
    record: dict[str, Any] = {"fast": fast, "limit_bytes": program.limit_bytes, "machine": measured_on()}
    if variant == "plan":
        import placer

        started = time.perf_counter()
        options: dict[str, Any] = {}
        if args.devices == "two-cpu":
            limit = program.limit_bytes
            options = {"devices": two_cpus() if program.fast == 1 else two_fast()}
            options["memory_limits"] = {} if limit is None else dict.fromkeys(fast, limit)
        step, _ = placer.plan_then_create(lambda: program.make(anywhere), program.args, **options)
        record["planning_s"] = time.perf_counter() - started
        if args.plans:
            args.plans.mkdir(parents=True, exist_ok=True)
            step.placement.save(args.plans / f"{name}.json")
        with recorded_partitions() as recorded:
            first = float(step(*program.args))
        record |= compared(step.placement, crossings(step.placement, recorded))
    else:
        with tf.device("CPU:0") if variant == "all_cpu" else contextlib.nullcontext():
            plain = tf.function(program.make(by_hand(program, fast) if variant == "hand" else anywhere)[0])

        def step(*given: Any) -> Any:
            with tf.device("CPU:0") if variant == "all_cpu" else contextlib.nullcontext():
                return plain(*given)

        first = float(step(*program.args))
    record["losses"] = [first, *(float(step(*program.args)) for _ in range(STEPS - 1))]
    tf.config.experimental.enable_tensor_float_32_execution(True)
    gpus = tf.config.list_logical_devices("GPU")
    record["peak_bytes"] = {f"GPU:{i}": tf.config.experimental.get_memory_info(f"GPU:{i}")["peak"] for i in range(len(gpus))}
    once = blocking_step(step, program.args)
    repeats = max(1, int(ROUND_S / mean_seconds(once, 1)))
    rounds = [1e3 * mean_seconds(once, repeats) for _ in range(ROUNDS)]
    return record | {"step_ms": statistics.median(rounds), "rounds_ms": rounds}


def compared(placement: Placement, crossed: Mapping[str, int]) -> dict[str, Any]:
    """What a plan promised, beside what crossed between devices."""
    promised = Counter({t.tensor: 0 for t in placement.transfers if t.src != t.dst and t.nbytes})
    for transfer in placement.transfers:
        if transfer.src != transfer.dst and transfer.nbytes:
            promised[transfer.tensor] += round(transfer.nbytes * transfer.count)
    made = [name for name in crossed if placement.graph.op(name.rpartition(":")[0]).role != "argument"]
    return {
        "predicted_ms": placement.step_time_ns / 1e6,
        "predicted_peak_bytes": {device: totals.peak_bytes for device, totals in placement.totals.items()},
        "predicted_crossing_bytes": sum(promised.values()),
        "crossing_bytes": sum(crossed.values()),
        "crossings": len(crossed),
        "forward_crossings": sum(not name.startswith("gradient_tape/") for name in made),
        "default": placement.baselines["tf_default"].note,
        "status": placement.status.value,
        "gap": placement.gap,
    }


def fast_devices(program: Program, devices: str) -> list[str]:
    """Makes the devices, with the program's limit on each GPU, and names those it is for."""
    import tensorflow as tf

    limit = None if program.limit_bytes is None else program.limit_bytes >> 20
    if devices == "two-cpu":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        return ["CPU:1"] if program.fast == 1 else ["CPU:0", "CPU:1"]
    gpus = tf.config.list_physical_devices("GPU")
    used = gpus[:1] if devices == "split" else gpus[: program.fast]
    tf.config.set_visible_devices(used, "GPU")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    parts = program.fast if devices == "split" else 1
    for gpu in used:
        if limit is not None or parts > 1:
            each = tf.config.LogicalDeviceConfiguration(memory_limit=limit or 20_000)
            tf.config.set_logical_device_configuration(gpu, [each] * parts)
    names = [f"GPU:{i}" for i in range(len(used) * parts)]
    if len(names) < program.fast:
        raise SystemExit(f"Error: it is for {program.fast} GPUs, and {len(names)} are here")
    return names


def anywhere(_: str) -> AbstractContextManager[Any]:
    """Asks for no device."""
    return contextlib.nullcontext()


def by_hand(program: Program, fast: Sequence[str]) -> At:
    """The scopes an expert would write."""
    import tensorflow as tf

    return lambda part: tf.device("CPU:0" if program.hand[part] < 0 else fast[program.hand[part]])


def print_table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Losses are compared with those of all on the CPU."""
    rows = []
    for key, variants in results.items():
        reference = variants.get("all_cpu", {}).get("losses")
        for variant, record in variants.items():
            if "died" in record:
                rows.append([key, variant, "died", "", "", "", record["died"][:60]])
                continue
            off = max(
                (abs(a - b) / abs(b) for a, b in zip(record["losses"], reference or (), strict=False)), default=float("nan")
            )
            peaks = ", ".join(f"{peak / 2**20:.0f}" for peak in record["peak_bytes"].values())
            promised = ", ".join(
                f"{record['predicted_peak_bytes'][d] / 2**20:.0f}" for d in record["fast"] if "predicted_peak_bytes" in record
            )
            step = f"{record['step_ms']:.2f}" + (f" [{record['predicted_ms']:.2f}]" if "predicted_ms" in record else "")
            bytes_ = f"{record['predicted_crossing_bytes']} {record['crossing_bytes']}" if "crossing_bytes" in record else ""
            crossings = f"{record['crossings']} ({record['forward_crossings']} forward)" if "crossings" in record else ""
            rows.append([key, variant, step, f"{off:.1e}", f"{peaks} [{promised}]", bytes_, crossings])
    print(
        table(
            ["program", "variant", "ms [predicted]", "loss off", "peak MiB [predicted]", "crossing bytes: predicted, seen", ""],
            rows,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
