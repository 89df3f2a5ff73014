"""The time of copies between two devices' memories, measured inside functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.measuring.chains import HOST, Call, plain_graphs, traced_call
from cost_models.measuring.timing import difference_ns, median_difference_ns, repeat_count

COPY_SIZES_BYTES = (4, 2**12, 2**16, 2**20, 2**24, 2**26, 2**28)
_FAN_COPIES, _FAN_ELEMENTS = 64, 64
"""How many copies go side by side, and the numbers in each."""


@dataclass(frozen=True, slots=True)
class CopyTime:
    """The size and the time of a copy."""

    nbytes: int
    time_ns: int


def copy_times(src: str, dst: str, sizes_bytes: Sequence[int], effort_s: float, *, made_by_op: bool = True) -> list[CopyTime]:
    """Times copies from device `src` to device `dst`.

    Copies do not overlap. In each round `src` makes a tensor and `dst` reads it, and the next round waits for a number from
    `dst` that stays in host memory. The time of the same rounds on one device is subtracted, and so is the time of handing over
    the number.

    Args:
        src: name of the device that is copied from.
        dst: name of the device that is copied to.
        sizes_bytes: sizes of the copies. Larger ones are left out if they do not fit into memory.
        effort_s: how long to sample each size.
        made_by_op: if True, an op makes the tensor, and TensorFlow puts it where a copy is fastest (pinned memory if it leaves a
            host for a GPU). If False, the tensor is an argument and lies in ordinary memory.

    Raises:
        tf.errors.ResourceExhaustedError: not even the smallest copy fits into memory.
    """
    handing_over_ns = hand_over_ns(src, dst, effort_s)
    times: list[CopyTime] = []
    for nbytes in sorted(sizes_bytes):
        try:
            with plain_graphs():
                across_ns, within_ns = (_round_ns(src, reader, nbytes, made_by_op, effort_s) for reader in (dst, src))
        except (tf.errors.ResourceExhaustedError, MemoryError):
            if not times:
                raise
            break
        times.append(CopyTime(nbytes, max(1, across_ns - within_ns - handing_over_ns)))
    return times


def latency_and_rate(times: Sequence[CopyTime]) -> tuple[int, float]:
    """`Link.latency_ns` and `Link.bytes_per_s`: the line through copies of several sizes with the least relative errors."""
    nbytes, time_ns = (np.array([getattr(copy, name) for copy in times], np.float64) for name in ("nbytes", "time_ns"))
    per_byte, latency = np.polyfit(nbytes, time_ns, 1, w=1 / time_ns) if len(times) > 1 else (0.0, time_ns[0])
    return max(0, round(float(latency))), float(1e9 / per_byte if per_byte > 0 else 1e9 * np.max(nbytes / time_ns))


def hand_over_ns(first: str, second: str, effort_s: float, pause_ops: int = 0) -> int:
    """Time to hand a number in host memory from an op on one device to an op on another: half of the way there and back.

    Args:
        first: name of a device.
        second: name of another device.
        effort_s: how long to sample.
        pause_ops: tiny ops on the first device before each hand-over, so that the thread that receives the number may fall
            asleep.
    """

    def rounds(length: int, other: str) -> Call:
        def body(number: Any) -> Any:
            for _ in range(length):
                for device in (*[first] * pause_ops, other, first):
                    with tf.device(device):
                        number = tf.raw_ops.AddV2(x=number, y=number)
            return number

        with tf.device(first):
            return traced_call(body, tf.constant(1))

    extra_rounds = 8 if pause_ops else 32
    with plain_graphs():
        across_ns, within_ns = (
            median_difference_ns(rounds(1, other), rounds(1 + extra_rounds, other), extra_rounds, effort_s)
            for other in (second, first)
        )
    return max(0, across_ns - within_ns) // 2


def interval_ns(src: str, dst: str, effort_s: float) -> int:
    """`Link.interval_ns`: what each further copy adds when one op makes many small tensors that all go the same way at once."""

    def fan(width: int) -> Call:
        def body(data: Any, number: Any) -> Any:
            with tf.device(src):
                parts = tf.raw_ops.Split(axis=0, value=data, num_split=width)
            with tf.device(dst), tf.control_dependencies([tf.raw_ops.Neg(x=part) for part in parts]):
                all_read = tf.raw_ops.NoOp()
            with tf.device(HOST), tf.control_dependencies([all_read]):
                return tf.raw_ops.AddV2(x=number, y=number)

        with tf.device(src):
            data = tf.zeros(width * _FAN_ELEMENTS)
        with tf.device(HOST):
            return traced_call(body, data, tf.constant(1))

    with plain_graphs():
        return difference_ns(fan(1), fan(1 + _FAN_COPIES), _FAN_COPIES, effort_s)[0]


def _round_ns(maker: str, reader: str, nbytes: int, made_by_op: bool, effort_s: float) -> int:
    """Time of a round of `copy_times`: `maker` makes a tensor, and `reader` answers with its size."""
    raw = tf.raw_ops
    elements = nbytes // 4

    def rounds(length: int) -> Call:
        def body(data: Any, shape: Any, number: Any) -> Any:
            for _ in range(length):
                with tf.device(maker), tf.control_dependencies([raw.AddV2(x=number, y=number)]):
                    tensor = raw.Fill(dims=shape, value=data) if made_by_op else raw.Reshape(tensor=data, shape=shape)
                with tf.device(reader):
                    number = raw.Size(input=tensor)
            return number

        with tf.device(maker):
            data = tf.constant(0.0) if made_by_op else tf.constant(np.zeros(elements, np.float32))
        with tf.device("CPU:0"):
            return traced_call(body, data, tf.constant([elements]), tf.constant(1))

    one_round = rounds(1)
    extra_rounds = repeat_count(one_round, 32)
    return median_difference_ns(one_round, rounds(1 + extra_rounds), extra_rounds, effort_s)
