"""Inputs on which an op of a given signature does what the signature says.

The values that decide what an op does come from its entry in `cost_models.ops`. Whether they were right shows when the op is run:
it must give the signature's shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cost_models.base import DTYPE_BYTES, OpSignature, TensorSpec
from cost_models.ops import UnmeasurableError, entry_of
from cost_models.ops.optype import ScratchVariable
from cost_models.ops.recipes import Data, known_shape

MAX_VALUES = 2**16
"""Different random values that are made; larger tensors repeat them."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor to pass."""

    array: Any
    is_argument: bool
    """Whether it decides what the op does, so that it belongs in host memory; else it is the data that the op works on."""


def inputs_of(op: OpSignature) -> list[ScratchVariable | Value]:
    """What to pass to an op of this signature.

    Raises:
        UnmeasurableError: it acts on more than its inputs, or what to pass does not follow from the signature.
    """
    check_runnable(op)
    op = _assumed(op)
    entry = entry_of(op.op_type)
    values = entry.recipe(op)
    rng = np.random.default_rng(0)
    inputs: list[ScratchVariable | Value] = []
    for position, spec in enumerate(op.inputs):
        if spec.dtype == "resource" and entry.variable is not None:
            inputs.append(entry.variable(op))
        elif position in values:
            value = values[position]
            bulk = isinstance(value, Data)
            inputs.append(Value(_shaped(value.array if bulk else value, spec, op), is_argument=not bulk))
        else:
            inputs.append(Value(ordinary_values(rng, spec), is_argument=False))
    return inputs


def check_runnable(op: OpSignature) -> None:
    """Checks whether an op acts on its inputs alone and whether values can be made for them. Makes no values.

    Raises:
        UnmeasurableError: it does not, or they cannot.
    """
    op = _assumed(op)
    definition, entry = op_def_registry.get(op.op_type), entry_of(op.op_type)
    if definition is None:
        raise UnmeasurableError("it is no op of its own")
    if any(attr.type in ("func", "list(func)") for attr in definition.attr):
        raise UnmeasurableError("it calls a function")
    has_outside_state = definition.is_stateful and entry.variable is None and not entry.own_state_only
    if entry.side_effects or has_outside_state:
        raise UnmeasurableError("it has side effects")
    for spec in op.inputs:
        if spec.dtype == "resource" and entry.variable is None:
            raise UnmeasurableError("it works on a resource that is no variable")
        if spec.shape is None or None in spec.shape:
            raise UnmeasurableError("the shape of an input is not known")
        if spec.dtype not in DTYPE_BYTES or spec.dtype == "variant" or spec.dtype.startswith(("q", "float8", "int4", "uint4")):
            raise UnmeasurableError(f"no values of type {spec.dtype} can be made")


def _assumed(op: OpSignature) -> OpSignature:
    """The op with a shape for the one input whose shape is never known: what cuDNN keeps for the gradient of a batch
    normalization, which is often nothing.
    """
    if op.op_type != "FusedBatchNormGradV3":
        return op
    return replace(op, inputs=(*op.inputs[:5], TensorSpec(op.inputs[5].dtype, (0,))))


def _shaped(value: Any, spec: TensorSpec, op: OpSignature) -> Any:
    array = np.asarray(value)
    if array.size != spec.elements:
        raise UnmeasurableError(f"its inputs' shapes do not tell what {op.op_type} should be given")
    return array.astype(tf.as_dtype(spec.dtype).as_numpy_dtype).reshape(known_shape(spec))


def ordinary_values(rng: np.random.Generator, spec: TensorSpec) -> Any:
    """Values of which none is zero, negative or special."""
    shape = known_shape(spec)
    some = rng.random(min(spec.elements, MAX_VALUES))
    if spec.dtype == "string":
        return np.resize(np.char.mod("%08d", (some * 1e8).astype(np.int64)).astype(object), shape)
    if spec.dtype == "bool":
        return np.resize(some < 0.5, shape)
    some = np.ones_like(some) if "int" in spec.dtype else 0.1 + 0.9 * some
    return np.resize(some.astype(tf.as_dtype(spec.dtype).as_numpy_dtype), shape)
