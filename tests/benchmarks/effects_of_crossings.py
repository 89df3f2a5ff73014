"""Functions on two devices, each of which shows one effect of crossings on the time of a step; see `effects`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from examples.workloads import Workload
from tests.benchmarks.effects_of_ops import DEVICE, HOST, floats, on, steps, workload


def many_made(src: str, dst: str, count: int) -> Workload:
    """Many ops at ``src``, whose results one op at ``dst`` takes."""

    def run(x: Any, y: Any) -> Any:
        with on(src):
            results = [tf.raw_ops.Maximum(x=x, y=y) for x in tf.unstack(x)]
        with on(dst):
            return tf.raw_ops.AddN(inputs=results)

    return workload(run, src, floats(count, 64), floats(64))


def tapped(src: str, dst: str, length: int, every: int) -> Workload:
    """A chain at ``src``; every so many ops, an op at ``dst`` takes its result."""

    def run(x: Any, other: Any) -> Any:
        sent = []
        for _ in range(length // every):
            with on(src):
                x = steps(x, every)
            sent.append(x)
        with on(dst):
            return [tf.raw_ops.Maximum(x=y, y=other) for y in sent]

    return workload(run, src, floats(64), floats(64, seed=1))


def fed(src: str, dst: str, length: int, every: int) -> Workload:
    """A chain at ``dst`` that every so many ops takes the result of a chain at ``src``."""

    def run(x: Any, *starts: Any) -> Any:
        y = x
        for _ in range(length // every):
            with on(src):
                x = tf.raw_ops.Maximum(x=x, y=starts[0])
            with on(dst):
                y = tf.raw_ops.Maximum(x=steps(y, every - 1), y=x)
        return y

    return workload(run, src, floats(64), floats(64, seed=1))


def loop_taking(src: str, dst: str, rounds: int, nbytes: int) -> Workload:
    """A loop that reads a variable on another device in each round."""
    with on(src):
        variable = tf.Variable(floats(nbytes // 4))

    def run(x: Any) -> Any:
        with on(dst):
            for _ in tf.range(rounds):
                x = tf.raw_ops.Maximum(x=x, y=tf.reduce_max(variable))
            return x

    return workload(run, dst, floats(64), state=[variable])


def loop_gathering(src: str, dst: str, rounds: int) -> Workload:
    """A loop that gathers one row of a variable of 16 MiB in each round."""
    with on(src):
        variable = tf.Variable(floats(2**16, 64))

    def run(row: Any) -> Any:
        with on(dst):
            for _ in tf.range(rounds):
                row = tf.argmax(tf.gather(variable, row), output_type=tf.int32)
            return row

    return workload(run, dst, tf.constant(1), state=[variable])


def both(length: int, elements: int) -> Workload:
    """Two independent chains, one on each device."""

    def run(x: Any, y: Any) -> Any:
        with on(DEVICE):
            on_device = steps(y, length)
        with on(HOST):
            return on_device, steps(x, length)

    with on(HOST):
        x = tf.identity(floats(elements))
    with on(DEVICE):
        return Workload(tf.function(run), (x, tf.identity(floats(elements))), (), trains=False)


def crossing_argument(src: str, dst: str, nbytes: int) -> Workload:
    """An argument at ``src`` that is used at ``dst``."""

    def run(x: Any) -> Any:
        with on(dst):
            return tf.reduce_max(tf.raw_ops.Maximum(x=x, y=x))

    return workload(run, src, floats(nbytes // 4))


def crossings(stations: tuple[str, ...], nbytes: int, *, parallel: int = 1) -> Workload:
    """Tensors that pass through an op at each of these stations."""

    def run(*starts: Any) -> Any:
        ends = []
        for start in starts:
            x = start
            for where in stations:
                with on(where):
                    x = tf.raw_ops.Maximum(x=x, y=x)
            ends.append(x)
        with on(stations[-1]):
            return [tf.reduce_max(x) for x in ends]

    return workload(run, stations[0], *[floats(nbytes // 4, seed=i) for i in range(parallel)])
