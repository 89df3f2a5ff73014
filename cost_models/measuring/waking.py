"""What it takes to wake the threads of a CPU."""

from __future__ import annotations

import time

import numpy as np

from cost_models.measuring import samples
from cost_models.measuring.chains import Bench, in_turns, plain_graphs

_PAUSE = 250
"""Tiny ops that take long enough for idle threads to fall asleep."""
_ROUNDS = 10
_SAMPLES = 3
"""At least."""


def wake_ns(device: str, effort_s: float) -> int:
    """What an op on all cores typically takes more after a pause in which only one of them had anything to do.

    Calls of the op, of pauses, and of both by turns are timed one after the other, so that whatever else the machine does is in
    all of them; what any call takes is in one more.
    """
    with plain_graphs():
        tiny, op = Bench(samples.elementwise("AddV2", 64), device), Bench(samples.matmul(256), device)
        pause = [tiny] * _PAUSE
        calls = [in_turns(benches, _ROUNDS) for benches in ([*pause, op], pause, [op])] + [in_turns([tiny], 1)]
        for call in calls * 2:  # the first call compiles, the second may still tune
            call.seconds()
        found: list[float] = []
        deadline = time.perf_counter() + effort_s
        while len(found) < _SAMPLES or time.perf_counter() < deadline:
            both, pauses, ops, least = (call.seconds() for call in calls)
            found.append(both - pauses - ops + least)
    return max(0, round(1e9 * float(np.median(found)) / _ROUNDS))
