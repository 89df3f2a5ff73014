"""Running functions for their time: steps that are waited for, rounds in turns, variables put back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.base import TensorSpec
from cost_models.host_memory import free_bytes
from cost_models.measuring.chains import HOST, error_line
from cost_models.measuring.inputs import ordinary_values
from cost_models.ops import UnmeasurableError
from placer.common.units import format_bytes
from placer.errors import OptionError, PlacerError
from placer.tf._private.handles import has_value, held_specs

LEAST_ROUNDS = 3


def step_of(run: Callable[..., Any], args: Sequence[Any]) -> Callable[[], None]:
    """A call that is over when the smallest result on each device has been fetched, so that all that came before is done."""

    def step() -> None:
        smallest: dict[str, Any] = {}
        for tensor in tf.nest.flatten(run(*args), expand_composites=True):
            if tf.is_tensor(tensor) and tensor.dtype not in (tf.resource, tf.variant):
                known = smallest.get(tensor.device)
                if known is None or tensor.shape.num_elements() < known.shape.num_elements():
                    smallest[tensor.device] = tensor
        for tensor in smallest.values():
            tensor.numpy()
        if not smallest:
            tf.test.experimental.sync_devices()

    return step


def ready(step: Callable[[], None]) -> str:
    """Steps until allocators and autotuning have settled; says why TensorFlow refuses, "" if it does not."""
    try:
        for _ in range(3):
            step()
    except tf.errors.OpError as error:
        return f"TensorFlow refuses: {error_line(error)}"
    return ""


def in_turns(
    steps: Mapping[str, Callable[[], None]],
    within_s: float,
    *,
    rounds: int,
    round_s: float,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Seconds a step, one figure a round: round by round, each in turn for about `round_s`, starting with another one each.

    Args:
        steps: by name; they have run before.
        within_s: no further round starts after this, once there are three.
        rounds: how many, at most.
        tell: is told whose turn it is.

    Raises:
        PlacerError: a step fails, such as one that takes from what is used up by then.
    """
    try:
        return _in_turns(steps, within_s, rounds, round_s, tell)
    except tf.errors.OpError as error:
        raise PlacerError(f"a step ran, but not again and again: {error_line(error)}") from error


def _in_turns(
    steps: Mapping[str, Callable[[], None]], within_s: float, rounds: int, round_s: float, tell: Callable[[str], None]
) -> dict[str, list[float]]:
    names = list(steps)
    deadline = time.perf_counter() + within_s
    repeats = {name: max(1, min(100, int(round_s / seconds(steps[name], 1)))) for name in names}
    took: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        if i >= LEAST_ROUNDS and time.perf_counter() > deadline:
            break
        for name in names[i % len(names) :] + names[: i % len(names)]:
            tell(name)
            took[name].append(seconds(steps[name], repeats[name]))
    return took


def seconds(step: Callable[[], None], repeats: int) -> float:
    """Mean time of a step over a number of them."""
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


@contextmanager
def variables_kept(concrete: Any, args: Any) -> Iterator[None]:
    """What calls of a ConcreteFunction with these arguments do to variables inside is undone afterwards.

    Ops can write a variable by its handle alone, as optimizers do with their slots, so each handle counts. The values wait in
    host memory: a device may have no room for a second copy of its variables.
    """
    passed = [each.handle for each in tf.nest.flatten(args, expand_composites=True) if isinstance(each, tf.Variable)]
    handles = {id(t): t for t in (*concrete.captured_inputs, *passed) if t.dtype == tf.resource}
    before = []
    for handle in handles.values():
        for held in held_specs(handle):
            if not has_value(handle):
                continue
            with tf.device(handle.device):
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=held.dtype)
            with tf.device(HOST):
                before.append((handle, tf.identity(value)))
    try:
        yield
    finally:
        for handle, value in before:
            with tf.device(handle.device):
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def made_up(fn: Any, specs: Sequence[tf.TensorSpec]) -> tuple[Any, ...]:
    """Ordinary values for a function's arguments of these types: ones for integers, between 0.1 and 1 for floats.

    Args:
        specs: a function that has types of its own needs none.

    Raises:
        OptionError: a size that is not known, or for which the host has no memory.
    """
    own = getattr(fn, "input_signature", None) or getattr(fn, "structured_input_signature", [()])[0]
    return tuple(tf.nest.map_structure(_made_up, spec) for spec in specs or own)


def _made_up(spec: tf.TensorSpec) -> Any:
    wanted = TensorSpec(spec.dtype.name, None if spec.shape.rank is None else tuple(spec.shape))
    if (needed := 2 * wanted.nbytes) > (free := free_bytes()):
        raise OptionError(f"making {wanted} takes {format_bytes(needed)} of memory, and {format_bytes(free)} are free.")
    try:
        return tf.constant(ordinary_values(np.random.default_rng(0), wanted))
    except UnmeasurableError as error:
        raise OptionError(f"a function that is to run needs arguments of known sizes, which {wanted} leaves open.") from error
