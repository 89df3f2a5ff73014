"""The time of one run of an op on a device of this process."""

from __future__ import annotations

import gc
import math
import time
from functools import cache

import numpy as np

from cost_models.base import OpSignature, TensorSpec
from cost_models.machines import Device
from cost_models.measurements import Measurement
from cost_models.measuring.chains import Bench, Call, needed_bytes, plain_graphs, refusals_as_unmeasurable
from cost_models.ops import UnmeasurableError

EFFORT_S = 0.1
"""Default time to sample a figure."""
_MIN_SAMPLES = 3
"""Samples of each figure, at least."""
_RUNS = 25
"""About how often an op that takes long is run."""
_LONG_S, _LONG_RUNS = 0.1, 5
"""A run that takes longer than this on a CPU is repeated no more often than that."""
_MAX_SPREAD = 2.0
"""A figure is lost in the noise if its samples spread over more than this many times the figure."""
_MAX_DELAY_PRODUCTS = 64
"""Limit of the products behind which ops queue. Ops that take the host even longer to issue wait for their device anyway."""
_DELAY_MARGIN, _DELAY_EXTRA_NS = 1.5, 200_000
"""The products take this many times as long as the host takes to issue the ops, and this much more."""
_LARGE_BYTES = 2**26
"""Variables larger than this are freed at once instead of at Python's next collection."""
_TINY_S = 1e-3
"""Of a shorter call, most of the time is the overhead of the call itself."""


class TooLongError(UnmeasurableError):
    """An op whose measurement would exceed the time limit."""


def expected_s(time_ns: float, device: Device) -> float:
    """Expected time to measure an op whose run takes `time_ns`."""
    runs = _LONG_RUNS if time_ns > 1e9 * _LONG_S and not device.asynchronous else _RUNS
    return runs * time_ns / 1e9


def measure(op: OpSignature, device: Device, effort_s: float = EFFORT_S, within_s: float = math.inf) -> Measurement:
    """Measures the time of an op on a device.

    Two calls are timed in turns, one that runs the op once and one that runs it many times in a row. The difference is the time
    of the op alone, without the time of a call. A run that takes long on a CPU is timed by itself.

    On a device where dispatch and compute overlap, both are measured. Dispatch is the time of calls until the host is done.
    Compute is the time of calls whose ops queue behind other work, which takes the device longer than the host takes to issue
    the ops.

    Args:
        op: what to run. Variables are made for it; no op with other side effects is run.
        device: a device of this process.
        effort_s: approximate time to sample. An op that takes longer is sampled three times.
        within_s: time limit of the measurement, checked after two runs of the op.

    Raises:
        TooLongError: the measurement would exceed the limit.
        UnmeasurableError: the op cannot be run by itself, or its time is lost in the noise.
    """
    try:
        with plain_graphs(), refusals_as_unmeasurable():
            return _measured(Bench(op, device.name), device, effort_s, within_s)
    finally:
        if any(spec.dtype == "resource" for spec in op.inputs) and needed_bytes(op) > _LARGE_BYTES:
            gc.collect()  # a graph that captured variables is part of a reference cycle


def _measured(bench: Bench, device: Device, effort_s: float, within_s: float) -> Measurement:
    single = bench.chain(1)
    run_s = single.seconds()
    if run_s > _LONG_S:
        run_s = min(run_s, single.seconds())  # the first call compiles
    if expected_s(1e9 * run_s, device) > within_s:
        raise TooLongError(f"a run takes {run_s:.1f} s")
    if run_s > _LONG_S and not device.asynchronous:
        samples = [1e9 * single.seconds() for _ in range(_MIN_SAMPLES)]
        least = round(min(samples))
        dispatch = min(device.dispatch_ns, least)
        return Measurement(least, dispatch, least - dispatch, _spread(float(np.percentile(samples, 25)) - least, least))
    extra_runs = repeat_count(single, 64 if device.asynchronous else 256)
    chain = bench.chain(1 + extra_runs)
    if not device.asynchronous:
        run_ns, noise = difference_ns(single, chain, extra_runs, effort_s)
        dispatch = min(device.dispatch_ns, run_ns)
        return Measurement(run_ns, dispatch, run_ns - dispatch, _spread(noise, run_ns))
    dispatch, dispatch_noise = difference_ns(single, chain, extra_runs, effort_s / 2, wait=False)
    delay_ns = _DELAY_MARGIN * extra_runs * dispatch + _DELAY_EXTRA_NS
    products = min(_MAX_DELAY_PRODUCTS, math.ceil(delay_ns / _product_ns(device.name)))
    delayed, delayed_chain = bench.chain(1, products), bench.chain(1 + extra_runs, products)
    compute, compute_noise = difference_ns(delayed, delayed_chain, extra_runs, effort_s / 2)
    longer = max(dispatch, compute)
    return Measurement(longer, dispatch, compute, _spread(max(dispatch_noise, compute_noise), longer))


