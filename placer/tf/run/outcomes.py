"""What a call gave, its results and the values of its variables, and whether two such outcomes agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer.tf.run.timing import held_values, restored_variables

TOLERANCES = {"float64": 1e-6, "complex128": 1e-6, "float32": 1e-3, "complex64": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}
"""By type: the largest difference between the numbers of two tensors that agree, as a share of the largest number. Values of
other types must be equal."""
TF32_TOLERANCE = 5e-3
"""That of float32 where a GPU may multiply numbers of 10 bits (TF32). A product rounds by up to 5e-4, and a step has several."""
FLOOR = 1e-3
"""Numbers below this share of the tolerance count as zero: they are what remains where terms cancel."""


@dataclass(frozen=True)
class Outcome:
    """What a call gave."""

    results: tuple[Any, ...]
    """The flat results as arrays; Python values as they are."""
    variables: tuple[Any, ...]
    """The values that the function's variables have after the call."""

    def difference(self, other: Outcome) -> str:
        """How another call with the same arguments and the same variables differs; "" if it agrees, see `TOLERANCES`."""
        kinds = {"result": (self.results, other.results), "variable": (self.variables, other.variables)}
        for kind, (ours, theirs) in kinds.items():
            for k, (one, two) in enumerate(zip(ours, theirs, strict=True)):
                if reason := _difference(one, two):
                    return f"{kind} {k} {reason}"
        return ""


def outcome(run: Callable[..., Any], concrete: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Outcome:
    """Makes a call and puts its variables back.

    Args:
        run: what is called.
        concrete: the plain ConcreteFunction, for its variables.
        args, kwargs: of the call.
    """
    with restored_variables(concrete, (args, kwargs)):
        results = tuple(map(_array, tf.nest.flatten(run(*args, **kwargs), expand_composites=True)))
        return Outcome(results, tuple(_array(value) for _, value in held_values(concrete, (args, kwargs))))


def _array(value: Any) -> Any:
    return value.numpy() if tf.is_tensor(value) and value.dtype not in (tf.resource, tf.variant) else value


def _multiplies_in_tf32() -> bool:
    return bool(tf.config.list_logical_devices("GPU")) and bool(tf.config.experimental.tensor_float_32_execution_enabled())


def _difference(one: Any, two: Any) -> str:
    if not isinstance(one, np.ndarray | np.generic):
        return "" if one is two or one == two else "is another value"
    if one.shape != two.shape or one.dtype != two.dtype:
        return f"has {two.dtype.name}{list(two.shape)} in place of {one.dtype.name}{list(one.shape)}"
    tolerance = TOLERANCES.get(one.dtype.name)
    if one.dtype.name in ("float32", "complex64") and _multiplies_in_tf32():
        tolerance = TF32_TOLERANCE
    if tolerance is None:
        unequal = int(np.sum(one != two))
        return f"differs in {unequal} of {one.size} values" if unequal else ""
    wide = np.result_type(one.dtype, np.complex128) if np.iscomplexobj(one) else np.float64
    one, two = one.astype(wide), two.astype(wide)
    finite = np.isfinite(one) & np.isfinite(two)
    if not np.array_equal(one[~finite], two[~finite], equal_nan=True):
        return "has other values that are not finite"
    scale = np.max(np.abs(one), where=finite, initial=0.0)
    error = np.max(np.abs(one - two), where=finite, initial=0.0)
    if error <= tolerance * max(float(scale), FLOOR):
        return ""
    return f"differs by {error / max(float(scale), FLOOR):.1e} of its largest value, more than {tolerance:g}"
