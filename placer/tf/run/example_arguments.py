"""Example arguments for a function that is to run and of which only the argument types are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cost_models.base import TensorSpec
from cost_models.host_memory import free_bytes
from cost_models.measuring.inputs import ordinary_values
from cost_models.ops import UnmeasurableError
from placer.common.units import format_bytes
from placer.errors import OptionError


def example_arguments(fn: Any, specs: Sequence[tf.TensorSpec]) -> tuple[Any, ...]:
    """Arguments with ordinary values: ones for integers, between 0.1 and 1 for floats.

    Args:
        fn: the function.
        specs: types of its arguments; empty for a function that has types of its own.

    Raises:
        OptionError: a size is not known, or the host has no memory for it.
    """
    own = getattr(fn, "input_signature", None) or getattr(fn, "structured_input_signature", [()])[0]
    return tuple(tf.nest.map_structure(_example, spec) for spec in specs or own)


def with_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call, with tensors of ordinary values in place of TensorSpecs.

    Raises:
        OptionError: a size is not known, or the host has no memory for it.
    """

    def value(part: Any) -> Any:
        return _example(part) if isinstance(part, tf.TensorSpec) else part

    return tf.nest.map_structure(value, (args, kwargs))  # type: ignore[no-any-return]


def _example(spec: tf.TensorSpec) -> Any:
    wanted = TensorSpec(spec.dtype.name, None if spec.shape.rank is None else tuple(spec.shape))
    if (needed := 2 * wanted.nbytes) > (free := free_bytes()):
        raise OptionError(f"making {wanted} takes {format_bytes(needed)} of memory, and {format_bytes(free)} are free.")
    try:
        return tf.constant(ordinary_values(np.random.default_rng(0), wanted))
    except UnmeasurableError as error:
        raise OptionError(f"a function that is to run needs arguments of known sizes, which {wanted} leaves open.") from error
