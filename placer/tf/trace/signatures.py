"""Signatures of ops: types of inputs and outputs, and attributes. Equal ones are one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue as AttrProto
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import AttrValue, OpSignature, TensorSpec
from placer.tf.trace.inner_ops import InnerOp

IRRELEVANT = frozenset(
    {"output_shapes", "config", "config_proto", "executor_type", "token", "shared_name", "container", "cache", "key"}
)
"""Attributes on which no cost depends: settings of the runtime, and names of state and callbacks."""

MAX_TEXT_BYTES = 64
"""Longer text attributes, such as serialised messages, are left out of a signature."""

Shape: TypeAlias = tuple[int | None, ...] | None
ShapeOf: TypeAlias = Callable[[str, int], Shape]
Attributes: TypeAlias = tuple[tuple[str, AttrValue], ...]


class Signatures:
    """Makes the signatures of a graph's ops.

    Args:
        shape_of: gives, by node path and output index, a shape that is better known than in the trace; None where it is not.
    """

    def __init__(self, shape_of: ShapeOf | None) -> None:
        self._shape_of = shape_of
        self._specs: dict[tuple[str, Shape], TensorSpec] = {}
        self._attributes: dict[bytes, Attributes] = {}
        self._signatures: dict[Any, OpSignature] = {}

    def spec(self, path: str, index: int, tensor: Any) -> TensorSpec:
        """The type of output `index` of node `path`, which is `tensor` in the trace."""
        shape = self._shape_of(path, index) if self._shape_of is not None else None
        if shape is None:
            traced = tensor.shape
            shape = None if traced.rank is None else tuple(traced.as_list())
        dtype = tensor.dtype.name
        if (dtype, shape) not in self._specs:
            self._specs[dtype, shape] = TensorSpec(dtype, shape)
        return self._specs[dtype, shape]

    def attributes(self, node: NodeDef) -> tuple[bytes, Attributes]:
        """A node's attributes that a cost can depend on, and a key: equal keys, equal attributes."""
        if node.op == "Const":
            dtype = node.attr["dtype"].type
            key = b"Const%d" % dtype
            if key not in self._attributes:
                self._attributes[key] = (("dtype", tf.dtypes.as_dtype(dtype).name),)
            return key, self._attributes[key]
        bare = NodeDef(op=node.op, attr=node.attr)
        key = bare.SerializeToString(deterministic=True)
        attributes = self._attributes.get(key)
        if attributes is None:
            attributes = self._attributes[key] = tuple(_plain_attributes(node.attr))
        return key, attributes

    def signature(
        self,
        op_type: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        attributes: Attributes = (),
        key: bytes = b"",
        inner: tuple[OpSignature, ...] = (),
    ) -> OpSignature:
        """The signature of an op.

        Args:
            op_type, inputs, outputs, attributes, inner: its parts.
            key: of the attributes, see `attributes`.
        """
        identity = (op_type, key or attributes, inputs, outputs, inner)
        signature = self._signatures.get(identity)
        if signature is None:
            signature = self._signatures[identity] = OpSignature(op_type, inputs, outputs, attributes, inner)
        return signature

    def of_inner(self, inner: InnerOp) -> OpSignature:
        """The signature of an op inside a function that is placed as a whole."""
        given, made = (
            tuple(TensorSpec(t.dtype.name, shape) for t, shape in zip(tensors, shapes, strict=False))
            for tensors, shapes in ((inner.op.inputs, inner.inputs), (inner.op.outputs, inner.outputs))
        )
        key, attributes = self.attributes(inner.op.node_def)
        if inner.inner:
            key, attributes = b"", tuple(sorted({**dict(attributes), "rounds": inner.rounds}.items()))
        return self.signature(inner.op.type, given, made, attributes, key, tuple(map(self.of_inner, inner.inner)))


def _plain_attributes(attributes: Mapping[str, AttrProto]) -> Iterator[tuple[str, AttrValue]]:
    """The attributes that a cost can depend on, as plain values, sorted by name; none that differs from trace to trace."""
    for name in sorted(attributes):
        if name.startswith("_") or name in IRRELEVANT:
            continue
        value = attributes[name]
        kind = value.WhichOneof("value")
        if kind == "type":
            yield name, tf.dtypes.as_dtype(value.type).name
        elif kind in ("i", "f", "b"):
            yield name, getattr(value, kind)
        elif kind == "s" and len(value.s) <= MAX_TEXT_BYTES:
            yield name, value.s.decode("utf-8", "replace")
        elif kind == "shape" and not value.shape.unknown_rank:
            yield name, tuple(d.size for d in value.shape.dim)
        elif kind == "list":
            items = value.list
            if items.i:
                yield name, tuple(items.i)
            elif items.type:
                yield name, tuple(tf.dtypes.as_dtype(t).name for t in items.type)
            elif items.f:
                yield name, tuple(items.f)
            elif items.s and all(len(s) <= MAX_TEXT_BYTES for s in items.s):
                yield name, tuple(s.decode("utf-8", "replace") for s in items.s)
