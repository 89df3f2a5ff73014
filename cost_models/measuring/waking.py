"""The time it takes to wake the threads of a CPU."""

from __future__ import annotations

import numpy as np

from cost_models.machines import Device
from cost_models.measuring import samples
from cost_models.measuring.chains import Bench, interleaved, plain_graphs
from cost_models.measuring.timing import alternate

WAKING_OP = samples.matmul(256)
"""An op that uses all cores and is so short that waking them shows."""
_PAUSE_OPS = 250
"""Tiny ops in a pause. They take long enough for idle threads to fall asleep."""
_ROUNDS_PER_CALL = 10


def wake_ns(device: Device, busy_ns: int, effort_s: float) -> int:
    """Measures `Device.wake_ns`: how much longer an op on all cores takes after a pause in which only one core worked.

    A call that alternates pauses with `WAKING_OP` is timed beside a call of the pauses alone. The difference is free of the
    pauses, of what a call takes and of whatever else the machine does. Calls with the op alone would not do: in a short row of
    ops the threads may fall asleep between any two.

    Args:
        device: a CPU.
        busy_ns: time of `WAKING_OP` in a long row, which is its price.
        effort_s: how long to sample.
    """
    with plain_graphs():
        tiny, op = Bench(samples.elementwise("AddV2", 64), device.name), Bench(WAKING_OP, device.name)
        pause = [tiny] * _PAUSE_OPS
        times_ns = alternate(interleaved([*pause, op], _ROUNDS_PER_CALL), interleaved(pause, _ROUNDS_PER_CALL), effort_s)
    with_op_ns, pauses_ns = np.percentile(times_ns, 25, axis=1)  # as `Measurement.typical`
    return max(0, round(float((with_op_ns - pauses_ns) / _ROUNDS_PER_CALL - busy_ns)))
