"""Measures what a call of a placed function takes beyond a call of the plain one, with everything on one device.

    python -m tests.benchmarks.bench_call_overhead

The functions are small and on CPU:0, so that the call itself is most of the time. "placed" is a function that does not race,
and "raced" one whose race is over. They take turns in rounds.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import placer
from examples.workloads import Workload, mlp_inference, mlp_training
from tests.benchmarks.bench_step_time import two_cpu_machine

ROUNDS = 40
CALLS = 100


def main() -> int:
    two_cpu_machine()  # with one device, nothing races
    print(f"{'us a call':20}{'plain':>9}{'placed':>9}{'raced':>9}{'placed/plain':>14}{'raced/plain':>14}")
    with tf.device("/CPU:0"):
        for build in (one_op, one_array, mlp_inference, mlp_training):
            work = build()
            placed = placer.place(work.fn, *work.args, pins={"*": "/CPU:0"}, variables="move")
            raced_work = build()
            raced = placer.place(raced_work.fn, variables="fixed", race="force")
            functions = [(work.fn, work.args), (placed, work.args), (raced, raced_work.args)]
            for _ in range(CALLS):
                for fn, args in functions:
                    fn(*args)
            times_us: list[list[float]] = [[], [], []]
            for i in range(ROUNDS):
                for k in (0, 1, 2) if i % 2 else (2, 1, 0):
                    times_us[k].append(call_us(*functions[k]))
            plain_us, placed_us, raced_us = map(statistics.median, times_us)
            times = f"{plain_us:>9.1f}{placed_us:>9.1f}{raced_us:>9.1f}"
            print(f"{build.__name__:20}{times}{placed_us / plain_us:>14.3f}{raced_us / plain_us:>14.3f}")
    return 0


def one_op() -> Workload:
    """The least a function can do."""
    return Workload(tf.function(lambda x: x + 1.0), (tf.zeros([8]),), (), trains=False)


def one_array() -> Workload:
    """The same of an array, by whose type TensorFlow finds the trace."""
    return Workload(tf.function(lambda x: x + 1.0), (np.zeros(8, np.float32),), (), trains=False)


def call_us(fn: Any, args: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        fn(*args)
    return 1e6 * (time.perf_counter() - start) / CALLS


if __name__ == "__main__":
    sys.exit(main())
