"""Gradients: tapes, the pairs of functions that TensorFlow builds for a recorded call, and gradients registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop_util, forwardprop_util
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import ops
from tensorflow.python.ops import gradients_util

FirstOrderPair = concrete_function._FirstOrderTapeGradientFunctions
HigherOrderPair = concrete_function._HigherOrderTapeGradientFunctions
DelayedPairs = concrete_function._DelayedRewriteGradientFunctions

no_recorder: Callable[[], bool] = pywrap_tfe.TFE_Py_TapeSetIsEmpty
"""Whether neither a tape nor an accumulator can record an op that runs eagerly at this moment."""
NO_GRADIENTS = gradients_util.POSSIBLE_GRADIENT_TYPES_NONE
FIRST_ORDER = gradients_util.POSSIBLE_GRADIENT_TYPES_FIRST_ORDER
HIGHER_ORDER = gradients_util.POSSIBLE_GRADIENT_TYPES_HIGHER_ORDER


def has_tangents(tensors: Sequence[Any]) -> bool:
    """Whether a forward accumulator watches one of these eager tensors."""
    return bool(forwardprop_util.pack_tangents(tensors).indices)


def is_recording() -> bool:
    """Whether a tape or an accumulator may record an op that runs eagerly at this moment."""
    return tf.executing_eagerly() and not no_recorder()


def watched_of(recorder: Any, variables: Sequence[Any]) -> list[Any]:
    """Those variables for which a GradientTape can still give a gradient, or that a ForwardAccumulator watches."""
    if isinstance(recorder, tf.GradientTape):
        watched = set(map(id, recorder.watched_variables())) if recorder._tape is not None else ()
        return [variable for variable in variables if id(variable) in watched]
    return [variable for variable in variables if recorder._recording and recorder.jvp(variable) is not None]


def recorded_call(pair: Any, args: Sequence[Any]) -> Any:
    """A call of the pair's forward function that the tape records."""
    return concrete_function._ForwardBackwardCall(pair, args, [], tape_watching=True)


def is_trainable(tensor: Any) -> bool:
    """Whether the tensor's type has gradients."""
    return bool(backprop_util.IsTrainable(tensor))


def gradient_function(name: str) -> Any:
    """The Python gradient that is registered as `name`."""
    return ops.gradient_registry.lookup(name)


def register_gradient(name: str, function: Any) -> None:
    """Registers a Python gradient for ops whose `_gradient_op_type` is `name`."""
    tf.RegisterGradient(name)(function)


def is_gradient_registered(name: str) -> bool:
    try:
        ops.gradient_registry.lookup(name)
    except LookupError:
        return False
    return True
