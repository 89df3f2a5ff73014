"""What a copy from one device's memory to another's takes inside a function, waiting included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.measuring.chains import HOST, Call, plain_graphs, traced
from cost_models.measuring.timing import difference_ns, repeats, typical_difference_ns

SIZES = (4, 2**12, 2**16, 2**20, 2**24, 2**26, 2**28)
"""Bytes of the copies that are timed."""
_FAN, _PART = 64, 64
"""How many copies go side by side, and of how many numbers."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of so many bytes."""

    nbytes: int
    time_ns: int


def copies(src: str, dst: str, sizes: tuple[int, ...], effort_s: float, *, fresh: bool = True) -> list[Copy]:
    """Times copies of each size from one device to another, larger ones as far as there is memory for them.

    Round by round, one device makes a tensor, the other takes it and says so in a number that stays in host memory, and only
    then the next round begins: no two copies overlap, and each is waited for. What the same rounds take on one device is taken
    off, and what handing over the number takes.

    Args:
        fresh: the tensor is made by an op, so that TensorFlow puts it where a copy is quickest (pinned memory, if it leaves a
            host for a GPU); else it is an argument that sits in ordinary memory.
    """
    hop = hand_over_ns(src, dst, effort_s)
    found: list[Copy] = []
    for nbytes in sorted(sizes):
        try:
            with plain_graphs():
                across, within = (_per_round_ns(src, taker, nbytes, fresh, effort_s) for taker in (dst, src))
        except (tf.errors.ResourceExhaustedError, MemoryError):
            if not found:
                raise
            break
        found.append(Copy(nbytes, max(1, across - within - hop)))
    return found


def hand_over_ns(one: str, other: str, effort_s: float, pause: int = 0) -> int:
    """What it takes to hand a number in host memory from an op on one device to one on another, there and back by halves.

    Args:
        pause: so many tiny ops run on the first device before, so that the thread which takes the number may sleep.
    """

    def rounds(length: int, there: str) -> Call:
        def body(number: Any) -> Any:
            for _ in range(length):
                for device in (*[one] * pause, there, one):
                    with tf.device(device):
                        number = tf.raw_ops.AddV2(x=number, y=number)
            return number

        with tf.device(one):
            return traced(body, tf.constant(1))

    more = 8 if pause else 32
    with plain_graphs():
        across, within = (
            typical_difference_ns(rounds(1, there), rounds(1 + more, there), more, effort_s) for there in (other, one)
        )
    return max(0, across - within) // 2


def interval_ns(src: str, dst: str, effort_s: float) -> int:
    """The least time from one copy to the next: what each of many small tensors of one op adds when all go the same way."""

    def fan(width: int) -> Call:
        def body(data: Any, number: Any) -> Any:
            with tf.device(src):
                parts = tf.raw_ops.Split(axis=0, value=data, num_split=width)
            with tf.device(dst), tf.control_dependencies([tf.raw_ops.Neg(x=part) for part in parts]):
                done = tf.raw_ops.NoOp()
            with tf.device(HOST), tf.control_dependencies([done]):
                return tf.raw_ops.AddV2(x=number, y=number)

        with tf.device(src):
            data = tf.zeros(width * _PART)
        with tf.device(HOST):
            return traced(body, data, tf.constant(1))

    with plain_graphs():
        return difference_ns(fan(1), fan(1 + _FAN), _FAN, effort_s)[0]


def _per_round_ns(maker: str, taker: str, nbytes: int, fresh: bool, effort_s: float) -> int:
    raw = tf.raw_ops
    elements = nbytes // 4

    def rounds(length: int) -> Call:
        def body(data: Any, shape: Any, number: Any) -> Any:
            for _ in range(length):
                with tf.device(maker), tf.control_dependencies([raw.AddV2(x=number, y=number)]):
                    made = raw.Fill(dims=shape, value=data) if fresh else raw.Reshape(tensor=data, shape=shape)
                with tf.device(taker):
                    number = raw.Size(input=made)
            return number

        with tf.device(maker):
            data = tf.constant(0.0) if fresh else tf.constant(np.zeros(elements, np.float32))
        with tf.device("CPU:0"):
            return traced(body, data, tf.constant([elements]), tf.constant(1))

    one = rounds(1)
    more = repeats(one, 32)
    return typical_difference_ns(one, rounds(1 + more), more, effort_s)
