"""What ops of a step move through a CPU's memory."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from cost_models.host_memory import free_bytes
from cost_models.measuring.chains import Call, plain_graphs, traced

_ELEMENTS = 2**24
_PASSES = (2, 8)
"""Float32 results of so many elements, kept to the end: half a GiB, which no cache holds."""
_SAMPLES = 3
"""At least."""


def traffic_bytes_per_s(device: str, effort_s: float) -> float:
    """Bytes per second, read and written, of ops that each take what the one before made and write where none has lately; 0
    where the machine was too disturbed to tell, or has too little memory free.

    An op that runs again and again on the same inputs finds them in caches, and its result's memory too: of 32 cores' caches a
    few hundred MiB come three times as fast as out of memory.
    """
    if free_bytes() < 4 * _ELEMENTS * (2 + _PASSES[1]):
        return 0.0
    with plain_graphs(), tf.device(device):
        start = tf.zeros([_ELEMENTS])
        few, many = (_passes(device, start, length) for length in _PASSES)
        for call in (few, many):
            call.seconds()
        found: list[tuple[float, float]] = []
        deadline = time.perf_counter() + effort_s
        while len(found) < _SAMPLES or time.perf_counter() < deadline:
            found.append((few.seconds(), many.seconds()))
    took = min(each[1] for each in found) - min(each[0] for each in found)
    moved = 3 * start.dtype.size * _ELEMENTS * (_PASSES[1] - _PASSES[0])
    return moved / took if took > 0 else 0.0


def _passes(device: str, start: Any, length: int) -> Call:
    """So many passes over memory; what they make is looked at when the last is done, so that none takes another's place."""

    def body(x: Any) -> Any:
        with tf.device(device):
            made = [x]
            for _ in range(length):
                made.append(tf.raw_ops.Maximum(x=made[-1], y=x))
            with tf.control_dependencies(made[-1:]):
                return tf.add_n([each[0] for each in made])

    return traced(body, start)
