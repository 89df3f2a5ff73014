"""Objects that hold a variable's handle: captures of functions, arguments of their first trace, datasets and iterators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2
from tensorflow.core.function.capture import capture_container
from tensorflow.python.data.ops import dataset_ops, iterator_ops, structured_function

FunctionCaptures = capture_container.FunctionCaptures
DatasetFunction = structured_function.StructuredFunctionWrapper
"""The function of a dataset's transformation. The dataset was made with the function's captures."""
Dataset = dataset_ops.DatasetV2
DataIterator = iterator_ops.OwnedIterator

_IGNORE_STATE = 1
"""`external_state_policy` for a dataset's graph: leave out state that is no variable and changes."""


def captured_by_value(captures: Any) -> list[Any]:
    """The tensors of a FunctionCaptures, as often as it refers to them."""
    return [*captures._by_val_external.values(), *(outer for outer, _ in captures._cached_by_val_capture_tuples)]


def capture_containers(captures: Any) -> list[Any]:
    """The containers in which a FunctionCaptures keeps its tensors."""
    return [captures._by_val_external, *captures._cached_by_val_capture_tuples]


def replace_captures(captures: Any, new_of: Mapping[int, Any]) -> None:
    """Makes placeholders of a graph capture other tensors; `new_of` maps the id of a tensor to the one that replaces it.

    A FunctionCaptures keys its tensors by id, which another tensor can get later, so the keys change too.
    """
    for table in (captures._by_val_external, captures._by_val_internal, captures._by_val_tracetype):
        items = [(id(new_of[key]) if key in new_of else key, new_of.get(id(value), value)) for key, value in table.items()]
        table.clear()
        table.update(items)
    captures._recompute_cached_properties()


def handle_arguments(graph: Any) -> list[Any]:
    """The handles among the arguments with which a FuncGraph was first traced, each in a wrapper.

    A FuncGraph keeps them because it asks, while it is traced, whether a variable is an argument.
    """
    return list(graph._resource_tensor_inputs._storage)


def replace_handle_arguments(graph: Any, new_of: Mapping[int, Any]) -> None:
    """Replaces handles among the arguments with which a graph was first traced; for `new_of` see `replace_captures`."""
    for old in [wrapper.unwrapped for wrapper in handle_arguments(graph) if id(wrapper.unwrapped) in new_of]:
        graph._resource_tensor_inputs.discard(old)
        graph._resource_tensor_inputs.add(new_of[id(old)])


def variables_of_dataset(dataset: Any) -> list[tf.TensorSpec] | None:
    """The types of the variables that an eager dataset's functions captured; None where TensorFlow does not list them all."""
    try:
        graph = tf.raw_ops.DatasetToGraphV2(input_dataset=dataset, external_state_policy=_IGNORE_STATE)
        nodes = graph_pb2.GraphDef.FromString(graph.numpy()).node
    except (tf.errors.OpError, DecodeError):
        return None
    if any(node.op == "Const" and tf.as_dtype(node.attr["dtype"].type) in (tf.resource, tf.variant) for node in nodes):
        return None
    attributes = [node.attr for node in nodes if node.op == "VarHandleOp"]
    return [tf.TensorSpec(attr["shape"].shape, attr["dtype"].type) for attr in attributes]


def dataset_tensor(thing: Any) -> Any:
    """The tensor of a dataset or an iterator whose functions are Python objects; None for anything else."""
    kind = type(thing)
    if issubclass(kind, DataIterator):
        return vars(thing).get("_iterator_resource") if "_dataset" in vars(thing) else None
    if issubclass(kind, Dataset) and not issubclass(kind, dataset_ops._VariantDataset):
        return vars(thing).get("_variant_tensor_attr")
    return None
