"""A digest of all that the graph of a trace follows from, which is computed without that graph.

TensorFlow numbers functions, captured tensors and Python callbacks in the order in which a process makes them. The digest has
none of these numbers, so that two processes which trace the same function get the same digest.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

from placer.common.garbage_collection import paused_collection
from placer.tf._private.copied_graphs import CopiedGraph
from placer.tf._private.datasets import dataset_size
from placer.tf._private.definitions import readable_function
from placer.tf._private.func_graphs import node_defs
from placer.tf.devices import connected_devices
from placer.tf.trace.bodies import split_input
from placer.tf.trace.inputs import RootInput
from placer.tf.trace.op_types import function_attributes, functions_of
from placer.tf.trace.tracing import Argument, Trace


@paused_collection()
def digest(trace: Trace, inputs: Mapping[str, RootInput]) -> str:
    """The digest of a trace, in hexadecimal digits.

    Args:
        trace: of the function.
        inputs: of its root, see `root_inputs`.
    """
    hashed = hashlib.blake2b(repr((connected_devices(), trace.root.outer_scope)).encode(), digest_size=20)
    for op, known in inputs.items():
        held = [(spec.dtype.name, _shape(spec)) for spec in known.held]
        facts = (trace.root.names[op], known.role, known.device, known.state, held, known.stays, *_example(known.value))
        hashed.update(repr(facts).encode())
    for body in trace.root.walk():
        planned = isinstance(body.graph, CopiedGraph) and body.graph.plan is not None
        hashed.update(repr((body.path, body.kind, planned)).encode())
        numbered = set(body.inputs)
        if body.kind == "root":  # here only captured tensors can have numbers for names
            numbered = {name for name in body.inputs if name.rpartition("/")[2].isdigit()}
        for data in _nodes(body.nodes, body.inputs, numbered, body.graph, set(body.children), set()):
            hashed.update(data)
        ends = [(body.inputs.get(name, name), index) for name, index in body.outputs]
        last = sorted(str(body.inputs.get(name, name)) for name in body.control_outputs)  # TensorFlow has them in a set
        hashed.update(repr((ends, last)).encode())
    return hashed.hexdigest()


def _nodes(
    nodes: Mapping[str, NodeDef], inputs: Mapping[str, int], numbered: set[str], graph: Any, split: set[str], seen: set[str]
) -> Iterable[bytes]:
    """The nodes of a function, without numbers of the process.

    Args:
        nodes: by name.
        inputs: the position of each node that is an input of the function.
        numbered: the inputs whose names may contain numbers of the process.
        graph: of the function.
        split: nodes whose functions are not part of the result.
        seen: names of functions that were given before; the new ones are added.
    """
    for name, node in nodes.items():
        attributes = _numbered_attributes(node.op)
        has_numbers = attributes or (numbered and (name in numbered or _reads(node, numbered)))
        yield (_without_numbers(node, inputs) if has_numbers else node).SerializeToString(deterministic=True)
        if attributes and name not in split:
            yield from _functions(functions_of(node), graph, seen)


def _functions(names: Sequence[str], graph: Any, seen: set[str]) -> Iterable[bytes]:
    """The nodes of functions that are called as a whole, and of those that they call."""
    for name in names:
        inner = getattr(readable_function(graph, name), "graph", None)
        if inner is None or name in seen:
            continue
        seen.add(name)
        inputs = {tensor.op.name: position for position, tensor in enumerate(inner.inputs)}
        yield from _nodes(node_defs(inner), inputs, set(inputs), inner, set(), seen)
        yield repr([(inputs.get(t.op.name, t.op.name), t.value_index) for t in inner.outputs]).encode()


@functools.cache
def _numbered_attributes(op_type: str) -> tuple[str, ...]:
    """The attributes of ops of a type that name functions, callbacks, state or gradients by numbers of the process."""
    functions, definition = function_attributes(op_type), op_def_registry.get(op_type)
    named = [a.name for a in definition.attr if a.name in ("shared_name", "token")] if definition is not None else []
    return (*functions, *named, *(["_gradient_op_type"] if functions or op_type == "IdentityN" else []))


def _reads(node: NodeDef, names: set[str]) -> bool:
    return any(_op(text) in names for text in node.input)


def _without_numbers(node: NodeDef, inputs: Mapping[str, int]) -> NodeDef:
    """A copy in which inputs of the function have their positions for names, and functions and callbacks no names."""
    copy = NodeDef()
    copy.CopyFrom(node)
    copy.name = _renamed(node.name, inputs)
    copy.input[:] = [_renamed(text, inputs) for text in node.input]
    for attribute in (*_numbered_attributes(node.op), *(["_user_specified_name"] if node.name in inputs else [])):
        if attribute in copy.attr:
            del copy.attr[attribute]
    return copy


def _renamed(text: str, inputs: Mapping[str, int]) -> str:
    op = _op(text)
    return text if op not in inputs else text.replace(op, f"input {inputs[op]}", 1)


def _op(text: str) -> str:
    return text[1:] if text.startswith("^") else split_input(text)[0]


def _example(value: Any) -> tuple[object, ...]:
    """What the graph takes from the tensor of the example call, or from the captured one."""
    if isinstance(value, Argument):
        return value.dtype.name, _shape(value), value.dataset
    if isinstance(value, tf.__internal__.EagerTensor):
        return value.dtype.name, _shape(value), dataset_size(value) if value.dtype == tf.variant else None
    return () if not hasattr(value, "shape") else (_shape(value),)


def _shape(spec: Any) -> object:
    shape = tf.TensorShape(spec.shape)
    return None if shape.rank is None else tuple(shape.as_list())
