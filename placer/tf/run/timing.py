"""Timing of functions: steps that wait for their results, in alternating rounds, with variables restored afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf

from cost_models.measuring.chains import HOST, error_line
from cost_models.ops import entry_of
from placer.errors import PlacerError
from placer.tf._private.handles import has_value, held_specs
from placer.tf.connecting import do_all_answer
from placer.tf.devices import full_name
from placer.tf.trace.bodies import origin, split_input
from placer.tf.trace.body_tree import read_root
from placer.tf.trace.op_types import runs_unseen_code

MAX_READ_BYTES = 1 << 20
"""The largest result that a program is assumed to read: a loss, predictions, or a few images."""
_EAGER = tf.__internal__.EagerTensor
MIN_ROUNDS = 3
"""Number of rounds that are measured however long they take."""
WARM_UP_STEPS = 3
"""Number of steps that run before the measured ones."""
MAX_REPEATS = 100
"""Most steps of one function in a round."""


def blocking_step(run: Callable[..., Any], args: Sequence[Any]) -> Callable[[], None]:
    """A call of `run` that returns when all devices have finished: it fetches the smallest result on each device."""

    def step() -> None:
        smallest: dict[str, Any] = {}
        for tensor in tf.nest.flatten(run(*args), expand_composites=True):
            if tf.is_tensor(tensor) and tensor.dtype not in (tf.resource, tf.variant):
                other = smallest.get(tensor.device)
                if other is None or tensor.shape.num_elements() < other.shape.num_elements():
                    smallest[tensor.device] = tensor
        for tensor in smallest.values():
            tensor.numpy()
        if not smallest:
            tf.test.experimental.sync_devices()

    return step


def timed_call(
    run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], places: Sequence[str] | None = None
) -> tuple[Any, float]:
    """The results of a call, and its seconds from when all devices are idle until they are idle again.

    Args:
        run: what is called.
        args, kwargs: of the call.
        places: the devices that the results are needed on, see `needed_places`. Copies to these devices are made and timed, too.
            None: no copies are made.
    """
    synchronise = tf.test.experimental.sync_devices if do_all_answer() else _skip
    synchronise()
    start = time.perf_counter()
    results = run(*args, **kwargs)
    if places is not None:
        copied_to(places, results)
    synchronise()
    return results, time.perf_counter() - start


def _skip() -> None:
    """Takes the place of TensorFlow's `sync_devices`, which waits without limit for a worker that does not answer."""


def places_of(results: Any) -> list[str]:
    """The device whose memory holds each flat result of an eager call; "" for a result that cannot be copied."""
    can_be_copied = [(each, isinstance(each, _EAGER) and each.dtype not in (tf.resource, tf.variant)) for each in _flat(results)]
    return [each.backing_device if can else "" for each, can in can_be_copied]


