"""Compares what a race and `tune` choose with every simple way to run a step, on one machine.

    python -m tests.benchmarks.bench_choice --json choice.json --table choice.md
    python -m tests.benchmarks.bench_choice --only kalman_loop,mlp_serving --no-tune

Each step runs in a process of its own, which finds an empty cache. Its variants take turns in rounds, and each round starts with
another variant. A call ends when its results are there. A figure is the median over the rounds of the mean call of a round. Steps
that the JSON file has already are not measured again. If a compiled variant takes too long to make and to warm up, the process
ends, and another one measures the step without that variant.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

import placer
from examples.workloads import Workload
from placer.tf.run.timing import blocking_step, warm_up
from tests.benchmarks.bench_step_time import WORKLOAD_S, interleaved, on_cpu, two_cpu_machine
from tests.benchmarks.cases import field_steps, workloads
from tests.benchmarks.choice_table import markdown, summary

MAX_COMPILED_OPS = 6000
"""XLA takes about 10 ms for an op. Larger functions are not compiled."""
MAX_RACED_CALLS, MAX_RACED_S = 160, 30.0
"""Limits of the calls in which a race may end."""
SETTLED_CALLS = 40
"""A race has ended, with the trial of moved variables after it, if the verdict is the same for this many calls."""
SLOW = 10
"""A variant whose warm call takes this multiple of the shortest one has no part in the rounds; that call is its figure."""
COMPILED = {"compiled on CPU": "/CPU:0", "compiled on GPU": "/GPU:0"}
"""The variants that XLA compiles, with the device of each."""
MAKING = "making "
"""Begins the line that says which variant is made next."""
TOO_LONG = 75
"""Exit code of a process in which a compiled variant took too long."""
FIRST = (
    "svd_then_matmul", "mlp_inference", "mlp_training", "unique_then_matmul", "attention_forward", "sort_unique_segment",
    "wide_mlp_training", "attention_training", "augmented_convolutions", "detector_256", "recommender", "detector_512",
    "lstm_then_wide", "towers_2_training", "encoder", "mlp_40_training", "resnet50", "decoding",
)  # fmt: skip
"""Steps that are measured before all others. Those of this package are in the order of their recorded step times."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated names of steps; all by default")
    parser.add_argument("--field", type=Path, default=Path("../shared/field"), help="folder of field.py: %(default)s")
    parser.add_argument("--budget-s", type=float, default=30.0, help="of tune, for each step: %(default)s")
    parser.add_argument("--no-tune", action="store_true", help="leaves out the variant after tune")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="of each process: %(default)s")
    parser.add_argument(
        "--compile-s", type=float, default=30.0, help="limit for each compiled variant, until it is warm: %(default)s"
    )
    parser.add_argument("--without", action="append", default=[], choices=COMPILED, help=argparse.SUPPRESS)
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--size", choices=("full", "small"), default="full", help="of the package's own steps")
    parser.add_argument("--json", type=Path, default=Path("choice.json"), help="results, read first to skip what is there")
    parser.add_argument("--table", type=Path, help="file to write the Markdown table to")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    builders = all_builders(args.field, args.size)
    names = (
        args.only.split(",")
        if args.only
        else [*filter(builders.__contains__, FIRST), *(name for name in builders if name not in FIRST)]
    )
    if unknown := [name for name in names if name not in builders]:
        parser.error(f"no step {', '.join(unknown)}; there are {', '.join(builders)}")
    if args.one:
        machine = two_cpu_machine() if args.devices == "two-cpu" else None
        budget_s = None if args.no_tune else args.budget_s
        record = measure(builders[names[0]], machine, budget_s, without=args.without, compile_s=args.compile_s)
        args.one.write_text(json.dumps(record))
        return 0
    return measure_all(names, args)


def all_builders(field: Path, size: Any) -> dict[str, Callable[[], Workload]]:
    """By name, functions that build the steps of the field, if its file is there, and of this package; those of `FIRST` first."""
    if not (field / "field.py").is_file():
        print(f"{field} has no field.py, so its steps are left out", file=sys.stderr)
    steps = {**(field_steps(field) if (field / "field.py").is_file() else {}), **workloads()}
    return {name: partial(build, size) for name in (*FIRST, *steps) if (build := steps.get(name)) is not None}


