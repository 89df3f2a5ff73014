"""Signatures of common ops in several sizes, to measure when no function says which ops matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cost_models.base import AttrValue, OpSignature, TensorSpec

LEVELS = 7
"""Number of sizes of each op. Each is eight times the one before."""


def common() -> Iterator[OpSignature]:
    """Ops of the types that take most of the time in most functions: the smallest op of each type first, then the next size."""
    for level in range(LEVELS):
        for family in _FAMILIES:
            yield family(8**level)


def elementwise(op_type: str, elements: int) -> OpSignature:
    """An op on each element of one tensor, or of two tensors for AddV2 and Mul."""
    inputs = [_floats(elements)] * (2 if op_type in ("AddV2", "Mul") else 1)
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


def unique(elements: int) -> OpSignature:
    """An op that uses one core."""
    keys = TensorSpec("int64", (elements,))
    return OpSignature("Unique", (keys,), (TensorSpec("int64", (None,)), _ints(elements)), (("T", "int64"),))


def _floats(*shape: int) -> TensorSpec:
    return TensorSpec("float32", shape)


def _ints(*shape: int) -> TensorSpec:
    return TensorSpec("int32", shape)


def _op(op_type: str, inputs: list[TensorSpec], output: TensorSpec, **attrs: AttrValue) -> OpSignature:
    return OpSignature(op_type, tuple(inputs), (output,), tuple(sorted({"T": "float32", **attrs}.items())))


def _on_elements(op_type: str, scale: int) -> OpSignature:
    return elementwise(op_type, 64 * scale)


def _product(scale: int) -> OpSignature:
    return matmul(16 * round(scale ** (1 / 3)))


def _convolution(op_type: str, scale: int, dtype: str = "float32") -> OpSignature:
    """Three by three on four small images."""
    channels = 2 * round(scale**0.5)
    image, weights = TensorSpec(dtype, (4, 14, 14, channels)), TensorSpec(dtype, (3, 3, channels, channels))
    inputs = {
        "Conv2D": [image, weights],
        "Conv2DBackpropInput": [_ints(4), weights, image],
        "Conv2DBackpropFilter": [image, _ints(4), image],
    }
    output = weights if op_type == "Conv2DBackpropFilter" else image
    return _op(op_type, inputs[op_type], output, T=dtype, padding="SAME", strides=(1, 1, 1, 1))


def _bias(rows: int) -> OpSignature:
    return _op("BiasAdd", [_floats(rows, 64), _floats(64)], _floats(rows, 64))


def _bias_back(rows: int) -> OpSignature:
    return _op("BiasAddGrad", [_floats(rows, 64)], _floats(64))


def _sum_of_rows(rows: int) -> OpSignature:
    return _op("Sum", [_floats(rows, 63), _ints(1)], _floats(63), Tidx="int32", keep_dims=False)


def _mean_in_rows(rows: int) -> OpSignature:
    return _op("Mean", [_floats(rows, 63), _ints(1)], _floats(rows), Tidx="int32", keep_dims=False)


def _softmax(rows: int) -> OpSignature:
    return _op("Softmax", [_floats(rows, 64)], _floats(rows, 64))


def _transpose(scale: int) -> OpSignature:
    rows = scale + 1  # one row would not be moved
    return _op("Transpose", [_floats(rows, 63), _ints(2)], _floats(63, rows), Tperm="int32")


def _concat(rows: int) -> OpSignature:
    return _op("ConcatV2", [_floats(rows, 64), _floats(rows, 32), _ints()], _floats(rows, 96), N=2, Tidx="int32")


def _gather(rows: int) -> OpSignature:
    attrs = (("Taxis", "int32"), ("Tindices", "int32"), ("Tparams", "float32"))
    return OpSignature("GatherV2", (_floats(4 * rows, 64), _ints(rows), _ints()), (_floats(rows, 64),), attrs)


_FAMILIES: tuple[Callable[[int], OpSignature], ...] = (
    *(partial(_on_elements, op_type) for op_type in ("AddV2", "Mul", "Relu", "Tanh", "Sqrt")),
    _product,
    *(partial(_convolution, op_type) for op_type in ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")),
    *(partial(_convolution, "Conv2D", dtype=dtype) for dtype in ("float16", "bfloat16")),
    *(_bias, _bias_back, _sum_of_rows, _mean_in_rows, _softmax, _transpose, _concat, _gather),
)
