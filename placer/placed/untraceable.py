"""Callables that TensorFlow cannot trace."""

from __future__ import annotations

import inspect
from typing import Any


def why_untraceable(fn: Any) -> str:
    """What a callable is and what to pass instead, where calling it does not run ops; "" for any other."""
    fn = getattr(fn, "python_function", fn)  # of a tf.function
    if isinstance(fn, type):
        return "a class: pass a function, or an instance that can be called"
    for called in (fn, fn.__call__):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            return "an async function: pass one that returns its results, and call that from there"
        if inspect.isgeneratorfunction(called):
            return "a generator function: pass one that returns its results"
    return ""
