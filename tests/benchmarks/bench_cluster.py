"""Training steps over a cluster: on one worker by hand, by a plan, and by a plan for a model that fits no worker.

    python -m tests.benchmarks.bench_cluster --gpus 2 --json cluster.json

Starts two workers on this host, each with a GPU of its own; without `--gpus`, with one CPU device and a small model. The client
has no GPU. It measures the network first. Each way makes the same model and takes the same steps. Ends within 400 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from cost_models.host_cores import usable_cores
from placer.common.json_files import write_json
from placer.common.tables import table

WORKERS = 2
LOSSES, ROUNDS, ROUND_STEPS = 5, 10, 5
LAYERS = 6
FULL, SMALL = {"width": 8_192, "batch": 512}, {"width": 512, "batch": 32}
LIMIT_SHARE = 11 / 12
"""A memory limit, as a share of the bytes of all variables."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, choices=(0, WORKERS), default=0, help="GPUs of this host, one for each worker")
    parser.add_argument("--json", type=Path, default=Path("cluster.json"), help="where the results go")
    args = parser.parse_args()
    with workers(args.gpus) as addresses:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        results = measured(addresses, "GPU" if args.gpus else "CPU", FULL if args.gpus else SMALL)
    write_json(args.json, results)
    ways = results["ways"]
    first = next(iter(ways.values()))["losses"]
    rows = []
    for name, way in ways.items():
        difference = max(abs(a - b) / abs(b) for a, b in zip(way["losses"], first, strict=True))
        on = ", ".join(f"{count} on {device}" for device, count in way["ops"].items())
        predicted = f"{way['predicted_ms']:.1f}" if way["predicted_ms"] else ""
        rows.append([name, f"{way['median_ms']:.1f}", predicted, f"{difference:.1e}", on])
    print(table(["way", "ms a step", "predicted", "largest difference of losses", "ops"], rows))
    return 0


@contextmanager
def workers(gpus: int) -> Iterator[list[str]]:
    """Starts the workers, yields their addresses, and ends them."""
    command = [sys.executable, "-m", "placer", "worker", "--json", "--port", "0"]
    started = []
    try:
        for k in range(WORKERS):
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(k) if gpus else "-1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        yield [json.loads(each.stdout.readline())["address"] for each in started if each.stdout]
    finally:
        for each in started:
            each.kill()
            each.wait()


def measured(addresses: list[str], kind: str, size: dict[str, int]) -> dict[str, Any]:
    """The losses and the step times of each way, and the machine."""
    import numpy as np
    import tensorflow as tf

    import placer

    tf.config.experimental.enable_tensor_float_32_execution(False)
    placer.calibrate_network(workers=addresses, budget_s=20.0)
    machine = placer.cluster(workers=addresses)
    devices = [f"worker:{k}/{kind}:0" for k in range(WORKERS)]
    width, batch = size["width"], size["batch"]
    limit = f"{int(2 * LAYERS * 4 * width**2 * LIMIT_SHARE)}B"
    limits = dict.fromkeys((*devices, *(["CPU:0"] if kind == "CPU" else [])), limit)
    values = [np.random.default_rng(k).normal(0, width**-0.5, [width, width]).astype(np.float32) for k in range(LAYERS)]
    x = tf.constant(np.random.default_rng(LAYERS).normal(size=[batch, width]).astype(np.float32))
    wanted = tf.zeros([batch, width])

    def build() -> Callable[[Any, Any], Any]:
        weights = [tf.Variable(value, name=f"layer{k}") for k, value in enumerate(values)]
        momenta = [tf.Variable(tf.zeros_like(each), name=f"momentum{k}") for k, each in enumerate(weights)]

        def step(x: Any, wanted: Any) -> Any:
            with tf.GradientTape() as tape:
                h = x
                for each in weights:
                    h = tf.nn.relu(h @ each)
                loss = tf.reduce_mean((h - wanted) ** 2)
            for each, momentum, gradient in zip(weights, momenta, tape.gradient(loss, weights), strict=True):
                momentum.assign(0.9 * momentum + gradient)
                each.assign_sub(0.1 * momentum)
            return loss

        return step

    def by_hand() -> Any:
        first = f"/job:worker/replica:0/task:0/device:{kind}:0"
        with tf.device(first):
            step = build()

        @tf.function
        def on_one(x: Any, wanted: Any) -> Any:
            with tf.device(first):
                return step(x, wanted)

        return on_one

    def planned(**options: Any) -> Any:
        return placer.plan_then_create(build, [x, wanted], devices=machine, race="off", time_limit_s=20, **options)

    makers = {
        "one worker by hand": by_hand,
        "plan": planned,
        "plan, no worker holds the model": lambda: planned(memory_limits=limits),
    }
    return {
        "machine": {
            "gpus": [device.model for device in machine.devices if device.kind == "GPU"],
            "cores": usable_cores(),
            "tensorflow": tf.__version__,
        },
        "links": [
            {"from": link.src, "to": link.dst, "latency_ns": link.latency_ns, "bytes_per_s": link.bytes_per_s}
            for link in machine.links
            if link.src == "CPU:0"
        ],
        "size": size,
        "limit": limit,
        "ways": {name: timed(make(), x, wanted) for name, make in makers.items()},
    }


def timed(step: Any, x: Any, wanted: Any) -> dict[str, Any]:
    """The losses of the first steps, the times of later ones, and the plan if there is one."""
    losses = [float(step(x, wanted)) for _ in range(LOSSES)]
    rounds_ms = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(ROUND_STEPS):
            float(step(x, wanted))
        rounds_ms.append(1e3 * (time.perf_counter() - started) / ROUND_STEPS)
    plan = getattr(step, "placement", None)
    return {
        "losses": losses,
        "rounds_ms": rounds_ms,
        "median_ms": statistics.median(rounds_ms),
        "predicted_ms": plan.step_time_ns / 1e6 if plan else None,
        "ops": dict(sorted(Counter(op.device for op in plan.ops.values()).items())) if plan else {},
        "peak_bytes": {device: total.peak_bytes for device, total in plan.totals.items()} if plan else {},
    }


if __name__ == "__main__":
    sys.exit(main())
