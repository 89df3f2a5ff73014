"""What is saved of a placed function: the function without devices, since where it is loaded others are there."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from placer.tf._private.functions import ConcreteFunction, copy_flat_signature
from placer.tf._private.runtime import is_saving
from placer.tf.rewrite.rewriting import rewrite
from placer.tf.trace.tracing import Trace


def without_devices(trace: Trace) -> Any:
    """A private copy of a traced function in which no op has a device, neither a planned one nor one that the user asked for.

    Raises:
        RewriteError: see `placer.tf.rewrite.rewriting.rewrite`.
    """
    return rewrite(trace, defaultdict(str))


def around(placed: Any) -> Any:
    """A tf.function that calls a placed one and has its parameters."""

    @functools.wraps(placed)
    def call(*args: Any, **kwargs: Any) -> Any:
        return placed(*args, **kwargs)

    return tf.function(call, input_signature=placed._traceable.input_signature, autograph=False)


class ExportableFunction(ConcreteFunction):  # type: ignore[misc]
    """A placed ConcreteFunction to whoever calls it; to `tf.saved_model.save`, which reads its graph, one without devices."""

    def __init__(self, placed: Any, bare: Any) -> None:
        super().__init__(bare.inference_fn)
        copy_flat_signature(bare, self)
        self._placed = placed
        self._bare = bare  # it keeps the Python callbacks and closures that its graph refers to

    def _call_flat(self, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
        if is_saving():
            return super()._call_flat(tensor_inputs, captured_inputs)
        return self._placed._call_flat(tensor_inputs, captured_inputs)
