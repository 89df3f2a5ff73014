"""Signatures of the ops from which constants of a machine follow."""

from __future__ import annotations

from cost_models.base import AttrValue, OpSignature, TensorSpec


def elementwise(op_type: str, elements: int) -> OpSignature:
    """An op on each element of one tensor, or of two tensors for AddV2."""
    inputs = [_floats(elements)] * (2 if op_type == "AddV2" else 1)
    return _op(op_type, inputs, _floats(elements))


def shape_of(elements: int) -> OpSignature:
    """An op that reads no element."""
    return _op("Shape", [_floats(elements)], _ints(1), out_type="int32")


def matmul(side: int, dtype: str = "float32") -> OpSignature:
    """A product of two square matrices."""
    matrix = TensorSpec(dtype, (side, side))
    return OpSignature("MatMul", (matrix, matrix), (matrix,), (("T", dtype),))


def random_numbers(elements: int) -> OpSignature:
    """An op that computes much and reads almost nothing."""
    inputs = (_ints(1), TensorSpec("uint64", (1,)), TensorSpec("uint64", (2,)), _ints())
    return OpSignature("StatelessRandomUniformV2", inputs, (_floats(elements),), (("Tshape", "int32"), ("dtype", "float32")))


def _floats(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape)


def _ints(*shape: int) -> TensorSpec:
    return TensorSpec("int32", shape)


def _op(op_type: str, inputs: list[TensorSpec], output: TensorSpec, **attrs: AttrValue) -> OpSignature:
    return OpSignature(op_type, tuple(inputs), (output,), tuple(sorted({"T": "float32", **attrs}.items())))