def measure_all(names: list[str], args: argparse.Namespace) -> int:
    """Measures each step in a process of its own and keeps the files current; 1 if one of them failed."""
    records: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json.exists() else {}
    failed = []
    for name in names:
        if name not in records:
            started = time.monotonic()
            found = in_child(name, args)
            if isinstance(found, str):
                failed.append(name)
                print(f"{name} failed: {found}", file=sys.stderr, flush=True)
                continue
            in_field = (args.field / "field.py").is_file() and name not in workloads()
            records[name] = {**found, "set": "field" if in_field else "own"}
            args.json.write_text(json.dumps(records, indent=1))
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            if args.table:
                args.table.write_text(markdown(records) + "\n")
    print(f"{markdown(records)}\n\n{summary(records)}")
    return bool(failed)


def in_child(name: str, args: argparse.Namespace) -> dict[str, Any] | str:
    """The record of a step, or why there is none."""
    without: list[str] = [*args.without]
    while True:
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "record.json"
            flags = ["--only", name, "--field", str(args.field), "--budget-s", str(args.budget_s), "--devices", args.devices]
            flags += ["--size", args.size, "--compile-s", str(args.compile_s), "--one", str(one)]
            flags += [*(["--no-tune"] if args.no_tune else []), *(f"--without={variant}" for variant in without)]
            command = [sys.executable, "-m", "tests.benchmarks.bench_choice", *flags]
            environment = {**os.environ, "PLACER_CACHE": folder}
            try:
                run = subprocess.run(
                    command, check=False, stderr=subprocess.PIPE, text=True, env=environment, timeout=args.timeout_s
                )
            except subprocess.TimeoutExpired as error:
                output = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
                return f"it took more than {args.timeout_s:.0f} s; {output.strip().splitlines()[-1:]}"
            if run.returncode == TOO_LONG:
                without += [line.removeprefix(MAKING) for line in run.stderr.splitlines() if line.startswith(MAKING)][-1:]
                print(f"{name}: again without {without[-1]}, which took more than {args.compile_s:.0f} s", file=sys.stderr)
            elif run.returncode:
                return run.stderr[-3000:]
            else:
                record: dict[str, Any] = json.loads(one.read_text())
                record["refused"] |= dict.fromkeys(without, f"it took more than {args.compile_s:.0f} s to make and to warm up")
                return record


# -- one step ----------------------------------------------------------------------------------------------------------


