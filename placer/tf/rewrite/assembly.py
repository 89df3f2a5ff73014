"""The NodeDefs of a frame's copy: its own ops and those of the functions it calls, with devices, inputs and control edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.func_graphs import add_function, library_function
from placer.tf.rewrite.call_results import IdentityFunctions, JoinedResults, joinable_results, joining_call
from placer.tf.rewrite.copying import Copy
from placer.tf.rewrite.crossings import Crossings, takes_on_host
from placer.tf.rewrite.custom_gradients import copied_gradient
from placer.tf.rewrite.frame_nodes import FrameNodes, keep_node
from placer.tf.trace.bodies import LOOPS, Body, input_text, split_input
from placer.tf.trace.op_types import functions_of, is_stateful
from placer.tf.trace.requests import requested_device

_CONTROL = LOOPS | {"If", "StatelessIf", "Switch"}
"""Op types that can need a node before an input that is on their device."""


class Assembly:
    """Makes the nodes of one frame.

    Args:
        copy: the copy that the frame is part of. The frame's inputs are in its graph already.
        frame: the frame in the trace.
        new_functions: by path of a loop or branch of the frame: the names of its bodies' copies.
        identities: functions for results of inlined calls.
    """

    def __init__(
        self, copy: Copy, frame: Body, new_functions: Mapping[str, Sequence[str]], identities: IdentityFunctions
    ) -> None:
        self._copy = copy
        self._frame = frame
        self._new_functions = new_functions
        self._identities = identities
        self._graph = copy.graphs[id(frame)]
        self._placed = copy.device_of is not None
        self._lifted = copy.lifted(frame)
        self._frame_nodes = FrameNodes({path for body in frame.inlined() for path in body.names.values()})
        self._crossings = Crossings(self._frame_nodes)

    def nodes(self) -> list[NodeDef]:
        """The nodes, in an order in which inputs come first."""
        copy, frame = self._copy, self._frame
        self._add_body(frame, ())
        results = [copy.source(frame, *ref)[0] for ref in frame.outputs]
        results += [n for name in frame.control_outputs for n in copy.finished(frame, name)]
        self._frame_nodes.release_unneeded(results, bool(frame.outputs or frame.control_outputs))
        return self._frame_nodes.nodes

    def _add_body(self, body: Body, before: Sequence[str]) -> None:
        """Adds the ops of `body`; its stateful ops wait for the nodes `before`."""
        for name, node in body.nodes.items():
            if name in body.inputs or body.hoisted.get(name) in self._lifted:
                continue
            waits = list(dict.fromkeys(n for i in node.input if i.startswith("^") for n in self._copy.finished(body, i[1:])))
            children = body.children.get(name)
            if children is not None and children[0].kind == "call":
                self._add_body(children[0], [*waits, *before])
                if not self._placed:
                    self._join_results(body, name)
                continue
            if before and is_stateful(node.op):
                waits = list(dict.fromkeys([*waits, *before]))
            self._add_op(body, name, node, waits)

    def _add_op(self, body: Body, name: str, node: NodeDef, waits: Sequence[str]) -> None:
        path, children = body.names[name], body.children.get(name)
        new = NodeDef()
        new.CopyFrom(node)
        new.name = path
        new.ClearField("input")
        new.attr.pop("_output_shapes", None)
        if self._placed:
            new.attr.pop("_class", None)
            new.device = self._frame_nodes.devices[path] = self._copy.op_device(body, name)
        else:
            new.device = requested_device(body, node)
            if "_class" in new.attr:
                _colocate(new, body, name)
        self._frame_nodes.copied[path] = new
        if node.op == "Identity" and node.device:
            keep_node(new)  # the user's own copy to a device
        if children is not None:
            _name_functions(new, self._new_functions[path])
            if not self._copy.trace.is_jit_compiled:
                _run_by_parts(new)
        else:
            self._add_functions(body, node)
        for position, text in enumerate(i for i in node.input if not i.startswith("^")):
            new.input.append(input_text(*self._input(body, name, new, position, text)))
        if node.op in LOOPS and children is not None:
            self._lift_reads(body, name, new, waits)
        new.input.extend(f"^{w}" for w in waits)
        if "_gradient_op_type" in new.attr:
            gradient = new.attr["_gradient_op_type"]
            gradient.s = copied_gradient(self._copy, body, gradient.s.decode()).encode()
        if (function := self._copy.substitute(body.operations[name])) is not None:
            _call_instead(new, body.operations[name], function.graph.name)
            add_function(self._graph, function)
        self._frame_nodes.nodes.append(new)

    def _input(self, body: Body, name: str, new: NodeDef, position: int, text: str) -> tuple[str, int]:
        """The node and output that input `position` of a new node reads.

        Args:
            body, name: the op in the trace.
            new: its copy.
            position, text: the input, and what the op in the trace reads for it.
        """
        source, index = self._copy.source(body, *split_input(text))
        if new.op not in _CONTROL and self._frame_nodes.devices.get(source) == new.device:
            return source, index
        dtype = body.operations[name].inputs[position].dtype
        children = body.children.get(name, ())
        if new.op in LOOPS:
            device = new.device if self._placed else ""
            if self._placed and children:
                device = "" if dtype == tf.resource else self._copy.device_of.get(f"{new.name}/in{position}", "")  # type: ignore[union-attr]
            on_host = bool(device) and takes_on_host(new, position)
            source, index = self._crossings.into_loop(
                source, index, device, dtype, f"{new.name}/enter{position}", on_host=on_host
            )
        elif self._placed and not children:
            source, index = self._crossings.at(source, index, new.device, dtype, new, position)
        if not self._placed or position != 0:
            return source, index
        if new.op in ("If", "StatelessIf") and _has_loop(children):
            return self._crossings.predicate_of_branch(source, index, new.device, dtype, new.name), 0
        if new.op == "Switch" and source in self._copy.placeholders[id(self._frame)]:
            return self._crossings.argument_of_switch(source, new.device, dtype, new.name), 0
        return source, index

    def _join_results(self, body: Body, name: str) -> None:
        """Sends the results of the inlined call `name` through one more call, see `call_results`."""
        results = joinable_results(body, name)
        if not results:
            return
        sources = [self._copy.source(body, name, index) for index in results]
        dtypes = tuple(t.dtype for t in results.values())
        call_name = self._frame_nodes.free_name(f"{body.names[name]}/results")
        call = joining_call(call_name, sources, dtypes, self._identities.name(dtypes, self._graph))
        self._frame_nodes.nodes.append(call)
        self._copy.joined_results[id(body), name] = JoinedResults(call_name, results)

    def _lift_reads(self, body: Body, name: str, loop: NodeDef, waits: Sequence[str]) -> None:
        """Reads variables before a loop whose body would read them in each iteration from another device, or copy them."""
        inner, path = body.children[name][1], body.names[name]
        for j in self._copy.lifted(inner):
            hoist, read_path = inner.hoists[j], f"{path}/read{j}"
            read = NodeDef(op="ReadVariableOp", name=read_path, device=self._copy.device(read_path))
            read.attr["dtype"].type = hoist.tensor.dtype.as_datatype_enum
            read.input.append(input_text(*self._copy.source(body, *hoist.handle)))
            read.input.extend(f"^{w}" for w in waits)
            self._frame_nodes.nodes.append(read)
            self._frame_nodes.devices[read_path] = read.device
            position = len(inner.operands) + j
            device, enter = self._copy.device(f"{path}/in{position}"), f"{path}/enter{position}"
            entering, _ = self._crossings.into_loop(read_path, 0, device, hoist.tensor.dtype, enter)
            loop.input.append(entering)
            loop.attr["T"].list.type.append(hoist.tensor.dtype.as_datatype_enum)
            if loop.attr["output_shapes"].list.shape:  # empty for a loop that states none
                loop.attr["output_shapes"].list.shape.append(hoist.tensor.shape.as_proto())
            if "_num_original_outputs" in loop.attr:  # the number of outputs that have gradients; the variable's has one
                loop.attr["_num_original_outputs"].i += 1

    def _add_functions(self, body: Body, node: NodeDef) -> None:
        """Registers the functions that a node names and that are not split, such as a compiled call or a dataset's map."""
        for name in functions_of(node):
            function = library_function(body.graph, name)
            if function is not None:
                add_function(self._graph, function)


