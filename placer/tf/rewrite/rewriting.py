"""Placement -> a new ConcreteFunction: a private copy of the trace, called functions inlined, with a device on every op.

TensorFlow's graphs of the user's function are only read. The copy goes through NodeDefs rather than through a FunctionDef, since
the latter loses gradients; what a NodeDef cannot say (handle shapes, captures, custom gradients) is carried over here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.ops import entry_of
from placer.common.garbage_collection import paused_collection
from placer.errors import RewriteError
from placer.plan.placement import Placement
from placer.tf._private.copied_graphs import CopiedGraph, original_ops
from placer.tf._private.func_graphs import (
    FuncGraph,
    add_capture,
    add_function,
    copy_deferred_captures,
    external_captures,
    import_nodes,
    library_function,
    unique_id,
)
from placer.tf._private.functions import call_flat, concrete_from_graph, copy_flat_signature, register_body
from placer.tf._private.gradients import gradient_function, is_gradient_registered, is_trainable, register_gradient
from placer.tf._private.handles import copy_handle_data
from placer.tf.devices import full_name
from placer.tf.run.exhausted import report
from placer.tf.trace.kernels import KernelIndex, KernelSupport
from placer.tf.trace.optypes import functions_of, is_stateful
from placer.tf.trace.tracing import BRANCHES, CALLS, LOOPS, Body, Trace, inlined, merged_device, origin, split_input

_KEPT = "_grappler_do_not_remove"


@paused_collection()
def rewrite(trace: Trace, device_of: Mapping[str, str] | None) -> Any:
    """Rebuilds a traced function with the given devices.

    Args:
        trace: the function; it and its graphs stay as they are.
        device_of: full or short device name by node of the `OpGraph` read from this trace; None keeps what the trace asks for.

    Returns:
        A ConcreteFunction with the same signature, structured outputs, captures, control edges and gradients, valid with
        soft placement off.

    Raises:
        RewriteError: the trace holds something that cannot be carried over; nothing has changed then.
    """
    try:
        return _Rewriter(trace, device_of).concrete()
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise RewriteError(f"TensorFlow does not take the copy of it: {error}") from error


def by_plan(trace: Trace, placement: Placement) -> Any:
    """`rewrite` with the devices of a plan, which what calls the function and is planned itself can ask for its reasons."""
    concrete = rewrite(trace, {name: full_name(plan.device) for name, plan in placement.ops.items()})
    concrete.graph.placement = placement
    concrete.graph.on_error = functools.partial(report, placement)
    return concrete


def flatten(trace: Trace, shapes: Sequence[tf.TensorShape]) -> Any:
    """A FuncGraph of the flattened trace whose inputs have the given shapes: for reading shapes off."""
    return _Rewriter(trace, None, runs=False).frame_graph(trace.root, shapes)


@dataclass
class _Rewriter:
    trace: Trace
    device_of: Mapping[str, str] | None
    runs: bool = True
    """False for a copy that is only looked at."""
    graphs: dict[int, Any] = field(default_factory=dict)
    """By id of a frame's Body: its new FuncGraph."""
    placeholders: dict[int, set[str]] = field(default_factory=dict)
    input_names: dict[tuple[int, str], str] = field(default_factory=dict)
    """By id of a frame's Body and input op: the new placeholder's name."""
    joined: dict[tuple[int, str], _Joined] = field(default_factory=dict)
    """By id of a Body and call in it: what its inlined results go through."""
    identities: dict[tuple[tf.DType, ...], Any] = field(default_factory=dict)

    def concrete(self) -> Any:
        root = self.trace.root
        graph = self.frame_graph(root)
        old = root.graph
        flat = [self._tensor(root, *ref) for ref in root.outputs]
        graph.outputs.extend(flat)
        graph.control_outputs.extend(
            graph.get_operation_by_name(n) for name in root.control_outputs for n in self._finished(root, name)
        )
        new_of = {id(t): n for t, n in zip(root.input_tensors, graph.inputs, strict=True)}
        for external, internal in external_captures(old):
            add_capture(graph, external, new_of[id(internal)])
        copy_deferred_captures(old, graph, new_of)
        graph.variables = old.variables
        graph.structured_input_signature = old.structured_input_signature
        new_out = {id(t): n for t, n in zip(root.output_tensors, flat, strict=True)}
        graph.structured_outputs = tf.nest.map_structure(
            lambda t: new_out.get(id(t), t), old.structured_outputs, expand_composites=True
        )
        attrs = {
            k: v
            for k, v in _attributes(self.trace.concrete).items()
            if k not in ("forward_function_name", "backward_function_name")
        }
        concrete = concrete_from_graph(graph, self.trace.concrete.function_type, attrs)
        copy_flat_signature(self.trace.concrete, concrete)
        graph.trace = self.trace
        return concrete

    def frame_graph(self, frame: Body, shapes: Sequence[tf.TensorShape] | None = None) -> Any:
        """The new FuncGraph of a root, loop or branch body, its nested frames registered as functions of it."""
        old = frame.graph
        graph = CopiedGraph(f"{old.name}_placed", functools.partial(_originals, frame))
        self.graphs[id(frame)] = graph
        names = self._name_inputs(frame)
        given = [*frame.input_tensors, *(self._loop_body(frame).hoists[j].tensor for j in self.lifted(frame))]
        inputs = [_placeholder(name, tensor.dtype, tensor.shape) for name, tensor in zip(names, given, strict=True)]
        for node, shape in zip(inputs, shapes or (), strict=False):
            node.attr["shape"].shape.CopyFrom(shape.as_proto())
        import_nodes(graph, inputs, {}, old.graph_def_versions)
        graph.inputs.extend(graph.get_operation_by_name(name).outputs[0] for name in names)
        for before, after in zip(given, graph.inputs, strict=True):
            copy_handle_data(before, after)
        graph.seed = old.seed
        mapped = {(t.op.name, 0): t for t in graph.inputs}
        self.placeholders[id(frame)] = {name for name, _ in mapped}
        # Functions of loops and branches first: the nodes that name them are imported after.
        renamed: dict[str, list[str]] = {}
        for body in inlined(frame):
            for site, children in body.children.items():
                if children[0].kind != "call":
                    renamed[body.names[site]] = [self._register(child, graph) for child in children]
        nodes = _Assembly(self, frame, renamed).nodes()
        used = {split_input(i) for n in nodes for i in n.input if not i.startswith("^")}
        import_nodes(graph, nodes, {k: v for k, v in mapped.items() if k in used}, old.graph_def_versions)
        self._restore(frame, graph)
        return graph

    def _name_inputs(self, frame: Body) -> list[str]:
        """Names for a frame's inputs, hoists last, that are no other node's name nor, as the importer demands, a scope of one."""
        taken = {path for body in inlined(frame) for path in body.names.values()}
        names = []
        for position, tensor in enumerate(frame.input_tensors):
            path = frame.names[tensor.op.name]
            name = path if "/" not in path else _unlike(taken, f"input_{position}")
            self.input_names[id(frame), tensor.op.name] = name
            names.append(name)
        for j in self.lifted(frame):
            name = _unlike(taken, f"variable_{j}")
            self.input_names[id(frame), f"hoist {j}"] = name
            names.append(name)
        return names

    @staticmethod
    def _loop_body(frame: Body) -> Body:
        """The body graph of the loop whose condition or body `frame` is."""
        assert frame.parent is not None
        return frame.parent.children[frame.site][1]

    def lifted(self, frame: Body) -> list[int]:
        """Of a loop: the hoists done, those whose variable is copied, or on another device than the loop keeps its value on."""
        if self.device_of is None or frame.kind not in ("cond", "body") or frame.parent is None:
            return []
        path = frame.parent.names[frame.site]
        inner = self._loop_body(frame)
        found = []
        for j, hoist in enumerate(inner.hoists):
            device = self.device(f"{path}/read{j}")
            copied = bool(device) and origin(frame.parent, *hoist.handle) in self.by_rows
            if copied or device != self.device(f"{path}/in{len(inner.passed) + j}"):
                found.append(j)
        return found

    @cached_property
    def by_rows(self) -> set[tuple[Body, str, int]]:
        """Where handles are from that some op uses by rows: TensorFlow copies such a variable at each read."""
        return {
            origin(body, *split_input(node.input[0]))
            for body in self.trace.root.walk()
            for node in body.nodes.values()
            if entry_of(node.op).uses_rows
        }

    def _register(self, frame: Body, outer: Any) -> str:
        with outer.as_default():
            graph = self.frame_graph(frame)
        graph.outputs.extend(self._tensor(frame, *ref) for ref in frame.outputs)
        if frame.kind == "body":
            graph.outputs.extend(graph.inputs[len(frame.passed) :])
        graph.control_outputs.extend(
            graph.get_operation_by_name(n) for name in frame.control_outputs for n in self._finished(frame, name)
        )
        graph.is_control_flow_graph = True
        name = f"{frame.graph.name}_placed_{unique_id()}"
        graph.name = name
        add_function(outer, register_body(name, graph))
        return name

    def identity(self, dtypes: tuple[tf.DType, ...], outer: Any) -> str:
        """The name of a function, made known to the graph `outer`, that gives values of these types as it gets them."""
        if dtypes not in self.identities:
            graph = FuncGraph(f"identity_placed_{unique_id()}")
            with graph.as_default():
                graph.inputs = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
            graph.outputs = list(graph.inputs)
            self.identities[dtypes] = register_body(graph.name, graph)
        add_function(outer, self.identities[dtypes])
        return str(self.identities[dtypes].graph.name)

    def _restore(self, frame: Body, graph: Any) -> None:
        """What NodeDefs do not carry: Python gradients, cached loop bodies, handle shapes that only Python knew."""
        partial = False
        for body in inlined(frame):
            for name, node in body.nodes.items():
                if name in body.inputs:
                    continue
                if (joined := self.joined.get((id(body), name))) is not None:
                    self._restore_joined(joined, graph)
                    partial = True
                children = body.children.get(name)
                if children is None:
                    gradient = body.operations[name]._gradient_function if node.op in CALLS else None
                    if gradient is not None:
                        graph.get_operation_by_name(body.names[name])._gradient_function = gradient
                elif node.op in LOOPS or node.op in BRANCHES:
                    op = graph.get_operation_by_name(body.names[name])
                    # Gradients are taken of these very graphs: closures of custom gradients refer to their tensors.
                    for attribute, child in zip(_graph_attributes(node), children, strict=True):
                        setattr(op, attribute, self.graphs[id(child)])
                    for before, after in zip(body.operations[name].outputs, op.outputs, strict=False):
                        if before.dtype in (tf.variant, tf.resource):
                            copy_handle_data(before, after)
                            partial = True
        if partial:
            self._restore_shapes(frame, graph)

    @staticmethod
    def _restore_joined(joined: _Joined, graph: Any) -> None:
        op = graph.get_operation_by_name(joined.node)
        op._gradient_function = lambda _, *upstream: [tf.convert_to_tensor(g) for g in upstream]
        for before, after in zip(joined.results.values(), op.outputs, strict=True):
            after.set_shape(before.shape)
            copy_handle_data(before, after)

    def _restore_shapes(self, frame: Body, graph: Any) -> None:
        lifted = self.lifted(frame)
        for body in inlined(frame):
            for name in body.nodes:
                if name in body.inputs or name in body.children or body.hoisted.get(name) in lifted:
                    continue
                for before, after in zip(body.results(name), graph.get_operation_by_name(body.names[name]).outputs, strict=True):
                    if after.shape.rank is None or not after.shape.is_fully_defined():
                        after.set_shape(before.shape)

    # -- names in the new graphs -----------------------------------------------------------------------------------

    def local(self, body: Body, name: str, index: int) -> tuple[str, int]:
        """Node and output, within the new graph of `body`'s frame, of output `index` of op `name`."""
        while True:
            if name in body.inputs:
                if body.kind != "call" or body.parent is None:
                    return self.input_names[id(body), name], 0
                name, index = body.passed[body.inputs[name]]
                body = body.parent
            elif name in body.children and body.children[name][0].kind == "call":
                joined = self.joined.get((id(body), name))
                if joined is not None and index in joined.results:
                    return joined.node, list(joined.results).index(index)
                body = body.children[name][0]
                name, index = body.outputs[index]
            elif name in body.hoisted and body.hoisted[name] in self.lifted(body.frame):
                return self.input_names[id(body.frame), f"hoist {body.hoisted[name]}"], 0
            elif (passed := _handed_through(body, name, index)) is not None:
                name, index = passed
            else:
                return body.names[name], index

    def _tensor(self, body: Body, name: str, index: int) -> Any:
        node, output = self.local(body, name, index)
        return self.graphs[id(body.frame)].get_operation_by_name(node).outputs[output]

    def _finished(self, body: Body, name: str) -> list[str]:
        """Nodes of the new graph after which op `name` is done; none for a frame's input, which is there from the start."""
        if name in body.inputs or name in body.hoisted:
            source = self.local(body, name, 0)[0]
            return [] if source in self.placeholders.get(id(body.frame), ()) else [source]
        children = body.children.get(name)
        if children is None or children[0].kind != "call":
            return [body.names[name]]
        child = children[0]
        ends = child.control_outputs or [n for n, _ in child.outputs]
        return list(dict.fromkeys(n for end in ends for n in self._finished(child, end)))

    def device(self, path: str) -> str:
        assert self.device_of is not None
        try:
            return self.device_of[path]
        except KeyError:
            raise RewriteError(f"the placement has no device for {path!r}; it was made for another graph") from None

    def external_tensor(self, body: Body, tensor: Any) -> Any:
        """The new tensor for one of the trace's that a custom gradient's closure holds; eager tensors stay."""
        if not hasattr(tensor, "graph") or isinstance(tensor, tf.__internal__.EagerTensor):
            return tensor
        around: Body | None = body
        while around is not None:
            if around.graph is tensor.graph:
                return self._tensor(around, tensor.op.name, tensor.value_index)
            around = around.parent
        raise RewriteError(
            f"the custom gradient of an op in {body.path or self.trace.name!r} uses {tensor.name}, "
            "which is outside the traced function"
        )