def measure(
    build: Callable[[], Workload],
    machine: Any,
    budget_s: float | None,
    within_s: float = WORKLOAD_S,
    without: Collection[str] = (),
    compile_s: float = math.inf,
) -> dict[str, Any]:
    """Everything there is to say about one step, ready for JSON.

    Args:
        build: makes the step with variables of its own.
        machine: to plan for; None for the devices of this process.
        budget_s: of `tune`; None to leave it out.
        within_s: no round starts after this time, once there are a few.
        without: names of variants to leave out.
        compile_s: how long XLA and the first calls of a compiled variant may take. If they take longer, the process ends with
            `TOO_LONG`, since TensorFlow cannot be interrupted.
    """
    gpus = tf.config.list_physical_devices("GPU")
    model = tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "no GPU"
    record: dict[str, Any] = {"device": model, "cores": os.cpu_count(), "tensorflow": tf.__version__, "refused": {}, "made_s": {}}
    variants = Variants(build, machine, budget_s)
    steps: dict[str, Callable[[], None]] = {}
    alone_s: dict[str, float] = {}
    for name, make in variants.makers().items():
        if name in without:
            continue
        print(MAKING + name, file=sys.stderr, flush=True)
        started = time.perf_counter()
        try:
            with limited(compile_s if name in COMPILED else math.inf):
                step = make()
                refused = warm_up(step)
        except Exception as error:
            refused = f"{type(error).__name__}: {error}"
        if refused:
            record["refused"][name] = refused[:300]
            continue
        record["made_s"][name] = time.perf_counter() - started
        started = time.perf_counter()
        step()
        steps[name], alone_s[name] = step, time.perf_counter() - started
    print("timing rounds", file=sys.stderr, flush=True)
    shortest_s = min(alone_s.values())
    rounds = {name: [seconds] for name, seconds in alone_s.items()}
    rounds |= interleaved({name: step for name, step in steps.items() if alone_s[name] < SLOW * shortest_s}, within_s)
    record["ms"] = {name: 1e3 * statistics.median(times) for name, times in rounds.items()}
    record["rounds_ms"] = {name: [1e3 * seconds for seconds in times] for name, times in rounds.items()}
    record |= variants.said
    if "raced" in record["ms"]:
        later_s = record["ms"]["raced"] / 1e3
        record["race"]["paid_s"] = sum(max(0.0, seconds - later_s) for seconds in record["race"]["seconds"][1:])
    return record


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Ends the process with `TOO_LONG` if the block takes longer."""
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), os._exit, [TOO_LONG])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Variants:
    """The ways to run one step. Each makes a call that ends when its results are there.

    Args:
        build, machine, budget_s: as for `measure`.
    """

    def __init__(self, build: Callable[[], Workload], machine: Any, budget_s: float | None) -> None:
        self._build, self._machine, self._budget_s = build, machine, budget_s
        self.said: dict[str, Any] = {}
        """What the race and `tune` report."""

    def makers(self) -> dict[str, Callable[[], Callable[[], None]]]:
        """By name, functions that make the call. The compiled ones come first: one that takes too long ends the process."""
        makers = {
            **{name: partial(self._compiled, device) for name, device in COMPILED.items()},
            "default": self._default,
            "all CPU": partial(self._plan, solver="all_cpu"),
            "all CPU, variables there": self._all_cpu,
            "plan": self._plan,
            "plan, variables moved": self._plan_moved,
            "raced": self._raced,
            "tuned": self._tuned,
        }
        if not tf.config.list_logical_devices("GPU"):
            del makers["compiled on GPU"]
        if self._budget_s is None or not hasattr(placer.PlacedFunction, "tune"):
            del makers["tuned"]
        return makers

    def _fresh(self) -> Workload:
        """The step with new variables, which may move; all have the same values."""
        keras.utils.set_random_seed(7)
        return self._build()

    @cached_property
    def _usual(self) -> Workload:
        """The step with variables and arguments where TensorFlow puts them."""
        return self._fresh()

    @cached_property
    def _ops(self) -> int:
        return len(placer.build_graph(self._usual.fn, *self._usual.args))

    def _default(self) -> Callable[[], None]:
        return blocking_step(self._usual.fn, self._usual.args)

    def _plan(self, **options: Any) -> Callable[[], None]:
        work = self._usual
        options = {"devices": self._machine, "variables": "fixed", "race": "off", **options}
        return blocking_step(placer.place(work.fn, *work.args, **options), work.args)

    def _plan_moved(self) -> Callable[[], None]:
        work = self._fresh()
        placed = placer.optimized_placement(work.fn, devices=self._machine, variables="move", race="off")
        return blocking_step(placed, work.args)

    def _all_cpu(self) -> Callable[[], None]:
        with tf.device("/CPU:0"):
            work = self._fresh()
        return blocking_step(on_cpu(work.fn), work.args)

    def _compiled(self, device: str) -> Callable[[], None]:
        if self._ops > MAX_COMPILED_OPS:
            raise RuntimeError(f"not compiled: it has {self._ops} ops")
        with tf.device(device):
            work = self._fresh()
        compiled = tf.function(work.fn.python_function, jit_compile=True)
        return blocking_step(on_cpu(compiled) if device == "/CPU:0" else compiled, work.args)

    def _raced(self) -> Callable[[], None]:
        """The decorated function with the default options, after as many calls as its race takes."""
        work = self._fresh()
        placed = placer.optimized_placement(work.fn, devices=self._machine)
        step = blocking_step(placed, work.args)
        seconds: list[float] = []
        verdicts: list[object] = []
        unchanged = 0
        while unchanged < SETTLED_CALLS and len(seconds) < MAX_RACED_CALLS and sum(seconds) < MAX_RACED_S:
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
            latest = [plan.verdict for plan in placed.placements.values() if plan.verdict]
            unchanged = unchanged + 1 if latest and latest == verdicts else 0
            verdicts = [*latest]
        self.said["race"] = {"seconds": seconds}
        for plan in placed.placements.values():  # there is one, unless the function is left as it is
            verdict = plan.verdict and plan.verdict.to_json()
            self.said["race"] |= {"verdict": verdict, "notes": list(plan.notes), "summary": plan.summary()}
        return step

    def _tuned(self) -> Callable[[], None]:
        work = self._fresh()
        placed = placer.optimized_placement(work.fn, devices=self._machine)
        started = time.perf_counter()
        report = placed.tune(*work.args, budget_s=self._budget_s)
        self.said["tune"] = {"seconds": time.perf_counter() - started, "report": str(report)}
        return blocking_step(placed, work.args)


if __name__ == "__main__":
    sys.exit(main())