def _has_loop(bodies: Sequence[Body]) -> bool:
    return any(node.op in LOOPS for top in bodies for body in top.walk() for node in body.nodes.values())


def _call_instead(node: NodeDef, operation: Any, function: str) -> None:
    """Makes a node that copies `operation` a call of a function with the same inputs and outputs."""
    node.op = "PartitionedCall"
    node.ClearField("attr")
    for attribute, tensors in (("Tin", operation.inputs), ("Tout", operation.outputs)):
        node.attr[attribute].list.type.extend(t.dtype.as_datatype_enum for t in tensors)
    node.attr["f"].func.name = function


def _name_functions(node: NodeDef, names: Sequence[str]) -> None:
    """Makes a loop or branch call the functions `names`."""
    if node.op in LOOPS:
        node.attr["cond"].func.name, node.attr["body"].func.name = names
    elif "branches" in node.attr:
        for function, name in zip(node.attr["branches"].list.func, names, strict=True):
            function.name = name
    else:
        node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = names


def _run_by_parts(node: NodeDef) -> None:
    """Makes TensorFlow replace a loop or branch by its ops, each on its own device.

    Those of TensorFlow 1's functions run as one op instead, and their functions on its device.
    """
    node.attr["_lower_using_switch_merge"].b = True
    for attribute in ("_input_hostmem", "_output_hostmem"):
        node.attr.pop(attribute, None)


def _colocate(node: NodeDef, body: Body, name: str) -> None:
    """Replaces the ops with which op `name` of `body` is colocated by their copies."""
    wanted = [constraint.decode().removeprefix("loc:@") for constraint in node.attr["_class"].list.s]
    paths = [body.names[w] for w in wanted if w != name and w in body.names and w not in body.inputs and w not in body.children]
    if paths:
        node.attr["_class"].list.s[:] = [f"loc:@{path}".encode() for path in paths]
    else:
        del node.attr["_class"]
