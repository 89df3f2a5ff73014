"""Training steps of a recommender from strings under a MirroredStrategy: TensorFlow's default, and placed.

    python -m tests.benchmarks.bench_strategy --json strategy.json

The replicas run on all GPUs; without a GPU, on two logical CPU devices beside the host's, with a small model. Each variant makes
the same model, takes the same steps and runs in a process of its own. "placed" is what `placer.place` does by itself; "plan" runs
the best plan even if its gain is not beyond doubt (race="off"). Ends within 200 s.
`--parts 2` splits each GPU into two logical GPUs, for a machine with one: the replicas share it, and gradients are copied in its
memory.
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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from placer.common.json_files import write_json
from placer.common.tables import table

VARIANTS = ("default", "placed", "plan")
CHILD_S = 62
"""For each variant."""
LOSSES = 10
"""Steps whose losses are compared."""
TIMED_S, ROUND_STEPS = 8.0, 10
BATCHES = 4
FULL = {"batch": 4_096, "fields": 8, "history": 20, "rows": 50_000, "columns": 32, "layers": (1_024, 512, 256)}
SMALL = {"batch": 64, "fields": 2, "history": 5, "rows": 500, "columns": 8, "layers": (32,)}
"""The batch of each replica, columns of strings, the most items of a history, rows and columns of each table, layers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("strategy.json"), help="where the results go")
    parser.add_argument("--parts", type=int, default=1, help="logical GPUs of each GPU")
    parser.add_argument("--one", nargs=2, metavar=("VARIANT", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        write_json(args.one[1], measured(args.one[0], args.parts))
        return 0
    results = {variant: in_its_process(variant, args.parts) for variant in VARIANTS}
    write_json(args.json, results)
    default = results["default"]
    rows = []
    for variant, found in results.items():
        if "error" in found:
            rows.append([variant, found["error"], "", "", ""])
            continue
        pairs = zip(found["losses"], default.get("losses", ()), strict=False)
        difference = max((abs(a - b) / abs(b) for a, b in pairs), default=float("nan"))
        on = ", ".join(f"{count} on {device}" for device, count in found["ops"].items())
        rows.append([variant, f"{found['median_ms']:.2f}", f"{found['first_s']:.1f}", f"{difference:.1e}", on])
    print(f"{default.get('replicas', '?')} replicas")
    print(table(["variant", "ms a step", "first step, s", "largest difference of losses", "ops of a replica"], rows))
    return int(any("error" in found for found in results.values()))


def in_its_process(variant: str, parts: int) -> dict[str, Any]:
    """What a variant measured, or what it died of."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, "-m", "tests.benchmarks.bench_strategy", "--parts", str(parts), "--one", variant, str(record)]
        try:
            done = subprocess.run(command, timeout=CHILD_S, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {CHILD_S} s"}
        if record.exists():
            found: dict[str, Any] = json.loads(record.read_text())
            return found
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}


def measured(variant: str, parts: int) -> dict[str, Any]:
    """The losses and the step times of a variant, and where its plan has the ops of a replica."""
    import keras
    import tensorflow as tf

    import placer
    from tests.helpers.machines import cpus
    from tests.helpers.measured_on import measured_on

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        if parts == 1:
            tf.config.experimental.set_memory_growth(gpu, True)
        else:
            part = tf.config.LogicalDeviceConfiguration(memory_limit=16 * 1024)
            tf.config.set_logical_device_configuration(gpu, [part] * parts)
    if not gpus:
        host = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 3)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    keras.utils.set_random_seed(0)
    copies = tf.distribute.HierarchicalCopyAllReduce() if parts > 1 else None  # NCCL wants a GPU for each replica
    strategy = tf.distribute.MirroredStrategy(None if gpus else ["CPU:1", "CPU:2"], cross_device_ops=copies)
    size = FULL if gpus else SMALL
    options: dict[str, Any] = {} if gpus else {"devices": cpus(3)}
    replica, batches = recommender(strategy, **size)
    place: dict[str, Callable[[Any], Any]] = {
        "default": tf.function,
        "placed": lambda fn: placer.place(fn, **options),
        "plan": lambda fn: placer.place(fn, race="off", **options),
    }
    fn = place[variant](replica)

    @tf.function
    def step(batch: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(fn, args=(batch,)), axis=None)

    started = time.perf_counter()
    losses = [float(step(batches[0]))]
    first_s = time.perf_counter() - started
    losses += [float(step(batches[k % BATCHES])) for k in range(1, LOSSES)]
    rounds_ms: list[float] = []
    ends = time.perf_counter() + TIMED_S
    while time.perf_counter() < ends:
        started = time.perf_counter()
        for k in range(ROUND_STEPS):
            loss = step(batches[k % BATCHES])
        float(loss)
        rounds_ms.append(1e3 * (time.perf_counter() - started) / ROUND_STEPS)
    plan = fn.placement if variant != "default" else None
    return {
        "machine": measured_on(),
        "replicas": strategy.num_replicas_in_sync,
        "size": {**size, "layers": list(size["layers"])},  # type: ignore[call-overload]
        "losses": losses,
        "first_s": first_s,
        "rounds_ms": rounds_ms,
        "median_ms": statistics.median(rounds_ms),
        "ops": dict(sorted(Counter(op.device for op in plan.ops.values()).items())) if plan else {},
        "predicted_ms": plan.step_time_ns / 1e6 if plan else None,
        "default_predicted_ms": plan.baselines["tf_default"].step_time_ns / 1e6 if plan else None,
        "notes": list(plan.notes) if plan else [],
    }


def recommender(
    strategy: Any, batch: int, fields: int, history: int, rows: int, columns: int, layers: tuple[int, ...]
) -> tuple[Callable[..., Any], list[Any]]:
    """A replica's training step, and batches of strings.

    Args:
        strategy: what the variables and the batches are for.
        batch: examples of each replica.
        fields: columns of strings, each with a table of embeddings.
        history: the most items of the history of an example, one string of items with "|" between them.
        rows, columns: of each table.
        layers: widths of the layers.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    words = [f"item{k}" for k in range(rows)]
    vocabulary = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(rows, dtype=tf.int64)), 0)
    with strategy.scope():
        tables = [
            tf.Variable(0.05 * tf.random.stateless_normal([rows, columns], [7, k]), name=f"table{k}") for k in range(fields + 1)
        ]
        tower = keras.Sequential([*(keras.layers.Dense(width, "relu") for width in layers), keras.layers.Dense(1)])
        tower.build((None, (fields + 1) * columns))
        optimizer = keras.optimizers.Adam(1e-3)
        trained = [*tables, *tower.trainable_variables]
        optimizer.build(trained)

    def replica(examples: Any) -> Any:
        names, histories, clicks = examples
        numbers = vocabulary.lookup(names)
        with tf.GradientTape() as tape:
            found = [tf.gather(tables[k], numbers[:, k]) for k in range(fields)]
            items = tf.strings.split(histories, "|")
            of_items = tf.gather(tables[fields], vocabulary.lookup(items.values))
            found.append(tf.math.segment_mean(of_items, items.value_rowids()))
            scores = tower(tf.concat(found, axis=1))[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicks, scores))
        gradients = tape.gradient(loss, trained)
        optimizer.apply_gradients(zip(gradients, trained, strict=True))
        return loss

    rng = np.random.default_rng(0)

    def examples() -> Any:
        names = np.array(words)[rng.integers(0, rows, [batch, fields])]
        lengths = rng.integers(1, history + 1, batch)
        histories = ["|".join(f"item{k}" for k in rng.integers(0, rows, length)) for length in lengths]
        return tf.constant(names), tf.constant(histories), tf.constant(rng.integers(0, 2, batch), tf.float32)

    return replica, [strategy.experimental_distribute_values_from_function(lambda _: examples()) for _ in range(BATCHES)]


if __name__ == "__main__":
    sys.exit(main())
