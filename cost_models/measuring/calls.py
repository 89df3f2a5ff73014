"""The time that a call of a function takes beside its ops, by the devices in use and the tensors passed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.measuring.chains import HOST, plain_graphs, traced_call

_BATCHES, _CALLS_PER_BATCH = 5, 60
_ARGUMENTS = 128
"""Variables or tensors in the calls that measure the time of each."""
_MATRIX_SIDE = 8
_LONG_CALL_OPS = 16
"""Single-core ops that together take about a millisecond."""


def call_times_ns(groups: Sequence[Sequence[str]]) -> list[int]:
    """Typical time of a call with one tiny op on each device of a group, until its results are fetched.

    It is the median over several batches of calls of each batch's median. One function took 91 us in some batches and 134 us in
    others of the same process, depending on where its threads woke. Calls of the groups alternate: only their differences
    matter, and a machine may be slower for a while.

    Args:
        groups: device names; a result for each group. The ops of a group do not depend on each other.
    """

    def body(devices: Sequence[str], *numbers: Any) -> list[Any]:
        sums = []
        for device, number in zip(devices, numbers, strict=True):
            with tf.device(device):
                sums.append(tf.raw_ops.AddV2(x=number, y=number))
        return sums

    calls = []
    for devices in groups:
        numbers = []
        for device in devices:
            with tf.device(device):
                numbers.append(tf.constant(np.ones(64, np.float32)))
        calls.append((partial(body, devices), numbers))
    return _typical_ns(calls, _whole_s)


def waiting_ns(device: str) -> int:
    """`Machine.waiting_ns`: how much longer a call of a millisecond takes beside its ops than a call that ends at once.

    Timestamps at the beginning and the end of each call give the time of its ops, which is subtracted. After a pause a result
    also takes longer to arrive from a GPU. As this happens in steps too, it is included.
    """

    def between_timestamps(length: int) -> Callable[..., list[Any]]:
        def body(keys: Any) -> list[Any]:
            with tf.device(device):
                start = last = tf.raw_ops.Timestamp()
                for _ in range(length):
                    with tf.control_dependencies([last]):
                        last = tf.raw_ops.Unique(x=keys).idx
                with tf.control_dependencies([last]):
                    return [start, tf.raw_ops.Timestamp()]

        return body

    with tf.device(device):
        keys = [tf.constant(np.arange(4_000))]
    calls = [(between_timestamps(length), keys) for length in (_LONG_CALL_OPS, 0)]
    long_ns, short_ns = _typical_ns(calls, lambda call_s, results: call_s - _inside_s(results), plain=True)
    return max(0, long_ns - short_ns)


def cold_ns(device: str) -> int:
    """`Device.cold_ns`: how much longer the first op of a type takes in a call than a later one, as a mean over types.

    A call with one op of each type less a call with a single op gives the first ops of the further types. A call with two ops of
    each type less one with one of each gives the later ops. Timestamps on the host begin and end each call, because its caller
    may wake early or late.
    """
    raw = tf.raw_ops

    def ops(x: Any, m: Any) -> Iterator[Callable[[], Any]]:
        for op in (raw.Relu, raw.Softplus, raw.Elu, raw.Selu):
            yield partial(op, features=x)
        for op in (raw.Tanh, raw.Neg, raw.Square, raw.Sqrt, raw.Exp, raw.Sigmoid, raw.Floor, raw.Abs):
            yield partial(op, x=x)
        for op in (raw.Mul, raw.Sub, raw.Maximum, raw.RealDiv):
            yield partial(op, x=x, y=x)
        yield partial(raw.BiasAdd, value=m, bias=x)
        yield partial(raw.MatMul, a=m, b=m)
        yield partial(raw.Softmax, logits=m)

    def body(ops_per_type: int, types: int | None = None) -> Callable[..., list[Any]]:
        def chain(x: Any, m: Any) -> list[Any]:
            with tf.device(HOST):
                start = raw.Timestamp()
            last = [start.op]
            with tf.device(device):
                for make_op in islice(ops(x, m), types):
                    for _ in range(ops_per_type):
                        with tf.control_dependencies(last):
                            result = make_op()
                            last = [result.op]
            with tf.device(HOST), tf.control_dependencies([tf.identity(result)]):
                return [start, raw.Timestamp()]

        return chain

    with tf.device(device):
        vector = tf.constant(np.ones(_MATRIX_SIDE, np.float32))
        matrix = tf.constant(np.ones((_MATRIX_SIDE, _MATRIX_SIDE), np.float32))
        types = sum(1 for _ in ops(vector, matrix))
        calls = [(each, [vector, matrix]) for each in (body(1, 1), body(1), body(2))]
        single_ns, once_ns, twice_ns = _typical_ns(calls, lambda _, results: _inside_s(results), plain=True)
    return max(0, round((once_ns - single_ns) / (types - 1) - (twice_ns - once_ns) / types))


def per_passed_tensor_ns(device: str) -> int:
    """How much longer a call takes for each tensor that its caller passes, whether an op reads it or not."""

    def body(number: Any, *others: Any) -> list[Any]:
        with tf.device(device):
            return [tf.raw_ops.AddV2(x=number, y=number)]

    with tf.device(device):
        numbers = [tf.constant(np.ones(64, np.float32)) for _ in range(1 + _ARGUMENTS)]
        many_ns, one_ns = _typical_ns([(body, numbers), (body, numbers[:1])], _whole_s)
    return max(0, (many_ns - one_ns) // _ARGUMENTS)


def per_variable_ns(device: str) -> int:
    """How much longer a call takes for each variable that its function captures and reads, one after the other."""

    def body(variables: Sequence[Any], number: Any) -> list[Any]:
        last: list[Any] = []
        with tf.device(device):
            for variable in variables:
                with tf.control_dependencies(last):
                    last = [variable.read_value()]
            with tf.control_dependencies(last):
                return [tf.raw_ops.AddV2(x=number, y=number)]

    with tf.device(device):
        number = tf.constant(np.ones(64, np.float32))
        variables = [tf.Variable(number) for _ in range(_ARGUMENTS)]
    many_ns, none_ns = _typical_ns([(partial(body, each), [number]) for each in (variables, [])], _whole_s)
    return max(0, (many_ns - none_ns) // _ARGUMENTS)


def _whole_s(call_s: float, _: Sequence[Any]) -> float:
    """The time of a whole call until its results are fetched."""
    return call_s


def _inside_s(results: Sequence[Any]) -> float:
    """The time from the first to the last result of a call, both of which are timestamps."""
    return float(results[-1] - results[0])


def _typical_ns(
    calls: Sequence[tuple[Callable[..., list[Any]], Sequence[Any]]],
    figure_s: Callable[[float, list[Any]], float],
    *,
    plain: bool = False,
) -> list[int]:
    """A typical figure in ns for each function, all of which are called in turns.

    Args:
        calls: functions and their arguments.
        figure_s: computes a figure in seconds from the time of a call in seconds and its results.
        plain: run graphs as written, where Grappler would leave nothing to measure. In plain graphs each result passes through
            an op of its own on the default device, which is a GPU if there is one.
    """
    with plain_graphs() if plain else nullcontext():
        traced_calls = [traced_call(body, *args) for body, args in calls]
        batch_medians_s: list[list[float]] = [[] for _ in traced_calls]
        for _ in range(1 + _BATCHES):
            for call, medians_s in zip(traced_calls, batch_medians_s, strict=True):
                figures_s = []
                for _ in range(_CALLS_PER_BATCH):
                    start = time.perf_counter()
                    results = [result.numpy() for result in call.function(*call.args)]
                    figures_s.append(figure_s(time.perf_counter() - start, results))
                medians_s.append(float(np.median(figures_s)))
    return [round(1e9 * float(np.median(medians_s[1:]))) for medians_s in batch_medians_s]  # the first batch warms up
