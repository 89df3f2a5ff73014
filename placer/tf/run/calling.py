"""The circumstances of a call, and of an error that a function's first trace raised."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from placer.errors import TraceError
from placer.tf._private.functions import UnliftableError, raised_while_tracing, variable_creation_function
from placer.tf._private.gradients import is_recording
from placer.tf._private.runtime import is_op_determinism_enabled


def is_composite(value: Any) -> bool:
    """Whether a value is a tensor made of other tensors, such as one of a user's own type."""
    return isinstance(value, tf.__internal__.CompositeTensor)


def runs_eagerly() -> bool:
    """Whether functions run eagerly, op by op, so that they can be debugged."""
    return bool(tf.config.functions_run_eagerly())


def is_eager() -> bool:
    """Whether ops run at once, and are not added to a graph."""
    return bool(tf.executing_eagerly())


def runs_on_its_own() -> bool:
    """True for a call that is eager and that no tape, accumulator or distribution strategy sees."""
    return bool(tf.executing_eagerly() and not is_recording() and not tf.distribute.has_strategy())


def runs_under_tape() -> bool:
    """True for an eager call that a tape may record and that no distribution strategy sees."""
    return bool(tf.executing_eagerly() and is_recording() and not tf.distribute.has_strategy())


def is_deterministic() -> bool:
    """Whether the user asked TensorFlow for results that are the same in every run."""
    return is_op_determinism_enabled()


def in_scope() -> bool:
    """Whether the call is made in the scope of a distribution strategy."""
    return bool(tf.distribute.has_strategy())


def is_taped() -> bool:
    """Whether a tape or an accumulator may record the call."""
    return bool(is_recording())


def in_replica() -> bool:
    """Whether a replica of a distribution strategy makes the call."""
    return bool(tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context())


def has_values_of_replicas(args: Any, kwargs: Any) -> bool:
    """Whether an argument has a value for each replica of a distribution strategy."""
    return any(isinstance(part, tf.distribute.DistributedValues) for part in tf.nest.flatten((args, kwargs)))


def converted_like_caller(fn: Any) -> Any:
    """A plain function converted by AutoGraph if the code around the call was converted; a tf.function unchanged."""
    autograph = tf.__internal__.autograph
    return fn if hasattr(fn, "get_concrete_function") else autograph.tf_convert(fn, autograph.control_status_ctx())


def initialising_function(fn: Any, error: BaseException | None) -> Any:
    """The ConcreteFunction of a tf.function's first call that initialises each variable where it is created.

    None unless `error` says that tracing failed because initial values depend on the call's arguments.
    """
    return variable_creation_function(fn) if isinstance(error, UnliftableError) else None


def error_of_function(error: TraceError) -> Exception | None:
    """The error that the function's own code raised while it was traced; None if tracing failed for another reason."""
    cause = error.__cause__
    if not isinstance(cause, Exception) or isinstance(cause, UnliftableError):
        return None
    return cause if raised_while_tracing(cause) else None