def _originals(frame: Body) -> dict[str, Any]:
    """By node of a frame's copy, the op it is a copy of; of a function that is a copy itself, what that is copied from."""
    found = {}
    for body in inlined(frame):
        earlier = original_ops(body.graph)
        found.update({body.names[name]: earlier.get(name, op) for name, op in body.operations.items()})
    return found


@dataclass(frozen=True)
class _Joined:
    """The results of an inlined call that go through one more, for their gradients."""

    node: str
    results: Mapping[int, Any]
    """Those of the call in the trace, by position."""


@dataclass
class _Assembly:
    """The NodeDefs of one frame: its own ops and those of the functions it calls, in order."""

    rewriter: _Rewriter
    frame: Body
    renamed: Mapping[str, Sequence[str]]
    made: list[NodeDef] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)
    """By node of this frame: the device its outputs are on."""
    copies: dict[tuple[str, str], str] = field(default_factory=dict)
    """By constant and device: the copy of it there."""
    produced: dict[str, NodeDef] = field(default_factory=dict)
    """The frame's own nodes, by name."""
    taken: set[str] = field(init=False)
    arrived: dict[tuple[str, int, str, bool], tuple[str, int]] = field(default_factory=dict)
    """By node, output, device that it crosses to and whether it stays in host memory there: what is read for it."""

    def __post_init__(self) -> None:
        self.taken = {path for body in inlined(self.frame) for path in body.names.values()}

    def nodes(self) -> list[NodeDef]:
        self._body(self.frame, ())
        self._release_dead()
        return self.made

    def _release_dead(self) -> None:
        """Lets Grappler remove kept nodes that nothing needs, and with them what only leads there.

        It does not look at a function that gives nothing: there, what nothing needs has no device, since being sent makes it run.
        """
        rewriter, frame = self.rewriter, self.frame
        nodes = {node.name: node for node in self.made}
        ends = [rewriter.local(frame, *ref)[0] for ref in frame.outputs]
        ends += [n for name in frame.control_outputs for n in rewriter._finished(frame, name)]
        ends += [node.name for node in self.made if is_stateful(node.op)]
        alive: set[str] = set()
        while ends:
            name = ends.pop()
            if name in nodes and name not in alive:
                alive.add(name)
                ends += [split_input(text.removeprefix("^"))[0] for text in nodes[name].input]
        for name in nodes.keys() - alive:
            nodes[name].attr.pop(_KEPT, None)
            if not (frame.outputs or frame.control_outputs):
                nodes[name].device = ""

    def _body(self, body: Body, before: Sequence[str]) -> None:
        rewriter = self.rewriter
        placed = rewriter.device_of is not None
        graph = rewriter.graphs[id(self.frame)]
        lifted = rewriter.lifted(body.frame)
        for name, node in body.nodes.items():
            if name in body.inputs or body.hoisted.get(name) in lifted:
                continue
            waits = list(dict.fromkeys(n for i in node.input if i.startswith("^") for n in rewriter._finished(body, i[1:])))
            children = body.children.get(name)
            if children is not None and children[0].kind == "call":
                self._body(children[0], [*waits, *before])
                if not placed and rewriter.runs and not _in_loop(body):
                    self._join(body, name)
                continue
            path = body.names[name]
            new = NodeDef()
            new.CopyFrom(node)
            new.name = path
            new.ClearField("input")
            new.attr.pop("_output_shapes", None)
            device = self._planned(body, name) if placed else ""
            if placed:
                new.attr.pop("_class", None)
                new.device = self.devices[path] = device
            else:
                new.device = merged_device(node.device, body.scope)
                if "_class" in new.attr:
                    _colocate(new, body, name)
            self.produced[path] = new
            if node.op == "Identity" and node.device:
                _keep(new)  # a copy made by hand
            if children is not None:
                _rename(new, self.renamed[path])
            else:
                self._functions(body, node, graph)
            if before and is_stateful(node.op):
                waits = list(dict.fromkeys([*waits, *before]))
            for position, text in enumerate(i for i in node.input if not i.startswith("^")):
                source, index = rewriter.local(body, *split_input(text))
                wanted = device
                if placed and children is not None:
                    wanted = self._carried_device(body, name, node, position, source)
                dtype = body.operations[name].inputs[position].dtype
                enters = f"{path}/enter{position}" if node.op in LOOPS else ""
                source, index = self._at(source, index, wanted, dtype, enters, (new, position))
                if placed and position == 0 and node.op in ("If", "StatelessIf") and _has_loop(children or ()):
                    source, index = self._undecided(source, index, device, dtype, path), 0
                if placed and position == 0 and node.op == "Switch" and source in rewriter.placeholders[id(self.frame)]:
                    source, index = self._received(source, device, dtype, path), 0
                new.input.append(source if index == 0 else f"{source}:{index}")
            if node.op in LOOPS and children is not None:
                self._lift(body, name, new, waits)
            new.input.extend(f"^{w}" for w in waits)
            if "_gradient_op_type" in new.attr:
                new.attr["_gradient_op_type"].s = self._gradient(body, new.attr["_gradient_op_type"].s.decode()).encode()
            self.made.append(new)

    def _join(self, body: Body, name: str) -> None:
        """Sends the results of an inlined call through one that does nothing but have the gradient of a call.

        A function's gradient is one of all its results: those without one count as zeros, those by index become dense. In a loop
        all gradients are there and dense.
        """
        results = {k: t for k, t in enumerate(body.results(name)) if is_trainable(t) and t.dtype != tf.resource}
        if not results:
            return
        dtypes = tuple(t.dtype for t in results.values())
        call = NodeDef(op="PartitionedCall", name=self._free(f"{body.names[name]}/results"))
        for index in results:
            source, output = self.rewriter.local(body, name, index)
            call.input.append(source if output == 0 else f"{source}:{output}")
        for attribute in ("Tin", "Tout"):
            call.attr[attribute].list.type.extend(d.as_datatype_enum for d in dtypes)
        call.attr["f"].func.name = self.rewriter.identity(dtypes, self.rewriter.graphs[id(self.frame)])
        self.made.append(call)
        self.rewriter.joined[id(body), name] = _Joined(call.name, results)

    def _planned(self, body: Body, name: str) -> str:
        if name in body.hoisted:
            loop = body.frame
            assert loop.parent is not None
            return self.rewriter.device(f"{loop.parent.names[loop.site]}/read{body.hoisted[name]}")
        return self.rewriter.device(body.names[name])

    def _lift(self, body: Body, name: str, loop: NodeDef, waits: Sequence[str]) -> None:
        """Reads in front of a loop what its body would read in each iteration from another device, or copy."""
        inner = body.children[name][1]
        for j in self.rewriter.lifted(inner):
            hoist = inner.hoists[j]
            path = f"{body.names[name]}/read{j}"
            read = NodeDef(op="ReadVariableOp", name=path, device=self.rewriter.device(path))
            read.attr["dtype"].type = hoist.tensor.dtype.as_datatype_enum
            source, index = self.rewriter.local(body, *hoist.handle)
            read.input.append(source if index == 0 else f"{source}:{index}")
            read.input.extend(f"^{w}" for w in waits)
            self.made.append(read)
            self.devices[path] = read.device
            position = len(inner.passed) + j
            wanted = self.rewriter.device(f"{body.names[name]}/in{position}")
            entry, _ = self._at(path, 0, wanted, hoist.tensor.dtype, enters=f"{body.names[name]}/enter{position}")
            loop.input.append(entry)
            loop.attr["T"].list.type.append(hoist.tensor.dtype.as_datatype_enum)
            loop.attr["output_shapes"].list.shape.append(hoist.tensor.shape.as_proto())
            if "_num_original_outputs" in loop.attr:  # the outputs that have gradients; the variable's is one of them
                loop.attr["_num_original_outputs"].i += 1

    def _carried_device(self, body: Body, name: str, node: NodeDef, position: int, source: str) -> str:
        """Where input `position` of a loop or branch should be when it goes in."""
        path = body.names[name]
        if node.op in LOOPS:
            if body.operations[name].inputs[position].dtype == tf.resource:
                return ""
            return self.rewriter.device_of.get(f"{path}/in{position}", "")  # type: ignore[union-attr]
        return self.devices.get(source, "")

    def _at(
        self,
        source: str,
        index: int,
        device: str,
        dtype: tf.DType,
        enters: str = "",
        reader: tuple[NodeDef, int] | None = None,
    ) -> tuple[str, int]:
        """`source`, of type `dtype`, for a reader on `device`: a constant is copied there if it can be, a loop variable enters.

        Args:
            enters: for the value of a loop variable, what to call the node by which it enters.
            reader: the node that reads it, if it is there yet, and as which of its inputs.
        """
        here = self.devices.get(source)
        if not device or here == device:
            return source, index
        producer = self.produced.get(source)
        on_host = reader is not None and _takes_on_host(*reader)
        if (
            producer is not None
            and producer.op == "Const"
            and _makes_on_host(KernelIndex.shared().lookup(producer), device) == on_host
        ):
            copy = self.copies.get((source, device))
            if copy is None:
                copy = self.copies[source, device] = self._free(f"{source}/on_{_token(device)}")
                twin = NodeDef()
                twin.CopyFrom(producer)
                twin.name, twin.device = copy, device
                self.made.append(twin)
            return copy, index
        if enters:
            # TensorFlow keeps a loop variable where its first value comes from, so that has to be the planned device.
            return self._identity(source, index, device, dtype, f"{enters}_on_{_token(device)}"), 0
        if not here or dtype in (tf.resource, tf.variant):
            return source, index
        key = source, index, device, on_host
        if key not in self.arrived:
            self.arrived[key] = self._apart(source, index, device, dtype, on_host)
        return self.arrived[key]

    def _apart(self, source: str, index: int, device: str, dtype: tf.DType, on_host: bool) -> tuple[str, int]:
        """A kept node between `source` and a reader on another device.

        Grappler merges an op with those that feed it whatever their devices, but not across a node that is kept. It stands with
        the reader: what a host's op makes is in pinned memory, which copies need for their speed, only if it is sent right away.
        """
        here = self.devices[source]
        if _makes_on_host(_identity_kernels(dtype), device) == on_host:
            at = device
        elif self._stays_in_memory(source, index, here, dtype):
            at = here
        else:
            return source, index
        name = self._identity(source, index, at, dtype, f"{source}/crossing{index}_to_{_token(device)}")
        _keep(self.made[-1])
        return name, 0

    def _undecided(self, source: str, index: int, device: str, dtype: tf.DType, path: str) -> str:
        """A kept node that passes on the predicate of the branch `path`, which is on `device`.

        Where Grappler finds a predicate constant, it takes out what only the branch not taken needs, but nothing that leads to a
        kept node. What is left of a loop on several devices can then wait forever for what is gone.
        """
        here = self.devices.get(source) or device
        if not self._stays_in_memory(source, index, here, dtype):
            here = str(tf.DeviceSpec.from_string(here).replace(device_type="CPU", device_index=0).to_string())
        name = self._identity(source, index, here, dtype, f"{path}/undecided")
        _keep(self.made[-1])
        return name

    def _received(self, source: str, device: str, dtype: tf.DType, path: str) -> str:
        """What the Switch `path` takes for the argument `source`: TensorFlow runs it where its value comes from.

        Which is where a call has the argument, unless the value is passed on where the plan has it.
        """
        if dtype in (tf.resource, tf.variant):
            return source
        name = self._identity(source, 0, device, dtype, f"{path}/received")
        _keep(self.made[-1])
        return name

    def _stays_in_memory(self, source: str, index: int, device: str, dtype: tf.DType) -> bool:
        """Whether an Identity on the producer's device would leave the tensor in the memory that it is in."""
        kind = _kind(device)
        producer = self.produced.get(source)
        if kind == "CPU" or producer is None:
            return True
        made, passed = KernelIndex.shared().lookup(producer), _identity_kernels(dtype)
        if kind not in made.kernels or kind not in passed.kernels:
            return False
        return (index in made.kernels[kind].host_outputs) == (0 in passed.kernels[kind].host_outputs)

    def _identity(self, source: str, index: int, device: str, dtype: tf.DType, name: str) -> str:
        """The name of a new node that passes output `index` of `source` on."""
        name = self._free(name)
        node = NodeDef(op="Identity", name=name, device=device)
        node.input.append(source if index == 0 else f"{source}:{index}")
        node.attr["T"].type = dtype.as_datatype_enum
        self.made.append(node)
        return name

    def _free(self, name: str) -> str:
        """A name like this one that no other node of the frame has."""
        name = _unlike(self.taken, name)
        self.taken.add(name)
        return name

    def _functions(self, body: Body, node: NodeDef, graph: Any) -> None:
        """Functions that a kept op names (a compiled call, a dataset's map) come along unchanged."""
        for name in functions_of(node):
            function = library_function(body.graph, name)
            if function is not None:
                add_function(graph, function)

    def _gradient(self, body: Body, name: str) -> str:
        """A gradient like the custom one `name`, whose closure's tensors are exchanged for the copy's."""
        if not self.rewriter.runs or not is_gradient_registered(name):
            return name
        original = gradient_function(name)
        fresh = f"{name}_placed_{unique_id()}"
        register_gradient(fresh, _moved_gradient(original, self.rewriter, body))
        return fresh


