"""Signatures from the text that they print, such as "MatMul(float32[8,4], float32[4,2]) -> float32[8,2]"."""

from __future__ import annotations

import re

from tensorflow.python.framework import op_def_registry

from cost_models.base import AttrValue, OpSignature, TensorSpec

_TENSOR = re.compile(r"(\w+)\[([\d?,]*)\]")


def signature(text: str, **attrs: AttrValue) -> OpSignature:
    """The signature, with the attributes that TensorFlow derives from the tensors. "int32[?]" has one unknown dimension."""
    call, _, results = text.partition(" -> ")
    op_type, _, arguments = call.partition("(")
    inputs, outputs = (tuple(map(_tensor, _TENSOR.findall(part))) for part in (arguments, results))
    derived = _derived(op_type, inputs, outputs)
    return OpSignature(op_type, inputs, outputs, tuple(sorted({**derived, **attrs}.items())))


def _tensor(found: tuple[str, str]) -> TensorSpec:
    dtype, sides = found
    return TensorSpec(dtype, tuple(None if side == "?" else int(side) for side in sides.split(",") if side))


def _derived(op_type: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> dict[str, AttrValue]:
    """Types and numbers of arguments."""
    definition, attrs = op_def_registry.get(op_type), {}
    for arguments, tensors in ((definition.input_arg, inputs), (definition.output_arg, outputs)):
        lists = [argument for argument in arguments if argument.number_attr]
        single = len(arguments) - len(lists)
        position = 0
        for argument in arguments:
            count = (len(tensors) - single) // len(lists) if argument.number_attr else 1
            if argument.number_attr:
                attrs[argument.number_attr] = count
            if argument.type_attr and position < len(tensors):
                attrs[argument.type_attr] = tensors[position].dtype
            position += count
    return attrs
