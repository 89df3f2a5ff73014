"""FuncGraphs: their nodes, function libraries and captures, and adding nodes to them as NodeDefs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.eager.polymorphic_function import attributes as attributes_lib
from tensorflow.python.framework import c_api_util, func_graph, ops, tensor_util

FuncGraph = func_graph.FuncGraph
_UNPLANNED_STRATEGIES = frozenset(
    f"{name}.py"
    for name in (
        "central_storage_strategy",
        "parameter_server_strategy",
        "parameter_server_strategy_v2",
        "tpu_strategy",
    )
)
"""TensorFlow's files of strategies that decide more than where a replica of this process runs."""
_CONTEXT = attributes_lib.EAGER_RUNTIME_CONSTRUCTION_CONTEXT


def unique_id() -> int:
    """A number that no other function name of this process contains."""
    return int(ops.uid())


# -- nodes -------------------------------------------------------------------------------------------------------------


def node_defs(graph: tf.Graph) -> dict[str, NodeDef]:
    """All nodes of `graph` by name, in creation order, with default attributes."""
    try:
        return {node.name: node for node in graph.as_graph_def().node}
    except Exception:  # a graph over protobuf's limit of 2 GiB cannot be exported as a whole, but node by node
        return {op.name: op.node_def for op in graph.get_operations()}


def registered(function: Any) -> tuple[dict[str, NodeDef], int, int, dict[str, AttrValue]]:
    """A function's nodes by name, in creation order, its numbers of inputs and outputs, and its attributes, as when it was
    registered.

    When a gradient of the function is taken, TensorFlow adds nodes, inputs and outputs to its graph, and changes the nodes of
    loops, branches and calls.
    """
    graph = function.graph
    nodes = node_defs(graph)
    try:
        definition = function.definition
    except Exception:  # over protobuf's limit of 2 GiB
        return nodes, len(graph.inputs), len(graph.outputs), {}
    inputs, outputs = len(definition.signature.input_arg), len(definition.signature.output_arg)
    # Copies: a part of the definition would keep all of it in memory. The construction context is set for each registration.
    attributes = {k: AttrValue.FromString(v.SerializeToString()) for k, v in definition.attr.items() if k != _CONTEXT}
    if (len(graph.inputs), len(graph.outputs)) == (inputs, outputs):
        return nodes, inputs, outputs, attributes
    first = dict(itertools.islice(nodes.items(), inputs + len(definition.node_def)))
    for registered in definition.node_def:
        node = first.get(registered.name)
        if node is not None and any(value.HasField("func") or value.list.func for value in registered.attr.values()):
            data_inputs = sum(not text.startswith("^") for text in registered.input)
            control = [text for text in node.input if text.startswith("^")]
            data = [text for text in node.input if not text.startswith("^")]
            first[registered.name] = restored = NodeDef(name=node.name, op=node.op, device=node.device, attr=registered.attr)
            restored.input.extend([*data[:data_inputs], *control])
    return first, inputs, outputs, attributes


def import_nodes(graph: Any, nodes: Sequence[NodeDef], inputs: Mapping[tuple[str, int], Any], versions: Any) -> None:
    """Adds `nodes` to `graph` unchanged, device strings included.

    Args:
        graph: a FuncGraph.
        nodes: each with a name that is not in the graph.
        inputs: by node name and output index, tensors of `graph` that replace inputs of that name.
        versions: the GraphDef versions of the graph that the nodes come from.
    """
    definition = graph_pb2.GraphDef(node=nodes, versions=versions)
    scoped = c_api_util.ScopedTFImportGraphDefOptions()
    c_api.TF_ImportGraphDefOptionsSetPrefix(scoped.options, "")
    c_api.TF_ImportGraphDefOptionsSetUniquifyNames(scoped.options, False)
    c_api.TF_ImportGraphDefOptionsSetPropagateDeviceSpec(scoped.options, True)
    c_api.TF_ImportGraphDefOptionsSetValidateColocationConstraints(scoped.options, False)
    for (name, index), tensor in inputs.items():
        c_api.TF_ImportGraphDefOptionsAddInputMapping(scoped.options, name, index, tensor._as_tf_output())
    with graph._mutation_lock():
        buffer = c_api.TF_NewBufferFromString(definition.SerializeToString())
        try:
            with graph._c_graph.get() as c_graph:
                c_api_util.ScopedTFImportGraphDefResults(c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, scoped.options))
        finally:
            c_api.TF_DeleteBuffer(buffer)
        # Does what `_add_new_tf_operations` does, without its treatment of version 1 control flow, which doubles the time.
        for operation in graph.new_operations():
            graph._create_op_from_tf_operation(operation, compute_device=False)


def static_value(tensor: Any) -> Any:
    """The value of a tensor that follows from constants alone; None for any other tensor."""
    value = tensor_util.constant_value(tensor)
    if value is not None:
        return value
    try:
        with tensor.graph._c_graph.get() as c_graph:
            return c_api.TF_TryEvaluateConstant_wrapper(c_graph, tensor._as_tf_output())
    except Exception:  # the evaluator raises for stateful and unknown ops
        return None


def made_by_strategy(op: Any) -> bool:
    """Whether a distribution strategy made an op, as only its traceback shows.

    The default strategy calls functions too, such as those of an optimizer of Keras 2, so its frames do not count.
    """
    of_default = ("/distribute_lib.py", "/merge_call_interim.py")
    return any(
        "/tensorflow/python/distribute/" in frame.filename and not frame.filename.endswith(of_default)
        for frame in op.traceback or ()
    )


def is_of_unplanned_strategy(op: Any) -> bool:
    """Whether a distribution strategy has put an op on a device and its replicas cannot be planned around."""
    return bool(op.device) and any(frame.filename.rpartition("/")[2] in _UNPLANNED_STRATEGIES for frame in op.traceback or ())


# -- libraries ---------------------------------------------------------------------------------------------------------


def library_function(graph: tf.Graph, name: str) -> Any:
    """The function `name` that is registered in `graph` or in a graph around it; None if there is none."""
    while graph is not None:
        function = graph._get_function(name)
        if function is not None:
            return function
        graph = getattr(graph, "outer_graph", None)
    return None


def add_function(graph: tf.Graph, function: Any) -> None:
    """Registers `function` and all functions that it calls in `graph`."""
    graph._add_function_recursive(function)


# -- captures and variables --------------------------------------------------------------------------------------------


def external_captures(graph: Any) -> list[tuple[Any, Any]]:
    """(outer tensor, inner placeholder) of each capture by value, in order."""
    return list(graph.function_captures.by_val_capture_tuples)


def add_capture(graph: Any, external: Any, internal: Any) -> None:
    """Records that the placeholder `internal` captures `external`."""
    graph.function_captures.add_or_replace(key=id(external), external=external, internal=internal, is_by_ref=False)


def copy_deferred_captures(source: Any, target: Any, internal_of: Mapping[int, Any]) -> None:
    """Copies captures by reference from one graph to another; `internal_of` maps id(old placeholder) to the new one."""
    captures = source.function_captures
    for key, old in captures.by_ref_internal.items():
        new = tf.nest.map_structure(lambda t: internal_of[id(t)], old, expand_composites=True)
        target.function_captures.add_or_replace(
            key=key,
            external=captures.by_ref_external[key],
            internal=new,
            tracetype=captures.by_ref_tracetype[key],
            is_by_ref=True,
        )


def living_variables(graph: Any) -> list[Any]:
    """The variables of a FuncGraph that were not deleted."""
    return [variable for reference in graph._weak_variables if (variable := reference()) is not None]