def _unlike(taken: Collection[str], name: str) -> str:
    while name in taken:
        name += "_"
    return name


def _handed_through(body: Body, name: str, index: int) -> tuple[str, int] | None:
    """What enters a loop where its output `index` is a handle that it hands through, and which may be on another device."""
    if body.nodes[name].op not in LOOPS or body.operations[name].outputs[index].dtype != tf.resource:
        return None
    inner = body.children[name][1]
    source, _ = inner.outputs[index]
    return inner.passed[index] if inner.inputs.get(source) == index else None


def _moved_gradient(original: Callable[..., Any], rewriter: _Rewriter, body: Body) -> Callable[..., Any]:
    def gradient(op: Any, *upstream: Any) -> Any:
        scratch = FuncGraph("custom_gradient_placed")
        with scratch.as_default():
            inputs = [None if g is None else tf.compat.v1.placeholder(g.dtype, g.shape) for g in upstream]
            results = original(op, *inputs)
        structure = results if isinstance(results, (list, tuple)) else [results]
        present = [r for r in structure if r is not None]
        scratch.inputs[:0] = [i for i in inputs if i is not None]
        with scratch.as_default():
            outputs = [tf.convert_to_tensor(r) for r in present]
        scratch.outputs.extend(outputs)
        scratch.structured_outputs = outputs
        captured = [rewriter.external_tensor(body, outer) for outer, _ in external_captures(scratch)]
        call = concrete_from_graph(scratch, None, {})
        values = call_flat(call, [g for g in upstream if g is not None], captured)
        values = iter(values if isinstance(values, (list, tuple)) else [values])
        filled = [None if r is None else next(values) for r in structure]
        return filled if isinstance(results, (list, tuple)) else filled[0]

    return gradient