def _spread(noise_ns: float, time_ns: int) -> float:
    if not time_ns or noise_ns > _MAX_SPREAD * time_ns:
        raise UnmeasurableError("its time is lost in the noise")
    return round(noise_ns / time_ns, 3)


def difference_ns(single: Call, repeated: Call, extra_runs: int, effort_s: float, wait: bool = True) -> tuple[int, float]:
    """The time of one run of what the second of two calls does more often.

    Args:
        single: does it once.
        repeated: does it `extra_runs` times more.
        extra_runs: see `repeated`.
        effort_s: approximate time to sample.
        wait: whether the time until the device is done counts, or until the host is.

    Returns:
        The time in ns, and by how much samples differ for each run: between the least and the lower quartile.
    """
    single_ns, repeated_ns = alternate(single, repeated, effort_s, wait)
    # Other work of the machine only adds to a call, so the least sample is nearest to the time of the call itself.
    least = min(repeated_ns)
    run_ns = (least - min(single_ns)) / extra_runs
    return max(0, round(run_ns)), (float(np.percentile(repeated_ns, 25)) - least) / (1 + extra_runs)


def median_difference_ns(single: Call, repeated: Call, extra_runs: int, effort_s: float) -> int:
    """The same from medians, for work that threads do for each other: how soon a thread notices is part of it, and varies."""
    single_ns, repeated_ns = (float(np.median(samples)) for samples in alternate(single, repeated, effort_s))
    return max(0, round((repeated_ns - single_ns) / extra_runs))


def alternate(first: Call, second: Call, effort_s: float, wait: bool = True) -> tuple[list[float], list[float]]:
    """The times in ns of two calls that take turns: what disturbs a machine for a while then disturbs both.

    Args:
        first, second: the calls.
        effort_s: how long to sample; each call is timed three times at least.
        wait: whether the time until the device is done counts, or until the host is.
    """
    for call in (first, second):
        call.seconds(wait=True)  # the first call compiles, the second may still choose algorithms
        call.seconds(wait=True)
    samples: tuple[list[float], list[float]] = [], []
    deadline = time.perf_counter() + effort_s
    while len(samples[0]) < _MIN_SAMPLES or time.perf_counter() < deadline:
        for times, call in zip(samples, (first, second), strict=True):
            times.append(1e9 * call.seconds(wait))
    return samples


def repeat_count(single: Call, most: int) -> int:
    """How many more runs a longer call should have, so that their time stands out and yet is not too long.

    Args:
        single: a call with one run.
        most: the answer for a run so short that only the call's own time shows.
    """
    call_s = min(single.seconds() for _ in range(4))
    return most if call_s < _TINY_S else min(most, max(1, round(20 * _TINY_S / call_s)))


@cache
def _product_ns(device: str) -> int:
    """Time of one of the products that delay a chain (see `Bench.chain`)."""
    bench = Bench(OpSignature("Neg", (TensorSpec("float32", (1,)),), (TensorSpec("float32", (1,)),), (("T", "float32"),)), device)
    return max(1, difference_ns(bench.chain(1, 1), bench.chain(1, 9), 8, EFFORT_S)[0])