def needed_places(results: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The device on which a program probably needs each flat result of a call; "" for a result that cannot be copied.

    A program whose arguments are all in host memory is assumed to read results of up to `MAX_READ_BYTES` there. It is assumed to
    need all other results where they are.

    Args:
        results: of the call, by the placement that the program would have without this package.
        args, kwargs: of the call.
    """
    host, places = full_name("CPU:0"), places_of(results)
    if any(place not in ("", host) for place in places_of((args, dict(kwargs)))):
        return places
    sizes = [
        each.shape.num_elements() * each.dtype.size if place else 0 for each, place in zip(_flat(results), places, strict=True)
    ]
    return [host if place and nbytes <= MAX_READ_BYTES else place for place, nbytes in zip(places, sizes, strict=True)]


def copied_to(places: Sequence[str], results: Any) -> list[Any]:
    """Copies of the flat results that are not where they are needed. Ends where memory runs out. No tape records them."""
    copies = []
    with tf.init_scope(), suppress(tf.errors.ResourceExhaustedError):
        for tensor, here, place in zip(_flat(results), places_of(results), places, strict=False):
            if here and place and here != place:
                with tf.device(place):
                    copies.append(tf.identity(tensor))
    return copies


def _flat(values: Any) -> list[Any]:
    return list(tf.nest.flatten(values, expand_composites=True))


def warm_up(step: Callable[[], None]) -> str:
    """Runs a step until allocators and autotuning are stable; returns why TensorFlow refuses, "" if it does not."""
    try:
        for _ in range(WARM_UP_STEPS):
            step()
    except tf.errors.OpError as error:
        return f"TensorFlow refuses: {error_line(error)}"
    return ""


def time_in_turns(
    steps: Mapping[str, Callable[[], None]],
    within_s: float,
    *,
    rounds: int,
    round_s: float,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, list[float]]:
    """Mean seconds of each step in each round. In a round the steps run in turn, each round beginning with the next step.

    Args:
        steps: by name; they have run before.
        within_s: no round starts after this time, once there are `MIN_ROUNDS`.
        rounds: the most rounds.
        round_s: about how long one step is repeated in a round.
        report: called with the name of the step that is timed next.

    Raises:
        PlacerError: a step fails when it is repeated, for example because its input is used up.
    """
    try:
        return _time_in_turns(steps, within_s, rounds, round_s, report)
    except tf.errors.OpError as error:
        raise PlacerError(f"the function ran, but failed when it was run again: {error_line(error)}") from error


def _time_in_turns(
    steps: Mapping[str, Callable[[], None]], within_s: float, rounds: int, round_s: float, report: Callable[[str], None]
) -> dict[str, list[float]]:
    names = list(steps)
    deadline = time.perf_counter() + within_s
    repeats = {name: max(1, min(MAX_REPEATS, int(round_s / mean_seconds(steps[name], 1)))) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        if i >= MIN_ROUNDS and time.perf_counter() > deadline:
            break
        for name in names[i % len(names) :] + names[: i % len(names)]:
            report(name)
            times[name].append(mean_seconds(steps[name], repeats[name]))
    return times


def mean_seconds(step: Callable[[], None], repeats: int) -> float:
    """Mean time of a step that is run `repeats` times."""
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def held_values(concrete: Any, args: Any) -> list[tuple[Any, Any]]:
    """The variables that calls of a ConcreteFunction with these arguments may change, as handles, each with a copy of its value.

    Ops can write a variable by its handle alone, as optimizers do with their slots, so all handles count but those that are only
    read. The values are kept in host memory: a device may have no room for a second copy of its variables. A variable without a
    value is left out.
    """
    passed = [each.handle for each in tf.nest.flatten(args, expand_composites=True) if isinstance(each, tf.Variable)]
    handles = {id(t): t for t in (*_captured_to_write(concrete), *passed) if t.dtype == tf.resource}
    values = []
    for handle in handles.values():
        for held in held_specs(handle):
            if not has_value(handle):
                continue
            with tf.device(handle.device):
                value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=held.dtype)
            with tf.device(HOST):
                values.append((handle, tf.identity(value)))
    return values


@contextmanager
def restored_variables(concrete: Any, args: Any) -> Iterator[None]:
    """Restores, at the end of the block, the variables that calls of a ConcreteFunction with these arguments may change, see
    `held_values`.
    """
    values = held_values(concrete, args)
    try:
        yield
    finally:
        for handle, value in values:
            with tf.device(handle.device):
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)


def _captured_to_write(concrete: Any) -> list[Any]:
    """The captured tensors of a ConcreteFunction, without the variables that it only reads."""
    captured, root = concrete.captured_inputs, read_root(concrete.inference_fn)
    inputs = root.input_tensors[len(root.input_tensors) - len(captured) :]
    written: set[str] = set()
    for body in root.walk():
        for name, node in body.nodes.items():
            if name in body.inputs or name in body.children or entry_of(node.op).reads:
                continue
            if runs_unseen_code(node.op):
                return list(captured)
            for text, tensor in zip(node.input, body.operations[name].inputs, strict=False):
                if tensor.dtype == tf.resource:
                    at, op, _ = origin(body, *split_input(text))
                    if at is not root or op not in root.inputs:
                        return list(captured)
                    written.add(op)
    return [outer for outer, inner in zip(captured, inputs, strict=True) if inner.op.name in written]
