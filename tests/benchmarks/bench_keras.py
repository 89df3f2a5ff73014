"""Times a step of `fit` of Keras models: by default, without XLA, by a plan, and as `placer.keras.optimize` lets calls choose.

    python -m tests.benchmarks.bench_keras --json keras.json
    python -m tests.benchmarks.bench_keras --size small --devices two-cpu

Each model runs in a process of its own, which finds an empty cache. Each variant is a model of its own with the same data. A
round fits every variant for about `ROUND_S`, each round in another order. A figure is the median over the rounds of the time of
a step, with all that `fit` does around it.
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
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import placer
from tests.helpers.measured_on import measured_on

DEFAULT, UNCOMPILED, PLANNED, OPTIMIZED = "Keras's default", "without XLA", "by a plan", "optimized"
ROUND_S, MAX_ROUNDS = 0.7, 7
"""About how long a variant is fitted in a round, and the most rounds."""
SETTLING_STEPS = 30
"""Steps of one fit while the calls of the optimized model still race."""

Data = tuple[Any, Any]
RANDOM = np.random.default_rng(0)


def small_dense(size: int) -> tuple[Any, Data]:
    """784 numbers to 10 classes by two hidden layers, batches of 32."""
    model = keras.Sequential([keras.Input((784,)), *(layers.Dense(128, "relu") for _ in range(2)), layers.Dense(10, "softmax")])
    return model, (_images(size, 784), _labels(size, 10))


def augmented_cnn(size: int) -> tuple[Any, Data]:
    """Images that random layers change, then convolutions."""
    side = 24 if size < 8 else 96
    changes = [
        layers.RandomFlip(),
        layers.RandomRotation(0.1),
        layers.RandomTranslation(0.1, 0.1),
        layers.RandomContrast(0.2),
    ]
    convolutions = [layer for k in (32, 64, 128) for layer in (layers.Conv2D(k, 3, activation="relu"), layers.MaxPooling2D())]
    ends = [layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")]
    model = keras.Sequential([keras.Input((side, side, 3)), *changes, *convolutions, *ends])
    return model, (_images(size, side, side, 3), _labels(size, 10))


def lstm_classifier(size: int) -> tuple[Any, Data]:
    """Sequences of ids to one of two classes by an LSTM."""
    length = 16 if size < 8 else 128
    model = keras.Sequential(
        [keras.Input((length,), dtype="int32"), layers.Embedding(20_000, 64), layers.LSTM(64), layers.Dense(2, "softmax")]
    )
    return model, (RANDOM.integers(0, 20_000, (32 * size, length)).astype("int32"), _labels(size, 2))


def text_classifier(size: int) -> tuple[Any, Data]:
    """Sentences, as strings, to one of two classes: split and looked up in the step."""
    words = np.array([f"word{k}" for k in range(5000)])
    vectorization = layers.TextVectorization(output_sequence_length=64, vocabulary=words.tolist())
    inputs = keras.Input((), dtype="string")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(5002, 128)(vectorization(inputs)))
    model = keras.Model(inputs, layers.Dense(2, "softmax")(layers.Dense(256, "relu")(x)))
    sentences = [" ".join(RANDOM.choice(words, 60)) for _ in range(32 * size)]
    return model, (np.array(sentences, dtype=object), _labels(size, 2))


def _images(size: int, *shape: int) -> Any:
    return RANDOM.random((32 * size, *shape)).astype("float32")


def _labels(size: int, classes: int) -> Any:
    return RANDOM.integers(0, classes, 32 * size)


MODELS: dict[str, Callable[[int], tuple[Any, Data]]] = {
    build.__name__: build for build in (small_dense, augmented_cnn, lstm_classifier, text_classifier)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated names of models; all by default")
    parser.add_argument("--size", choices=("full", "small"), default="full", help="of data and images")
    parser.add_argument("--devices", choices=("seen", "two-cpu"), default="seen", help="what is here, or two logical CPUs")
    parser.add_argument("--timeout-s", type=float, default=48.0, help="of each process: %(default)s")
    parser.add_argument("--json", type=Path, default=Path("keras.json"), help="where to write the results")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if args.one:
        started = time.monotonic()
        if args.devices == "two-cpu":
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        measure(names[0], 4 if args.size == "small" else 64, lambda: args.timeout_s - (time.monotonic() - started), args.one)
        return 0
    results = {name: measured(name, args) for name in names}
    args.json.write_text(json.dumps(results, indent=1))
    for name, result in results.items():
        times = "  ".join(f"{variant} {ms:.3g} ms" for variant, ms in result.get("ms", {}).items())
        print(f"{name:16} {times}  {result.get('used', '')}  {result.get('error', '')}")
    return 0


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What `measure` wrote in a process of its own; with an error if that did not end well."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        flags = [
            "--only",
            name,
            "--size",
            args.size,
            "--devices",
            args.devices,
            "--timeout-s",
            str(args.timeout_s),
            "--one",
            str(out),
        ]
        environment = os.environ | {"PLACER_CACHE": folder}
        command = [sys.executable, "-m", "tests.benchmarks.bench_keras", *flags]
        error = ""
        try:
            done = subprocess.run(
                command, env=environment, timeout=args.timeout_s + 8, capture_output=True, text=True, check=False
            )
            if done.returncode:
                error = done.stderr.strip().splitlines()[-1][:500] if done.stderr.strip() else f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            error = "it took too long"
        result: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
        return {**result, "error": error} if error else result


def measure(name: str, size: int, left_s: Callable[[], float], out: Path) -> None:
    """Fits the variants of a model in turns and writes their times after each round.

    Args:
        name: of the model.
        size: batches of its data.
        left_s: gives the seconds that are left.
        out: file for the results.
    """
    fits: dict[str, Callable[[int], Any]] = {}
    first_s: dict[str, float] = {}
    models: dict[str, Any] = {}
    for variant in (DEFAULT, UNCOMPILED, PLANNED, OPTIMIZED):
        keras.utils.set_random_seed(0)
        model, (x, y) = MODELS[name](size)
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], **_jit(variant))
        if variant in (PLANNED, OPTIMIZED):
            placer.keras.optimize(model, race="off" if variant == PLANNED else "auto")
        models[variant], fits[variant] = model, _fit(model, tf.data.Dataset.from_tensor_slices((x, y)).batch(32).repeat())
        first_s[variant] = _seconds(fits[variant], 3)
        out.write_text(json.dumps({"first_s": first_s}))
    placement = models[OPTIMIZED].placement
    while placement.verdict("train") is None and left_s() > 18:
        fits[OPTIMIZED](SETTLING_STEPS)
    steps = {variant: max(5, int(ROUND_S / (_seconds(fit, 10) / 10))) for variant, fit in fits.items()}
    rounds: dict[str, list[float]] = {variant: [] for variant in fits}
    verdict = placement.verdict("train")
    for k in range(MAX_ROUNDS):
        if k and left_s() < 2 * ROUND_S * len(fits):
            break
        order = list(fits)[k % len(fits) :] + list(fits)[: k % len(fits)]
        for variant in order:
            rounds[variant].append(1e3 * _seconds(fits[variant], steps[variant]) / steps[variant])
        result = {
            "machine": measured_on(),
            "ms": {variant: statistics.median(times) for variant, times in rounds.items()},
            "rounds_ms": rounds,
            "first_s": first_s,
            "compiled_by_default": bool(models[DEFAULT].jit_compile),
            "used": verdict.used if verdict else "the race is not over",
            "verdict": verdict.to_json() if verdict else None,
            "placement": placement.train.summary().splitlines(),
        }
        out.write_text(json.dumps(result))


def _jit(variant: str) -> dict[str, Any]:
    return {"jit_compile": False} if variant == UNCOMPILED else {}


def _fit(model: Any, dataset: Any) -> Callable[[int], Any]:
    return lambda steps: model.fit(dataset, steps_per_epoch=steps, epochs=1, verbose=0)


def _seconds(fit: Callable[[int], Any], steps: int) -> float:
    started = time.perf_counter()
    fit(steps)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
