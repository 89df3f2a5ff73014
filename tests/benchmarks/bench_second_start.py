"""Measures what planning costs in the first start of a program, and in a second one that finds the plan remembered.

    python -m tests.benchmarks.bench_second_start [--layers 12]

Each start is a process of its own with the training step of a stacked encoder. A small function is placed before, which imports
all modules. Times are CPU times of the main thread, so that other programs on the host change them little. Without a GPU it plans
for two logical CPU devices, one of which is priced as a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12, help="layers of the encoder")
    parser.add_argument("--start", action="store_true", help="be one start, and print its times as JSON")
    args = parser.parse_args()
    if args.start:
        print(json.dumps(start(args.layers)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.bench_second_start", "--start", "--layers", str(args.layers)]
        environment = os.environ | {"PLACER_CACHE": folder}
        runs = [subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True) for _ in range(2)]
    first, second = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    print(f"{'ms of CPU time':<36}{'first start':>12}{'second start':>14}")
    for part, ms in first.items():
        print(f"{part:<36}{ms:>12.0f}{second[part]:>14.0f}")
    return 0


def start(layers: int) -> dict[str, float]:
    """The CPU times of one start in ms, by part."""
    import tensorflow as tf

    import placer
    from examples.workloads import encoder_training
    from placer.tf.run.eligibility import trace_if_placeable
    from tests.benchmarks.bench_planning import machine_to_plan_for

    machine = machine_to_plan_for()
    placer.place(tf.tanh, tf.constant(1.0), devices=machine, variables="fixed", race="off")(tf.constant(1.0))
    work = encoder_training("full", layers)
    concrete, trace_ms = timed(lambda: work.fn.get_concrete_function(*work.args))
    _, read_ms = timed(lambda: trace_if_placeable(concrete, work.args, {}))
    placed, place_ms = timed(lambda: placer.place(work.fn, *work.args, devices=machine, variables="fixed", race="off"))
    _, rewrite_ms = timed(lambda: placed.prepare(*work.args))
    _, whole_ms = timed(lambda: placed.placement)
    return {
        "tracing, by TensorFlow": trace_ms,
        "reading the trace": read_ms,
        "planning": place_ms - read_ms,
        "rewriting": rewrite_ms,
        "step.placement, when it is asked for": whole_ms,
    }


def timed(action: Callable[[], T]) -> tuple[Any, float]:
    """The result of an action, and the CPU time that it took on this thread, in ms."""
    started = time.thread_time()
    result = action()
    return result, 1e3 * (time.thread_time() - started)


if __name__ == "__main__":
    sys.exit(main())
