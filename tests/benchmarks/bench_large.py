"""Measures what placing takes for a function with very many variables, and for one with very many ops, beside the plain function.

    python -m tests.benchmarks.bench_large [--variables 10000] [--layers 50]

Each row is a process of its own on two logical CPUs. "trace s" and "call s" are processor time for the trace, with the plan where
there is one, and for the first call. "MiB" is by how much the process grew.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("plain", "fixed", "move")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variables", type=int, default=10_000)
    parser.add_argument("--layers", type=int, default=50, help="of an encoder's training step: about 1,000 ops each")
    parser.add_argument("--row", nargs=2, metavar=("WHAT", "WAY"), help="one row, in this process")
    args = parser.parse_args()
    if args.row:
        what, way = args.row
        print(row(*(of_variables(args.variables, way) if what == "variables" else of_ops(args.layers, way)), way))
        return 0
    print(f"{'':24}{'trace s':>10}{'call s':>10}{'MiB':>10}")
    sizes = ["--variables", str(args.variables), "--layers", str(args.layers)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PLACER_CACHE": os.devnull}
    for what, way in [("variables", way) for way in WAYS] + [("ops", way) for way in WAYS[:2]]:
        command = [sys.executable, "-m", "tests.benchmarks.bench_large", *sizes, "--row", what, way]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        size = f"{args.variables} variables" if what == "variables" else f"{args.layers} layers"
        print(f"{size + ', ' + way:24}{done.stdout.strip()}", flush=True)
    return 0


def of_variables(count: int, way: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function that adds up variables; where they move, all of them do."""
    tf = two_devices()
    with tf.device("CPU:0"):
        variables = [tf.Variable(tf.ones([4])) for _ in range(count)]

    def total(x: Any) -> Any:
        for variable in variables:
            x = x + variable
        return x

    return tf.function(total), (tf.ones([4]),), {"pins": {"*": "CPU:1"}} if way == "move" else {}


def of_ops(layers: int, _: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The training step of an encoder."""
    two_devices()
    from examples.workloads import encoder_training

    work = encoder_training("full", layers)
    return work.fn, work.args, {}


def two_devices() -> Any:
    """TensorFlow with two logical CPUs."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf


def row(fn: Any, args: tuple[Any, ...], options: dict[str, Any], way: str) -> str:
    """The figures of a trace and a first call."""
    import placer
    from tests.helpers.machines import two_cpus

    before = resident_mib()
    if way == "plain":
        _, trace_s = processor_s(lambda: fn.get_concrete_function(*args))
        called = fn
    else:
        machine = two_cpus(link_latency_ns=70_000)
        called, trace_s = processor_s(
            lambda: placer.place(fn, *args, devices=machine, variables=way, race="off", **options)  # type: ignore[arg-type]
        )
    _, call_s = processor_s(lambda: called(*args))
    return f"{trace_s:10.1f}{call_s:10.1f}{resident_mib() - before:10}"


def processor_s(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the time of all threads that it takes, in s."""
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def resident_mib() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


if __name__ == "__main__":
    sys.exit(main())
