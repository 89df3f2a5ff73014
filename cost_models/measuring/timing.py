"""What one run of an op takes on a device of this process."""

from __future__ import annotations

import gc
import math
import time
from functools import cache

import numpy as np

from cost_models.base import OpSignature, TensorSpec
from cost_models.machines import Device
from cost_models.measurements import Measurement
from cost_models.measuring.chains import Bench, Call, needed_bytes, plain_graphs, reasons
from cost_models.ops import UnmeasurableError

EFFORT_S = 0.1
"""How long a figure is sampled."""
_ROUNDS = 3
"""Samples of a figure, at least."""
_RUNS = 25
"""About how often an op is run that takes long."""
_LONG_S, _LONG_RUNS = 0.1, 5
"""What takes longer is run no more often than this."""
_TOO_WIDE = 2.0
"""A figure whose samples spread over more than this many times itself is none."""
_MOST_DELAY = 64
"""Products that ops queue behind. Ops that take the host longer to issue wait for their device anyway."""
_LARGE_BYTES = 2**26
"""Variables that take more are not kept until Python comes to collect them."""
_TINY_S = 1e-3
"""A call that is over sooner says little of the op in it."""


class TooLongError(UnmeasurableError):
    """An op that takes longer to measure than there is time."""


def about_s(time_ns: float, device: Device) -> float:
    """How long it may take to measure an op that takes so long."""
    runs = _LONG_RUNS if time_ns > 1e9 * _LONG_S and not device.asynchronous else _RUNS
    return runs * time_ns / 1e9


def measure(op: OpSignature, device: Device, effort_s: float = EFFORT_S, within_s: float = math.inf) -> Measurement:
    """Times an op on a device.

    A call with the op once is compared with a call with the op many times in a row, in turns: the difference is the op's, and
    what a call costs is in neither. Every call is waited for. Where dispatch and compute overlap, they are told apart: the
    host's time is that of calls before they are waited for; the device's is that of calls whose ops queue behind work that
    takes it longer than the host takes to issue them. An op beside which a call costs next to nothing is called by itself.

    Args:
        op: what to run; its variables are made for it, and no op with other side effects is run.
        device: where; its name is that of a device of this process.
        effort_s: how long to sample, about; an op that takes longer is sampled three times.
        within_s: how long it may take in all; whether it can is told by two runs of the op.

    Raises:
        TooLongError: it takes longer than that.
        UnmeasurableError: it cannot be run by itself, or its time is lost in the noise.
    """
    try:
        with plain_graphs(), reasons():
            return _measured(Bench(op, device.name), device, effort_s, within_s)
    finally:
        if any(spec.dtype == "resource" for spec in op.inputs) and needed_bytes(op) > _LARGE_BYTES:
            gc.collect()  # a graph that captured variables is one of Python's cycles


def _measured(bench: Bench, device: Device, effort_s: float, within_s: float) -> Measurement:
    one = bench.chain(1)
    once_s = one.seconds()
    if once_s > _LONG_S:
        once_s = min(once_s, one.seconds())  # the first call compiles
    if about_s(1e9 * once_s, device) > within_s:
        raise TooLongError(f"a run takes {once_s:.1f} s")
    if once_s > _LONG_S and not device.asynchronous:
        took = [1e9 * one.seconds() for _ in range(_ROUNDS)]
        least = round(min(took))
        dispatch = min(device.dispatch_ns, least)
        return Measurement(least, dispatch, least - dispatch, _spread(float(np.percentile(took, 25)) - least, least))
    more = repeats(one, 64 if device.asynchronous else 256)
    many = bench.chain(1 + more)
    if not device.asynchronous:
        each, noise = difference_ns(one, many, more, effort_s)
        dispatch = min(device.dispatch_ns, each)
        return Measurement(each, dispatch, each - dispatch, _spread(noise, each))
    dispatch, unsure = difference_ns(one, many, more, effort_s / 2, wait=False)
    delay = min(_MOST_DELAY, math.ceil((1.5 * more * dispatch + 200_000) / _delay_ns(device.name)))
    compute, noise = difference_ns(bench.chain(1, delay), bench.chain(1 + more, delay), more, effort_s / 2)
    longer = max(dispatch, compute)
    return Measurement(longer, dispatch, compute, _spread(max(unsure, noise), longer))


def _spread(noise_ns: float, time_ns: int) -> float:
    if not time_ns or noise_ns > _TOO_WIDE * time_ns:
        raise UnmeasurableError("its time is lost in the noise")
    return round(noise_ns / time_ns, 3)


def difference_ns(less: Call, more: Call, by: int, effort_s: float, wait: bool = True) -> tuple[int, float]:
    """What one of the `by` things costs that only the second of two calls does, and how far its samples lie apart for each.

    The first call does one of them.
    """
    took = _by_turns(less, more, effort_s, wait)
    # Whatever else the machine does only ever adds to a call: the least is nearest to what the call itself takes.
    least = min(took[1])
    return max(0, round((least - min(took[0])) / by)), (float(np.percentile(took[1], 25)) - least) / (1 + by)


def typical_difference_ns(less: Call, more: Call, by: int, effort_s: float) -> int:
    """The same by medians, of what threads do for each other: how soon one of them looks is part of it, and never the same."""
    one, many = (float(np.median(samples)) for samples in _by_turns(less, more, effort_s))
    return max(0, round((many - one) / by))


def _by_turns(less: Call, more: Call, effort_s: float, wait: bool = True) -> tuple[list[float], list[float]]:
    """What either call took each time, in ns."""
    for call in (less, more):
        call.seconds(wait=True)  # the first call compiles, the second may still tune
        call.seconds(wait=True)
    took: tuple[list[float], list[float]] = [], []
    deadline = time.perf_counter() + effort_s
    while len(took[0]) < _ROUNDS or time.perf_counter() < deadline:
        for samples, call in zip(took, (less, more), strict=True):
            samples.append(1e9 * call.seconds(wait))
    return took


def repeats(one: Call, tiny: int) -> int:
    """How much more often a longer call should do what this one does once: what that adds should stand out, and not take long.

    Args:
        one: does it once.
        tiny: how often, where all that shows is what any call takes.
    """
    once_s = min(one.seconds() for _ in range(4))
    return tiny if once_s < _TINY_S else min(tiny, max(1, round(20 * _TINY_S / once_s)))


@cache
def _delay_ns(device: str) -> int:
    """What one of the products of `Bench.chain` that come before the op takes."""
    bench = Bench(OpSignature("Neg", (TensorSpec("float32", (1,)),), (TensorSpec("float32", (1,)),), (("T", "float32"),)), device)
    return max(1, difference_ns(bench.chain(1, 1), bench.chain(1, 9), 8, EFFORT_S)[0])
