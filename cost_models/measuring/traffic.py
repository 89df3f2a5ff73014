"""The rate at which ops of a step move bytes through a CPU's memory."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cost_models.host_memory import free_bytes
from cost_models.measuring.chains import Call, plain_graphs, traced_call
from cost_models.measuring.timing import alternate

_ELEMENTS = 2**24
"""Float32 elements in each tensor, 64 MiB."""
_SHORT_PASSES, _LONG_PASSES = 2, 8
"""How many tensors the two timed calls make. The longer call keeps half a GiB to its end, which no cache holds."""


def traffic_bytes_per_s(device: str, effort_s: float) -> float:
    """Bytes read and written per second by ops that each take the result of the op before and write to fresh memory.

    An op that is repeated on the same inputs would find them, and the memory of its result, in caches. The caches of 32 cores
    hold a few hundred MiB and are three times as fast as memory.

    Args:
        device: a CPU.
        effort_s: how long to sample.

    Returns:
        The rate, or 0 if too little memory is free or the samples were too disturbed for a positive difference.
    """
    if free_bytes() < 4 * _ELEMENTS * (2 + _LONG_PASSES):
        return 0.0
    with plain_graphs(), tf.device(device):
        start = tf.zeros([_ELEMENTS])
        short_ns, long_ns = alternate(_passes(device, start, _SHORT_PASSES), _passes(device, start, _LONG_PASSES), effort_s)
    difference_ns = min(long_ns) - min(short_ns)
    moved_bytes = 3 * start.dtype.size * _ELEMENTS * (_LONG_PASSES - _SHORT_PASSES)
    return 1e9 * moved_bytes / difference_ns if difference_ns > 0 else 0.0


def _passes(device: str, start: Any, length: int) -> Call:
    """A call of `length` ops in a chain. The sum at its end reads every result, so that none reuses another's memory."""

    def body(x: Any) -> Any:
        with tf.device(device):
            results = [x]
            for _ in range(length):
                results.append(tf.raw_ops.Maximum(x=results[-1], y=x))
            with tf.control_dependencies(results[-1:]):
                return tf.add_n([result[0] for result in results])

    return traced_call(body, start)
