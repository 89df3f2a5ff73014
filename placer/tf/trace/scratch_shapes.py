"""A graph that never runs, in which TensorFlow's own shape inference carries sizes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

from placer.graph.sizes import Shape
from placer.tf._private.func_graphs import FuncGraph, import_nodes, static_value
from placer.tf._private.handles import copy_handle_data, held_specs
from placer.tf.trace.op_types import function_attributes
from placer.tf.trace.size_rules import is_known

Ref: TypeAlias = tuple[str, int]
"""A node of the scratch graph and one of its outputs."""

MAX_SIZES = 64
"""More integers than this are taken to be data."""

_HIDING_OP = "Print"
"""Gives its input's shape on, and as a stateful op is not evaluated by shape inference."""


class _Pending(NamedTuple):
    """A node that is not imported yet."""

    node: NodeDef
    traced: Sequence[Any] = ()
    """The traced tensors that its outputs stand for."""
    inputs: Sequence[Ref] = ()


class ScratchShapes:
    """Nodes are imported in batches, when a shape or value is asked for.

    A node that TensorFlow refuses is replaced by placeholders of the shapes that are stated for its outputs: sizes that are only
    bounds need not fit each other.
    """

    def __init__(self, versions: Any) -> None:
        self._graph = FuncGraph("shapes")
        self._versions = versions
        self._pending: list[_Pending] = []
        self._tensors: dict[Ref, Any] = {}
        self._count = 0

    def placeholder(self, traced: Any, shape: Shape) -> Ref:
        """A tensor of this shape, without a value, of the traced tensor's type."""
        node = self._node("Placeholder")
        node.attr["dtype"].type = traced.dtype.base_dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(_as_proto(shape))
        if traced.dtype in (tf.resource, tf.variant):
            self._import([_Pending(node, [traced])])
            copy_handle_data(traced, self._tensors[node.name, 0])  # before another node reads it
        else:
            self._pending.append(_Pending(node, [traced]))
        return node.name, 0

    def constant(self, value: Any) -> Ref:
        """A tensor of this value."""
        node = self._node("Const")
        proto = tf.make_tensor_proto(value)
        node.attr["dtype"].type = proto.dtype
        node.attr["value"].tensor.CopyFrom(proto)
        self._pending.append(_Pending(node))
        return node.name, 0

    def hidden(self, ref: Ref, dtype: tf.DType) -> Ref:
        """The same tensor without its value."""
        node = self._node(_HIDING_OP, [ref])
        node.attr["T"].type = dtype.base_dtype.as_datatype_enum
        node.attr["U"].list.SetInParent()
        self._pending.append(_Pending(node, inputs=[ref]))
        return node.name, 0

    def add(self, original: NodeDef, inputs: Sequence[Ref], traced: Sequence[Any], shapes: Sequence[Shape]) -> list[Ref]:
        """A copy of a node.

        Args:
            original: gives the op type and attributes.
            inputs: of the copy.
            traced: the original's output tensors.
            shapes: known of the outputs, apart from what TensorFlow infers.
        """
        if op_def_registry.get(original.op) is None or function_attributes(original.op):
            return [self.placeholder(tensor, shape) for tensor, shape in zip(traced, shapes, strict=True)]
        node = self._node(original.op, inputs)
        for key, value in original.attr.items():
            if not key.startswith("_"):
                node.attr[key].CopyFrom(value)
        node.attr["_output_shapes"].list.shape.extend(map(_as_proto, shapes))
        self._pending.append(_Pending(node, traced, inputs))
        return [(node.name, k) for k in range(len(traced))]

    def shape(self, ref: Ref) -> Shape:
        """The shape that TensorFlow infers."""
        return as_tuple(self._tensor(ref).shape)

    def value(self, ref: Ref) -> Any:
        """The value, as an array, as far as it follows from constants and shapes; else None."""
        return static_value(self._tensor(ref))

    def _node(self, op_type: str, inputs: Iterable[Ref] = ()) -> NodeDef:
        self._count += 1
        texts = [f"{name}:{index}" for name, index in inputs]
        return NodeDef(op=op_type, name=f"n{self._count}", input=texts)

    def _tensor(self, ref: Ref) -> Any:
        if ref not in self._tensors:
            pending, self._pending = self._pending, []
            self._import(pending)
        return self._tensors[ref]

    def _import(self, pending: Sequence[_Pending]) -> None:
        made_before = {ref: self._tensors[ref] for each in pending for ref in each.inputs if ref in self._tensors}
        try:
            import_nodes(self._graph, [each.node for each in pending], made_before, self._versions)
        except (tf.errors.OpError, ValueError, TypeError):
            if len(pending) == 1:
                self._replace(pending[0].node, pending[0].traced)
                return
            middle = len(pending) // 2
            self._import(pending[:middle])
            self._import(pending[middle:])
            return
        for node, _, _ in pending:
            op = self._graph.get_operation_by_name(node.name)
            for index, tensor in enumerate(op.outputs):
                self._tensors[node.name, index] = tensor

    def _replace(self, node: NodeDef, traced: Sequence[Any]) -> None:
        stated = node.attr["_output_shapes"].list.shape
        for index, (tensor, proto) in enumerate(zip(traced, stated, strict=True)):
            ref = self.placeholder(tensor, as_tuple(tf.TensorShape(proto)))
            self._tensors[node.name, index] = self._tensor(ref)


@cache
def _as_proto(shape: Shape) -> Any:
    return tf.TensorShape(shape).as_proto()


def as_tuple(shape: tf.TensorShape) -> Shape:
    """A shape as a tuple, None for an unknown rank."""
    return None if shape.rank is None else tuple(shape.as_list())


def small_value(tensor: Any, limit: int = 1024) -> Any:
    """The value of a traced tensor if it follows from constants and can be a shape or one of its parts; else None."""
    shape = tensor.shape
    if not shape.is_fully_defined() or shape.num_elements() > limit or tensor.dtype in (tf.resource, tf.variant, tf.string):
        return None
    if tensor.op.type == "VariableShape":
        [held] = held_specs(tensor.op.inputs[0]) or [None]
        return np.array(held.shape, tensor.dtype.as_numpy_dtype) if held is not None and is_known(as_tuple(held.shape)) else None
    value = static_value(tensor)
    return None if value is None else np.asarray(value)


def may_be_size(tensor: Any) -> bool:
    """Whether a traced tensor is a few integers, as sizes are, and not data."""
    return bool(tensor.dtype.is_integer and has_few(tensor))


def has_few(tensor: Any) -> bool:
    """Whether a traced tensor has at most `MAX_SIZES` elements."""
    shape = tensor.shape
    return bool(shape.is_fully_defined() and shape.num_elements() <= MAX_SIZES)
