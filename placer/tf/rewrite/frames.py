"""New FuncGraphs for a trace's frames: its root, and the bodies of loops and branches as functions of the graph around them."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.copied_graphs import CopiedGraph, original_ops
from placer.tf._private.func_graphs import add_function, import_nodes, unique_id
from placer.tf._private.functions import register_body
from placer.tf._private.handles import copy_handle_data
from placer.tf.rewrite.assembly import Assembly
from placer.tf.rewrite.call_results import IdentityFunctions
from placer.tf.rewrite.copying import Copy
from placer.tf.rewrite.frame_nodes import unlike
from placer.tf.trace.bodies import BRANCHES, CALLS, LOOPS, Body


class Frames:
    """Builds the graphs of a copy."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._identities = IdentityFunctions()

    def build(self, frame: Body) -> Any:
        """The new FuncGraph of a frame, without outputs. The frames in it are built and registered as functions of it."""
        old = frame.graph
        graph = CopiedGraph(f"{old.name}_placed", functools.partial(_original_ops, frame))
        self._copy.graphs[id(frame)] = graph
        self._add_inputs(frame, graph)
        inputs = {(t.op.name, 0): t for t in graph.inputs}
        # Loops and branches first: a node can be imported only after the functions that it names.
        new_functions: dict[str, list[str]] = {}
        for body in frame.inlined():
            for site, children in body.children.items():
                if children[0].kind != "call":
                    new_functions[body.names[site]] = [self._register(child, graph) for child in children]
        nodes = Assembly(self._copy, frame, new_functions, self._identities).nodes()
        import_nodes(graph, nodes, inputs, old.graph_def_versions)
        self._restore(frame, graph)
        return graph

    def _add_inputs(self, frame: Body, graph: Any) -> None:
        names = self._name_inputs(frame)
        lifted = self._copy.lifted(frame)
        traced = [*frame.input_tensors, *(frame.loop_body.hoists[j].tensor for j in lifted)]
        nodes = [_placeholder(name, tensor.dtype, tensor.shape) for name, tensor in zip(names, traced, strict=True)]
        import_nodes(graph, nodes, {}, frame.graph.graph_def_versions)
        graph.inputs.extend(graph.get_operation_by_name(name).outputs[0] for name in names)
        for before, after in zip(traced, graph.inputs, strict=True):
            copy_handle_data(before, after)
        graph.seed = frame.graph.seed
        self._copy.placeholders[id(frame)] = set(names)

    def _name_inputs(self, frame: Body) -> list[str]:
        """Names for a frame's inputs, hoists last.

        None is the name of another node nor, as TensorFlow's importer demands, a scope of one.
        """
        used_names = {path for body in frame.inlined() for path in body.names.values()}
        names = []
        for position, tensor in enumerate(frame.input_tensors):
            path = frame.names[tensor.op.name]
            name = path if "/" not in path else unlike(used_names, f"input_{position}")
            self._copy.input_names[id(frame), tensor.op.name] = name
            names.append(name)
        for j in self._copy.lifted(frame):
            name = unlike(used_names, f"variable_{j}")
            self._copy.input_names[id(frame), f"hoist {j}"] = name
            names.append(name)
        return names

    def _register(self, frame: Body, outer: Any) -> str:
        """Builds a frame inside the graph `outer` and registers it as a function; returns the function's name."""
        copy = self._copy
        with outer.as_default():
            graph = self.build(frame)
        graph.outputs.extend(copy.tensor(frame, *ref) for ref in frame.outputs)
        if frame.kind == "body":
            graph.outputs.extend(graph.inputs[len(frame.operands) :])
        graph.control_outputs.extend(
            graph.get_operation_by_name(n) for name in frame.control_outputs for n in copy.finished(frame, name)
        )
        graph.control_outputs.extend(copy.add_ops(copy, frame))
        graph.is_control_flow_graph = True
        name = f"{frame.graph.name}_placed_{unique_id()}"
        graph.name = name
        add_function(outer, register_body(name, graph))
        return name

    def _restore(self, frame: Body, graph: Any) -> None:
        """Restores what NodeDefs do not carry: Python gradients, graphs of loops and branches, shapes that only Python knew."""
        unknown_shapes = False
        for body in frame.inlined():
            for name, node in body.nodes.items():
                if name in body.inputs:
                    continue
                if (joined := self._copy.joined_results.get((id(body), name))) is not None:
                    joined.restore(graph)
                    unknown_shapes = True
                children = body.children.get(name)
                if children is None:
                    gradient = body.operations[name]._gradient_function if node.op in CALLS else None
                    if gradient is not None:
                        graph.get_operation_by_name(body.names[name])._gradient_function = gradient
                elif node.op in LOOPS or node.op in BRANCHES:
                    op = graph.get_operation_by_name(body.names[name])
                    # Gradients are taken of these very graphs: closures of custom gradients refer to their tensors.
                    for attribute, child in zip(_graph_attributes(node), children, strict=True):
                        setattr(op, attribute, self._copy.graphs[id(child)])
                    for before, after in zip(body.operations[name].outputs, op.outputs, strict=False):
                        if before.dtype in (tf.variant, tf.resource):
                            copy_handle_data(before, after)
                            unknown_shapes = True
        if unknown_shapes:
            self._restore_shapes(frame, graph)

    def _restore_shapes(self, frame: Body, graph: Any) -> None:
        lifted = self._copy.lifted(frame)
        for body in frame.inlined():
            for name in body.nodes:
                if name in body.inputs or name in body.children or body.hoisted.get(name) in lifted:
                    continue
                for before, after in zip(body.results(name), graph.get_operation_by_name(body.names[name]).outputs, strict=True):
                    if after.shape.rank is None or not after.shape.is_fully_defined():
                        after.set_shape(before.shape)


def _original_ops(frame: Body) -> dict[str, Any]:
    """By node of a frame's copy: the op from which it was copied. If that op's function is a copy itself, the op of the first
    original.
    """
    originals = {}
    for body in frame.inlined():
        earlier = original_ops(body.graph)
        originals.update({body.names[name]: earlier.get(name, op) for name, op in body.operations.items()})
    return originals


def _placeholder(name: str, dtype: tf.DType, shape: tf.TensorShape) -> NodeDef:
    node = NodeDef(op="Placeholder", name=name)
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())
    return node


def _graph_attributes(node: NodeDef) -> list[str]:
    """The attributes of a loop's or branch's op in which TensorFlow caches the graphs of its bodies."""
    if node.op in LOOPS:
        return ["_cond_graph", "_body_graph"]
    if "branches" in node.attr:
        return [f"_branch_graph_{i}" for i in range(len(node.attr["branches"].list.func))]
    return ["_true_graph", "_false_graph"]
