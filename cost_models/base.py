"""The question to a cost model, an op signature, and its answer, a cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from cost_models.machines import Device

AttrValue: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e5m2": 1, "float8_e4m3fn": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "int4": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "uint4": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "qint8": 1, "quint8": 1, "qint16": 2, "quint16": 2, "qint32": 4,
    "string": 24, "resource": 0, "variant": 0,
}  # fmt: skip
"""Bytes per element. Strings count their header only; handles and variants live elsewhere."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor's element type and shape; ``None`` stands for an unknown dimension or rank."""

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def elements(self) -> int:
        """Number of elements, unknown dimensions counted as 1 and an unknown rank as a scalar."""
        return _elements(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, unknown dimensions counted as 1."""
        return self.elements * DTYPE_BYTES.get(self.dtype, 4)

    def __str__(self) -> str:
        """The form used in signatures, such as "float32[8,?]". An unknown rank looks like one unknown dimension: "string[?]"."""
        return f"{self.dtype}[{'?' if self.shape is None else ','.join('?' if d is None else str(d) for d in self.shape)}]"


@functools.lru_cache(maxsize=4096)
def _elements(shape: tuple[int | None, ...] | None) -> int:
    return math.prod(1 if d is None else d for d in shape or ())


@dataclass(frozen=True, slots=True)
class OpSignature:
    """Everything that the cost of an op depends on. Ops with equal signatures have equal costs."""

    op_type: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attrs: tuple[tuple[str, AttrValue], ...] = ()
    """Sorted by name. A type is given by its name ("float32"), a shape as a tuple with -1 for an unknown dimension. Functions and
    large tensors are left out."""
    inner: tuple[OpSignature, ...] = ()
    """The ops inside a call that is compiled, and therefore placed, as a whole; or of a function that is run for each element of
    a dataset."""

    def attr(self, name: str, default: AttrValue | None = None) -> AttrValue | None:
        """The attribute's value, or `default` if the op has no attribute of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default

    def to_json(self) -> list[Any]:
        """The signature as plain JSON types."""

        def specs(tensors: tuple[TensorSpec, ...]) -> list[Any]:
            return [[t.dtype, t.shape] for t in tensors]

        row = [self.op_type, specs(self.inputs), specs(self.outputs), [list(a) for a in self.attrs]]
        return [*row, [s.to_json() for s in self.inner]] if self.inner else row

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> OpSignature:
        """The signature from a row that `to_json` made, with JSON's lists in place of tuples.

        Raises:
            ValueError: the row has another form.
            TypeError: a value in it has a wrong type.
        """

        def specs(tensors: Sequence[Any]) -> tuple[TensorSpec, ...]:
            sides = ((_text(dtype), None if shape is None else tuple(map(_side, shape))) for dtype, shape in tensors)
            return tuple(TensorSpec(dtype, shape) for dtype, shape in sides)

        def attr(value: Any) -> AttrValue:
            return tuple(map(_scalar, value)) if isinstance(value, list) else _scalar(value)

        op_type, inputs, outputs, attrs, *inner = row
        plain_attrs = tuple((_text(name), attr(value)) for name, value in attrs)
        calls = tuple(map(cls.from_json, *inner)) if inner else ()
        return cls(_text(op_type), specs(inputs), specs(outputs), plain_attrs, calls)

    def __str__(self) -> str:
        """The signature without attributes: "MatMul(float32[8,4], float32[4,2]) -> float32[8,2]"."""
        return f"{self.op_type}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs)) or 'nothing'}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _side(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{value!r} is no size")
    return value


def _scalar(value: Any) -> str | int | float | bool:
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is no attribute's value")
    return value


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of one run of an op on one device.

    ``dispatch_ns`` is the time of the host, which launches the op; ``compute_ns`` is the time of the device. ``time_ns`` is the
    time that the op adds to a serial chain of such ops. On an asynchronous device dispatch and compute overlap along a chain, so
    ``time_ns`` is the larger of them; on any other device it is their sum.
    """

    time_ns: int
    dispatch_ns: int
    compute_ns: int
    workspace_bytes: int
    source: str
    """The source of the cost: "analytic", "analytic-fallback", "measured", "harvested" or "user"."""


class CostModel(Protocol):
    """Anything that prices op signatures. Equal arguments must give equal costs."""

    @property
    def name(self) -> str: ...

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost: ...
