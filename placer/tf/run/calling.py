"""Recognising a call: a cheap key for arguments seen before, and what makes a function one to leave alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from placer.common.device_spec import parse
from placer.errors import TraceError
from placer.tf._private.func_graphs import external_captures, runs_on_replica
from placer.tf._private.functions import (
    UnliftableError,
    is_jit_compiled,
    raised_while_tracing,
    trace_type,
    variable_creation_function,
)
from placer.tf._private.gradients import is_recording
from placer.tf._private.handles import is_distributed, is_parallel, location
from placer.tf._private.runtime import device_scope
from placer.tf.devices import process_devices
from placer.tf.trace.optypes import unplaceable
from placer.tf.trace.tracing import Trace, trace_concrete

_EAGER = tf.__internal__.EagerTensor
_PLAIN = (bool, int, float, str, bytes, type(None))


def call_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """A key under which calls share a trace: equal keys, equal traces. None where TensorFlow itself must look.

    Only eager tensors, arrays of numbers, plain Python values and lists, tuples and dicts of them have one; everything else
    (variables, models, composite and symbolic tensors) is recognised by TensorFlow's own, slower rules, as are calls under a
    distribution strategy, and where functions are to run eagerly.
    """
    if not tf.executing_eagerly() or runs_eagerly() or tf.distribute.has_strategy():
        return None
    try:
        return (device_scope(), tuple(map(_part, args)), tuple((k, _part(v)) for k, v in kwargs.items()))
    except _NoKeyError:
        return None


def trace_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """What a call is traced for, and under: not traced anew where it was before. None where that cannot be told."""
    try:
        around = (device_scope(), tf.executing_eagerly(), tf.distribute.has_strategy())
        key = (around, trace_type((args, dict(kwargs))))
        hash(key)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return key


def is_composite(value: Any) -> bool:
    """True for a tensor made of others, such as one of a user's own type."""
    return isinstance(value, tf.__internal__.CompositeTensor)


def runs_eagerly() -> bool:
    """True where functions are run as they are written, op by op, to be looked into."""
    return bool(tf.config.functions_run_eagerly())


def runs_on_its_own() -> bool:
    """True for a call that is eager and that no tape, accumulator or distribution strategy sees."""
    return bool(tf.executing_eagerly() and not is_recording() and not tf.distribute.has_strategy())


def in_replica() -> bool:
    """True where one of the replicas of a distribution strategy calls."""
    return bool(tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context())


def as_written(fn: Any) -> Any:
    """A function to be called as it is: a plain one is rewritten by AutoGraph if what is around it was."""
    autograph = tf.__internal__.autograph
    return fn if hasattr(fn, "get_concrete_function") else autograph.tf_convert(fn, autograph.control_status_ctx())


class _NoKeyError(Exception):
    pass


def _part(value: Any) -> Hashable:
    kind = type(value)
    if kind is _EAGER:
        return (value._datatype_enum(), value._shape_tuple())
    if kind in _PLAIN:
        return (kind, value)
    if (kind is np.ndarray or isinstance(value, np.generic)) and value.dtype.kind in "biufc":
        return (value.dtype, value.shape)
    if kind in (list, tuple):
        return (kind, *map(_part, value))
    if kind is dict:
        return (kind, *((k, _part(v)) for k, v in value.items()))
    raise _NoKeyError


def initialising(fn: Any, error: BaseException | None) -> Any:
    """The ConcreteFunction that gives the variables made by a tf.function's first call their initial values where it meets them.

    None unless `error` says that tracing failed because these depend on the call's arguments.
    """
    return variable_creation_function(fn) if isinstance(error, UnliftableError) else None


def raised_by_function(error: TraceError) -> Exception | None:
    """What the function raised while it was traced, if that is why it could not be."""
    own = error.__cause__
    if not isinstance(own, Exception) or isinstance(own, UnliftableError):
        return None
    return own if raised_while_tracing(own) else None


def entry_key(concrete: Any) -> Hashable:
    """What tells plans apart: the trace, which calls inside other functions share whatever device or strategy they are under."""
    return id(concrete), device_scope(), tf.distribute.has_strategy()


def scope_text() -> str:
    """The device scope around a call, to tell its plan by: " (on GPU:0)"; "" where there is none."""
    scope = device_scope()
    return f" (on {parse(scope).short or scope})" if scope else ""


def placeable(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Trace | None, str]:
    """The Trace of a ConcreteFunction for a call; where it must run as it is, None and why."""
    try:
        trace = trace_concrete(concrete, args, kwargs)
        reason = _leave_alone(trace)
    except TraceError as error:
        return None, str(error)
    return (None, reason) if reason else (trace, "")


def _leave_alone(trace: Trace) -> str:
    if is_jit_compiled(trace.concrete):
        return "it is compiled by XLA as a whole (jit_compile=True), so no op of it can be placed by itself"
    captured = [outer for body in trace.root.walk() for outer, _ in external_captures(body.graph)]
    if any(map(is_parallel, [*trace.arguments, *captured])):
        return "it uses DTensors or packed replicas, whose layout decides the devices"
    if tf.distribute.has_strategy():
        return "it is called under a distribution strategy, which decides the devices"
    if any(is_distributed(v) for v in trace.concrete.graph.variables):
        return "it uses variables of a distribution strategy, which decides the devices"
    for body in trace.root.walk():
        for name, node in body.nodes.items():
            if why := unplaceable(node.op):
                return f"its {body.names[name]!r} ({node.op}) {why}"
            if runs_on_replica(body.operations[name]):
                return "it runs replicas of a distribution strategy, which decides the devices"
    return _of_a_cluster(trace, captured)


def _of_a_cluster(trace: Trace, captured: Sequence[Any]) -> str:
    others = {parse(d.name).job for d in tf.config.list_logical_devices()} - {None, "localhost"}
    if not others:
        return ""
    if not process_devices():
        return "this process is part of a cluster, and only devices of a process of its own are planned for"
    devices = [trace.root.outer_scope, *map(location, (*trace.arguments, *captured))]
    devices += [node.device for body in trace.root.walk() for node in body.nodes.values()]
    elsewhere = next((d for d in devices if parse(d).job in others), "")
    return f"it uses {elsewhere}, and only devices of this process are planned for" if elsewhere else ""
