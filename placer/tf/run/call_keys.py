"""Keys by which calls are recognised: calls with equal keys share a trace or a plan."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from placer.common.device_spec import parse
from placer.tf._private.functions import trace_type
from placer.tf._private.runtime import device_scope

_executing_eagerly, _runs_eagerly = tf.executing_eagerly, tf.config.functions_run_eagerly
_has_strategy = tf.distribute.has_strategy
"""Looked up once: a key is made in each call."""
_EAGER = tf.__internal__.EagerTensor
_PLAIN = (bool, int, float, str, bytes, type(None))


class _NoKeyError(Exception):
    pass


def call_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """A key that is fast to compute: calls with equal keys share a trace. None for calls that only TensorFlow can recognise.

    Eager tensors, arrays of numbers, plain Python values, and lists, tuples and dicts of them have a key. TensorFlow recognises
    all others by its own, slower rules: variables, models, composite and symbolic tensors, calls under a distribution strategy,
    and calls where functions run eagerly.
    """
    if not _executing_eagerly() or _runs_eagerly() or _has_strategy():
        return None
    try:
        named = tuple((k, _part(v)) for k, v in kwargs.items()) if kwargs else ()
        return (device_scope(), tuple(map(_part, args)), named)
    except _NoKeyError:
        return None


def trace_key(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """A key for which TensorFlow traces once: by its own types of the arguments and by the scopes around the call.

    None for arguments without such a type.
    """
    try:
        scopes = (device_scope(), tf.executing_eagerly(), tf.distribute.has_strategy())
        key = (scopes, trace_type((args, dict(kwargs))))
        hash(key)
    except (TypeError, ValueError, NotImplementedError):
        return None
    return key


def plan_key(concrete: Any) -> Hashable:
    """A key for a call's plan: the trace, which calls in other functions share in all scopes, and the scopes around the call."""
    return id(concrete), device_scope(), tf.distribute.has_strategy()


def scope_text() -> str:
    """The device scope around a call, for the name of its plan: " (on GPU:0)"; "" without one."""
    scope = device_scope()
    return f" (on {parse(scope).short or scope})" if scope else ""


def _part(value: Any) -> Hashable:
    """The key of one argument, or of a part of it."""
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