def _takes_on_host(node: NodeDef, position: int) -> bool:
    """Whether an op on another device than a CPU takes this input in the host's memory."""
    kernel = KernelIndex.shared().lookup(node).kernels.get(_kind(node.device))
    return kernel is not None and position in kernel.host_inputs


def _makes_on_host(support: KernelSupport, device: str) -> bool | None:
    """Whether an op's one result would be in the host's memory, for another device than a CPU; None if it has no kernel there."""
    kernel = support.kernels.get(_kind(device))
    return None if kernel is None else 0 in kernel.host_outputs


def _identity_kernels(dtype: tf.DType) -> KernelSupport:
    return KernelIndex.shared().lookup_type("Identity", {"T": dtype.name})


def _kind(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).device_type)


def _keep(node: NodeDef) -> None:
    """Makes Grappler leave a node as it is: neither removed nor fused."""
    node.attr[_KEPT].b = True


def _in_loop(body: Body) -> bool:
    return body.kind in ("cond", "body") or (body.parent is not None and _in_loop(body.parent))


def _has_loop(bodies: Sequence[Body]) -> bool:
    return any(node.op in LOOPS for top in bodies for body in top.walk() for node in body.nodes.values())


def _graph_attributes(node: NodeDef) -> list[str]:
    """Where TensorFlow caches a control-flow op's body graphs."""
    if node.op in LOOPS:
        return ["_cond_graph", "_body_graph"]
    if "branches" in node.attr:
        return [f"_branch_graph_{i}" for i in range(len(node.attr["branches"].list.func))]
    return ["_true_graph", "_false_graph"]


def _rename(node: NodeDef, names: Sequence[str]) -> None:
    if node.op in LOOPS:
        node.attr["cond"].func.name, node.attr["body"].func.name = names
    elif "branches" in node.attr:
        for function, name in zip(node.attr["branches"].list.func, names, strict=True):
            function.name = name
    else:
        node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = names


def _colocate(node: NodeDef, body: Body, name: str) -> None:
    """Exchanges the names of the ops that op `name` of `body` is to be with for the copy's."""
    wanted = [constraint.decode().removeprefix("loc:@") for constraint in node.attr["_class"].list.s]
    there = [body.names[w] for w in wanted if w != name and w in body.names and w not in body.inputs and w not in body.children]
    if there:
        node.attr["_class"].list.s[:] = [f"loc:@{path}".encode() for path in there]
    else:
        del node.attr["_class"]


def _placeholder(name: str, dtype: tf.DType, shape: tf.TensorShape) -> NodeDef:
    node = NodeDef(op="Placeholder", name=name)
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())
    return node


def _attributes(concrete: Any) -> dict[str, Any]:
    return dict(concrete.inference_fn.attributes or {})


def _token(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.device_type}_{spec.device_index}"
