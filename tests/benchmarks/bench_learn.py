"""Measures what learning from a call costs: a call that reports, in units of a plain call.

    python -m tests.benchmarks.bench_learn

The two take turns in rounds. A figure is the median over the rounds of the mean call of a round. "first" is the ratio of the
first calls, in which TensorFlow also prepares the graphs: a placed function learns from its first call.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from placer.tf.run.learning import ReportingCall
from placer.tf.run.timing import blocking_step, time_in_turns
from placer.tf.trace.tracing import trace

FIRST_CALLS = 5
"""First calls of which the median is taken."""


def scalar_loop(x: Any) -> Any:
    total = 100.0
    while total > 1.0:
        total = total * 0.9
    return total


def halved_until_small(x: Any) -> Any:
    while tf.reduce_sum(tf.abs(x)) > 1.0:
        x = 0.5 * x
    return x


def masked_in_a_loop(x: Any) -> Any:
    total = tf.constant(0.0)
    for i in tf.range(20):
        total += tf.reduce_sum(tf.boolean_mask(x, x > 0.05 * tf.cast(i, tf.float32)))
    return total


def branch_in_a_loop(x: Any) -> Any:
    total = tf.constant(0.0)
    while total < 30.0:
        total = total + 1.0 if tf.reduce_sum(x) > total else total + 2.0
    return total


def nested_loops(x: Any) -> Any:
    total = tf.constant(0.0)
    while total < 20.0:
        part = tf.constant(0.0)
        while part < 5.0:
            part += 1.0
        total += part
    return total


def shrinking(x: Any) -> Any:
    while tf.shape(x)[0] > 2:
        tf.autograph.experimental.set_loop_options(shape_invariants=[(x, tf.TensorShape([None]))])
        x = tf.boolean_mask(x, x > tf.reduce_mean(x))
    return x


def masked(x: Any) -> Any:
    return tf.reduce_sum(tf.boolean_mask(x, x > 0.5))


def many_masks(x: Any) -> Any:
    return [tf.reduce_sum(tf.unique(tf.boolean_mask(x, x > 0.05 * i))[0]) for i in range(10)]


def masked_product(x: Any) -> Any:
    rows = tf.boolean_mask(tf.reshape(x, [-1, 16]), tf.reshape(x, [-1, 16])[:, 0] > 0.5)
    return tf.reduce_sum(tf.tanh(rows @ tf.ones([16, 64])))


PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    *(scalar_loop, halved_until_small, masked_in_a_loop, branch_in_a_loop, nested_loops, shrinking),
    *(masked, many_masks, masked_product),
)
SIZES = {"tiny": 64, "medium": 65536}
"""Elements of the argument."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; all if none is named")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long the rounds of a program may take")
    args = parser.parse_args()
    print(f"{'program':24}{'size':8}{'plain us':>10}{'reporting us':>14}{'ratio':>8}{'first':>8}")
    for program in PROGRAMS:
        if not args.names or program.__name__ in args.names:
            for size, elements in SIZES.items():
                print(_row(program, size, tf.random.stateless_uniform([elements], (1, 2)), args.seconds), flush=True)


def _row(program: Callable[[Any], Any], size: str, x: Any, within_s: float) -> str:
    first: dict[str, list[float]] = {"plain": [], "reporting": []}
    for _ in range(FIRST_CALLS):
        steps = _steps(program, x)
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            first[name].append(time.perf_counter() - started)
    times = time_in_turns(steps, within_s, rounds=200, round_s=0.01)
    plain, reporting = (statistics.median(times[name]) for name in ("plain", "reporting"))
    ratio = statistics.median(first["reporting"]) / statistics.median(first["plain"])
    return f"{program.__name__:24}{size:8}{plain * 1e6:10.0f}{reporting * 1e6:14.0f}{reporting / plain:8.2f}{ratio:8.2f}"


def _steps(program: Callable[[Any], Any], x: Any) -> dict[str, Callable[[], None]]:
    traced = trace(program, x)
    call = ReportingCall(traced)
    return {
        "plain": blocking_step(traced.concrete, (x,)),
        "reporting": blocking_step(lambda *args: call.run(args, {})[0], (x,)),
    }


if __name__ == "__main__":
    main()
