"""Latencies of requests from several threads, of a plain function and of the same function served by placer.

    python -m tests.benchmarks.bench_serving [--threads 8] [--seconds 10]
    python -m tests.benchmarks.bench_serving --devices two-cpu

Each thread makes one request after another, with batches of random sizes. The plain and the placed function take turns in
rounds, so that both meet the same load of the machine. A request ends when its results are in host memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import placer

LARGEST = 32
ROUNDS = 5
PERCENTILES = (50, 90, 99)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each function is called in all")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    args = parser.parse_args()
    if args.devices == "two-cpu":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(f"{'':12}{'':8}{'requests/s':>12}" + "".join(f"{f'p{p} ms':>10}" for p in PERCENTILES) + f"{'slowest':>10}")
    for name, build in MODELS.items():
        plain, feature_shape = build()
        served = placer.serve(plain, tf.TensorSpec([None, *feature_shape]), batch_sizes=(1, LARGEST))
        served.warm_up()
        batches = [tf.random.stateless_uniform([size, *feature_shape], [size, 0]) for size in range(1, LARGEST + 1)]
        for batch in batches:
            np.testing.assert_allclose(served(batch), plain(batch), rtol=1e-2, atol=1e-3)
        latencies: dict[str, list[float]] = {"plain": [], "placed": []}
        for i in range(ROUNDS):
            turns = [("plain", plain), ("placed", served)]
            for kind, function in turns if i % 2 else reversed(turns):
                latencies[kind] += requests(function, batches, args.threads, args.seconds / ROUNDS)
        for kind, seconds in latencies.items():
            figures = [1e3 * float(np.percentile(seconds, p)) for p in PERCENTILES] + [1e3 * max(seconds)]
            print(f"{name:12}{kind:8}{len(seconds) / args.seconds:>12.0f}" + "".join(f"{ms:>10.2f}" for ms in figures))
        used = {f"{bucket.low}-{bucket.high}": verdict(bucket.placement) for bucket in served.buckets}
        print(f"{name:12}{used}")
    return 0


def verdict(placement: placer.Placement) -> str:
    return "no race" if placement.verdict is None else placement.verdict.used


def requests(function: Callable[..., Any], batches: list[Any], threads: int, seconds: float) -> list[float]:
    """The seconds of each request that threads make in the given time."""
    latencies: list[list[float]] = [[] for _ in range(threads)]
    end = time.perf_counter() + seconds

    def client(k: int) -> None:
        draw = np.random.default_rng(k)
        while (start := time.perf_counter()) < end:
            function(batches[draw.integers(len(batches))]).numpy()
            latencies[k].append(time.perf_counter() - start)

    clients = [threading.Thread(target=client, args=(k,)) for k in range(threads)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return [s for of_thread in latencies for s in of_thread]


def mlp() -> tuple[Any, tuple[int, ...]]:
    """Three small dense layers: a GPU's default is slower than the CPU."""
    weights = [tf.Variable(tf.random.stateless_normal([64, 64], [k, 1], stddev=0.1)) for k in range(3)]

    @tf.function(input_signature=[tf.TensorSpec([None, 64])])
    def run(x: Any) -> Any:
        for w in weights:
            x = tf.nn.relu(x @ w)
        return x

    return run, (64,)


def recurrent() -> tuple[Any, tuple[int, ...]]:
    """A loop of small products, then a wide layer."""
    w = tf.Variable(tf.random.stateless_normal([64, 64], [1, 1], stddev=0.1))
    wide = tf.Variable(tf.random.stateless_normal([64, 2048], [2, 1], stddev=0.1))
    out = tf.Variable(tf.random.stateless_normal([2048, 2048], [3, 1], stddev=0.02))

    @tf.function(input_signature=[tf.TensorSpec([None, 64])])
    def run(x: Any) -> Any:
        for _ in tf.range(32):
            x = tf.tanh(x @ w)
        return tf.nn.relu(x @ wide) @ out

    return run, (64,)


def convolution() -> tuple[Any, tuple[int, ...]]:
    """A stack of convolutions, which belongs on a GPU."""
    kernels = [tf.Variable(tf.random.stateless_normal([3, 3, c, 32], [c, 1], stddev=0.1)) for c in (3, 32, 32)]

    @tf.function(input_signature=[tf.TensorSpec([None, 64, 64, 3])])
    def run(x: Any) -> Any:
        for kernel in kernels:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return tf.reduce_mean(x, [1, 2])

    return run, (64, 64, 3)


MODELS = {"mlp": mlp, "recurrent": recurrent, "convolution": convolution}


if __name__ == "__main__":
    sys.exit(main())
