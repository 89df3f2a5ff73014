"""What a call of a function takes beside its ops, by the devices that they are on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.measuring.chains import HOST, plain_graphs, traced

_BATCHES, _CALLS = 5, 60
_MANY = 128
"""Variables or tensors, to tell what each adds to a call."""
_SIDE = 8
"""Of small matrices."""
_LONG = 16
"""Ops that one core does, which take about a millisecond together."""


def calls_ns(groups: Sequence[Sequence[str]]) -> list[int]:
    """Typical calls with a tiny op on each device of a group, independent of each other, and their results fetched.

    That is the median of the medians of a few batches: one function took 91 us in some and 134 in others of one process, by where
    its threads woke. The groups take turns, since their differences count, and machines are slower at times.
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
    return _typically(calls, _whole)


def waiting_ns(device: str) -> int:
    """What a call of a millisecond takes more beside its ops than one that is over at once: its caller sleeps meanwhile.

    Ops that tell the time begin and end the calls, so that what the others take is in neither. That a result takes
    longer to come from a GPU after a pause counts, as it does in steps.
    """

    def around(length: int) -> Callable[..., list[Any]]:
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
    calls = [(around(length), keys) for length in (_LONG, 0)]
    long, short = _typically(calls, lambda took, results: took - _inside_s(results), plain=True)
    return max(0, long - short)


def cold_ns(device: str) -> int:
    """What the first op of its type takes more in a call, as a mean over types.

    Of a call with one op of each type less one with a single op, each further type's first op is told; of a call with two of
    each, what the second takes. Ops on the host that tell the time begin and end the calls, whose callers wake soon or late.
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

    def body(times: int, types: int | None = None) -> Callable[..., list[Any]]:
        def chain(x: Any, m: Any) -> list[Any]:
            with tf.device(HOST):
                start = raw.Timestamp()
            last = [start.op]
            with tf.device(device):
                for make in islice(ops(x, m), types):
                    for _ in range(times):
                        with tf.control_dependencies(last):
                            made = make()
                            last = [made.op]
            with tf.device(HOST), tf.control_dependencies([tf.identity(made)]):
                return [start, raw.Timestamp()]

        return chain

    with tf.device(device):
        args = [tf.constant(np.ones(_SIDE, np.float32)), tf.constant(np.ones((_SIDE, _SIDE), np.float32))]
        types = sum(1 for _ in ops(*args))
        calls = [(each, args) for each in (body(1, 1), body(1), body(2))]
        single, once, twice = _typically(calls, lambda _, results: _inside_s(results), plain=True)
    return max(0, round((once - single) / (types - 1) - (twice - once) / types))


def passed_ns(device: str) -> int:
    """What a call takes more for a tensor that its caller passes: a share of many."""

    def body(number: Any, *others: Any) -> list[Any]:
        with tf.device(device):
            return [tf.raw_ops.AddV2(x=number, y=number)]

    with tf.device(device):
        numbers = [tf.constant(np.ones(64, np.float32)) for _ in range(1 + _MANY)]
        many, one = _typically([(body, numbers), (body, numbers[:1])], _whole)
    return max(0, (many - one) // _MANY)


def argument_ns(device: str) -> int:
    """What a call takes more for a variable that it is given, reading it and handing on its value included: a share of many, read
    one after the other.
    """

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
        variables = [tf.Variable(number) for _ in range(_MANY)]
    many, none = _typically([(partial(body, each), [number]) for each in (variables, [])], _whole)
    return max(0, (many - none) // _MANY)


def _whole(took: float, _: Sequence[Any]) -> float:
    """All of a call, its results fetched."""
    return took


def _inside_s(results: Sequence[Any]) -> float:
    """From the first to the last of what a call gives, both of which tell the time."""
    return float(results[-1] - results[0])


def _typically(
    calls: Sequence[tuple[Callable[..., list[Any]], Sequence[Any]]],
    figure: Callable[[float, list[Any]], float],
    *,
    plain: bool = False,
) -> list[int]:
    """By function and arguments, called in turns: what a figure, in seconds, of a call's time and results typically is, in ns.

    Where Grappler would leave nothing to measure graphs are plain. In these each result goes through an op of its own on the
    default device, a GPU where there is one.
    """
    with plain_graphs() if plain else nullcontext():
        made = [traced(body, *args) for body, args in calls]
        medians: list[list[float]] = [[] for _ in made]
        for _ in range(1 + _BATCHES):
            for call, found in zip(made, medians, strict=True):
                figures = []
                for _ in range(_CALLS):
                    start = time.perf_counter()
                    results = [result.numpy() for result in call.function(*call.args)]
                    figures.append(figure(time.perf_counter() - start, results))
                found.append(float(np.median(figures)))
    return [round(1e9 * float(np.median(found[1:]))) for found in medians]
