"""Attributes of nodes as kernels look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue

Value: TypeAlias = str | bytes | int | tuple[str | int, ...] | None
"""A dtype by name, a string as bytes, a number, a tuple of dtypes or numbers; None for any other value."""
Attrs: TypeAlias = Mapping[str, Value]


def dtype_name(number: int) -> str:
    """The name of a dtype, "float32", by its number in protocol buffers."""
    return str(tf.as_dtype(number).name)


def plain_value(attr: AttrValue) -> Value:
    """An attribute of a NodeDef as a plain value."""
    kind = attr.WhichOneof("value")
    if kind == "type":
        return dtype_name(attr.type)
    if kind == "list":
        return (*map(dtype_name, attr.list.type), *attr.list.i)
    value: str | bytes | int | None = getattr(attr, kind) if kind in ("s", "i", "b") else None
    return value


def value_text(value: Value) -> str:
    """A value as messages show it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))})"
    return repr(value.decode()) if isinstance(value, bytes) else str(value)
