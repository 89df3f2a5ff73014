"""Functions without devices, for a SavedModel: it is loaded in processes that have other devices."""

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
    """A private copy of a traced function in which no op has a device, neither a planned nor a requested one.

    Raises:
        RewriteError: see `placer.tf.rewrite.rewriting.rewrite`.
    """
    return rewrite(trace, defaultdict(str))


def calling_function(placed: Any) -> Any:
    """A tf.function that calls a placed function and has its parameters."""

    @functools.wraps(placed)
    def call(*args: Any, **kwargs: Any) -> Any:
        return placed(*args, **kwargs)

    return tf.function(call, input_signature=getattr(placed._traceable, "input_signature", None), autograph=False)


def only_types(fn: Any) -> Any:
    """The types of all calls of a tf.function or ConcreteFunction; None if each call may have others."""
    if isinstance(fn, ConcreteFunction):
        return tuple(part for part in tf.nest.flatten(call_types(fn)) if isinstance(part, tf.TypeSpec))
    return fn.input_signature


def call_types(concrete: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The types of the positional arguments and of the keywords with which a ConcreteFunction is called."""
    if concrete.structured_input_signature is not None:
        args, kwargs = concrete.structured_input_signature
        return args, kwargs
    # A wrapped graph of TensorFlow 1 is called with tensors.
    types = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in concrete.inputs]
    return (), dict(zip(concrete._arg_keywords, types, strict=False))


class ExportableFunction(ConcreteFunction):  # type: ignore[misc]
    """A ConcreteFunction whose graph has no devices, as `tf.saved_model.save` reads it, and whose calls run a placed one.

    Args:
        placed: the function that calls run.
        without_devices: the function that is saved, with the same signature.
    """

    def __init__(self, placed: Any, without_devices: Any) -> None:
        super().__init__(without_devices.inference_fn)
        copy_flat_signature(without_devices, self)
        self._placed = placed
        self._without_devices = without_devices  # keeps alive the Python callbacks and closures to which its graph refers

    def _call_flat(self, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
        if is_saving():
            return super()._call_flat(tensor_inputs, captured_inputs)
        return self._placed._call_flat(tensor_inputs, captured_inputs)
