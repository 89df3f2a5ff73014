"""Measures what a call of a placed function takes beyond a call of the plain one, with everything on one device.

    python -m tests.benchmarks.bench_call_overhead

The functions are small and on CPU:0, so that the call itself is most of the time. Plain and placed calls take turns in rounds.
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

ROUNDS = 40
CALLS = 100


def main() -> int:
    print(f"{'us a call':20}{'plain':>9}{'placed':>9}{'more':>9}{'ratio':>9}")
    with tf.device("/CPU:0"):
        for build in (one_op, one_array, mlp_inference, mlp_training):
            work = build()
            placed = placer.place(work.fn, *work.args, pins={"*": "/CPU:0"}, variables="move")
            for _ in range(CALLS):
                work.fn(*work.args), placed(*work.args)
            plain_us: list[float] = []
            placed_us: list[float] = []
            for i in range(ROUNDS):
                runs = [(work.fn, plain_us), (placed, placed_us)]
                for fn, times in runs if i % 2 else reversed(runs):
                    times.append(call_us(fn, work.args))
            plain, other = statistics.median(plain_us), statistics.median(placed_us)
            print(f"{build.__name__:20}{plain:>9.1f}{other:>9.1f}{other - plain:>9.1f}{other / plain:>9.3f}")
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
