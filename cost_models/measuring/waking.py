"""What it takes to wake the threads of a CPU."""

from __future__ import annotations

import time

import numpy as np

from cost_models.machines import Device
from cost_models.measuring import samples
from cost_models.measuring.chains import Bench, in_turns, plain_graphs

OP = samples.matmul(256)
"""Small enough for waking to show, large enough for all cores."""
_PAUSE = 250
"""Tiny ops that take long enough for idle threads to fall asleep."""
_ROUNDS = 10
_SAMPLES = 3
"""At least."""


def wake_ns(device: Device, priced_ns: int, effort_s: float) -> int:
    """What an op on all cores typically takes more after a pause in which only one of them had anything to do.

    In calls of a few such ops, with or without pauses, the threads may sleep between any two of them. Calls of pauses and ops by
    turns are timed beside calls of pauses alone, so that whatever else the machine does, and what any call takes, is in both.

    Args:
        device: a CPU.
        priced_ns: what `OP` takes in a long row, where its price comes from. Timed again, it may be a row whose threads sleep.
        effort_s: how long to sample.
    """
    with plain_graphs():
        tiny, op = Bench(samples.elementwise("AddV2", 64), device.name), Bench(OP, device.name)
        pause = [tiny] * _PAUSE
        calls = in_turns([*pause, op], _ROUNDS), in_turns(pause, _ROUNDS)
        for call in calls * 2:  # the first call compiles, the second may still tune
            call.seconds()
        took: list[tuple[float, float]] = []
        deadline = time.perf_counter() + effort_s
        while len(took) < _SAMPLES or time.perf_counter() < deadline:
            took.append((calls[0].seconds(), calls[1].seconds()))
    both, pauses = np.percentile(took, 25, axis=0)  # what is typical, as of the op alone
    return max(0, round(float(1e9 * (both - pauses) / _ROUNDS - priced_ns)))
