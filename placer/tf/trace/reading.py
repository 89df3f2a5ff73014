"""Trace -> OpGraph: every body flattened into one DAG, with shapes, kernels, groups, trip counts and where things live."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import networkx as nx
import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue as AttrProto
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import AttrValue, OpSignature, TensorSpec
from cost_models.ops import Difference, entry_of
from placer.common.garbage_collection import paused_collection
from placer.graph.opgraph import Kernel, OpGraph, OpNode, Resource, Role, TensorEdge
from placer.tf._private.copied_graphs import CopiedGraph
from placer.tf._private.func_graphs import external_captures, library_function, static_value
from placer.tf._private.functions import is_jit_compiled
from placer.tf._private.handles import has_value, held_specs, location, variable_of
from placer.tf.devices import process_devices
from placer.tf.state import variables
from placer.tf.trace.kernels import KernelIndex, KernelSupport
from placer.tf.trace.optypes import functions_of, is_stateful, may_differ, takes_handles_from_afar
from placer.tf.trace.tracing import (
    BRANCHES,
    CALLS,
    LOOPS,
    Argument,
    Body,
    Trace,
    is_compiled,
    merged_device,
    split_input,
    variable_names,
)

DEFAULT_TRIPS = 10
"""Iterations assumed of a loop whose count cannot be read from the graph."""

PREDICATE = -1
"""`TensorEdge.dst_index` of the edge by which a loop's or branch's predicate reaches the ops it governs (host memory)."""

HOST_PREDICATE = KernelSupport({"CPU": Kernel(), "GPU": Kernel((0,), (0,))}, {})

IRRELEVANT = frozenset(
    {"output_shapes", "config", "config_proto", "executor_type", "token", "shared_name", "container", "cache", "key"}
)
"""Attributes no cost depends on: settings of the runtime, and names of state and callbacks."""

Source = tuple[str, int]
"""A node of the flattened graph and one of its outputs."""


@paused_collection()
def read(trace: Trace, shapes: Callable[[str, int], tuple[int | None, ...] | None] | None = None) -> OpGraph:
    """Flattens a trace.

    Args:
        trace: what `placer.tf.trace.tracing.trace` found.
        shapes: by node path and output index, shapes better than the trace's own (known argument shapes carried through);
            None where it knows nothing.

    Returns:
        The graph, nodes in execution order. A called function's ops take their caller's place; a loop or branch adds the
        nodes described at `placer.graph.opgraph.Role`.
    """
    return _Reader(trace, shapes).read()


@dataclass
class _Reader:
    trace: Trace
    shapes: Callable[[str, int], tuple[int | None, ...] | None] | None
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    specs: dict[str, tuple[TensorSpec, ...]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    """By path of an inlined or lowered op: the nodes that a control edge from it waits for."""
    resources: dict[str, Resource] = field(default_factory=dict)
    trip_counts: dict[str, tuple[int, str]] = field(default_factory=dict)
    finals: dict[str, int] = field(default_factory=dict)
    """By loop "out" node: the counter's value once the loop is done, where it is known."""
    parents: dict[str, str] = field(default_factory=dict)
    """Union-find over nodes that must share a device."""
    reasons: dict[str, str] = field(default_factory=dict)
    signatures: dict[Any, OpSignature] = field(default_factory=dict)
    attributes: dict[bytes, tuple[tuple[str, AttrValue], ...]] = field(default_factory=dict)
    interned: dict[TensorSpec, TensorSpec] = field(default_factory=dict)
    stateful: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pending: dict[str, dict[str, Any]] = field(default_factory=dict)
    next_rounds: dict[str, str] = field(default_factory=dict)
    """By loop variable: the op whose value it has in the next round."""

    def read(self) -> OpGraph:
        self.kernels = KernelIndex.shared()
        root = self.trace.root
        self._captures = {inner.op.name: outer for outer, inner in external_captures(root.graph)}
        self._body(root, 1.0, [])
        outputs = tuple(self._resolve(root, *ref) for ref in root.outputs)
        keep = [n for n, _ in outputs] + self.stateful
        keep += [n for name in root.control_outputs for n in self._finished(root, name)]
        live = self._live(keep)
        if is_jit_compiled(self.trace.concrete):
            compiled = [name for name, fields in self.pending.items() if fields["role"] not in ("argument", "capture")]
            for name in compiled:
                self._join(compiled[0], name, "XLA compiles the function as a whole")
        self._join_saved()
        groups = self._groups()
        for name, fields in self.pending.items():
            group = groups.get(name, "")
            if name not in live:
                fields["count"] = 0.0
            self.graph.nodes[name]["op"] = OpNode(name=name, group=group, **fields)
        return OpGraph(
            name=self.trace.name,
            graph=self.graph,
            resources=self.resources,
            group_reasons={
                g: self.reasons.get(g, "they pass a handle or list that cannot change device") for g in set(groups.values())
            },
            process_devices=process_devices(),
            trip_counts=self.trip_counts,
            outputs=outputs,
            notes=(*self._assumed(live), *self.notes),
        )

    def _assumed(self, live: set[str]) -> tuple[str, ...]:
        """What prices rest on that neither the graph nor the arguments tell."""
        notes = []
        for name, fields in self.pending.items():
            spec = self.specs[name][0] if fields["role"] == "argument" and name in live else None
            if spec is not None and (spec.shape is None or None in spec.shape):
                what = "its unknown sizes count as 1" if spec.shape is not None else "of unknown rank, it counts as a scalar"
                notes.append(f"argument {name!r}: {what}. Plan with example arguments, or with the sizes, for true costs.")
        for path, (trips, source) in self.trip_counts.items():
            if source == "default":
                notes.append(f"loop {path!r}: how often it runs cannot be read from the graph and counts as {trips}.")
        return tuple(notes)

    # -- walking ---------------------------------------------------------------------------------------------------

    def _body(self, body: Body, count: float, before: Sequence[str]) -> None:
        """Adds the ops of `body`, each run `count` times a step; its stateful ops wait for the nodes `before`."""
        for name, node in body.nodes.items():
            if name in body.inputs:
                if body.kind == "root":
                    self._input(body, name, node)
                continue
            if name in body.hoisted:
                continue
            children = body.children.get(name)
            waits = [n for i in node.input if i.startswith("^") for n in self._finished(body, i[1:])]
            if children is None:
                self._op(body, name, node, count, [*waits, *before] if before and is_stateful(node.op) else waits)
            elif node.op in LOOPS:
                self._loop(body, name, node, children, count, waits)
            elif node.op in BRANCHES:
                self._branches(body, name, node, children, count, waits)
            else:
                child = children[0]
                self._body(child, count, [*waits, *before])
                self.after[body.names[name]] = self._ends(child)

    def _input(self, body: Body, name: str, node: NodeDef) -> None:
        position = body.inputs[name]
        tensor = body.input_tensors[position]
        external = self._captures.get(name)
        value = external
        role: Role = "capture"
        if external is None:
            role = "argument"
            value = self.trace.arguments[position] if position < len(self.trace.arguments) else None
        spec = self._spec(body.names[name], 0, tensor)
        resource = ""
        support = self.kernels.lookup_type("_Arg", {"T": spec.dtype})
        if spec.dtype == "resource" and value is not None:
            held = value.held if isinstance(value, Argument) else held_specs(value)
            resource = self._resource(body.names[name], value, held, role)
            if held:  # where a variable of its type can be made
                support = self.kernels.lookup_type("VarHandleOp", {"dtype": held[0].dtype.name})
        elif external is not None and spec.dtype == "resource":
            resource = body.names[name]
        self._add(
            body.names[name],
            op_type="Placeholder",
            signature=self._signature("Placeholder", (), (spec,), ()),
            count=1.0,
            role=role,
            support=support,
            location=_short_device(value),
            resource=resource,
        )

    def _resource(self, path: str, handle: Any, held: Sequence[tf.TensorSpec], role: Role) -> str:
        named = handle.name if isinstance(handle, Argument) else str(getattr(handle, "_name", ""))
        name = self._variable_names.get(id(handle)) or (named or path).removesuffix(":0")
        key, suffix = name, 0
        while key in self.resources:
            suffix += 1
            key = f"{name}_{suffix}"
        nbytes = sum(spec.dtype.size * math.prod(d or 1 for d in spec.shape) for spec in held if spec.shape.rank is not None)
        stays = "it is an argument, and another call may bring another" if role == "argument" else ""
        if id(handle) in self._decided:
            stays = "a placed function that runs relies on it"
        elif not stays and variable_of(handle) is None:
            stays = "no tf.Variable has it"
        waits = bool(held) and not isinstance(handle, Argument) and not has_value(handle)
        self.resources[key] = Resource(key, "variable" if held else "resource", _short_device(handle), nbytes, stays, waits)
        return key

    @cached_property
    def _decided(self) -> set[int]:
        return variables.decided()

    @cached_property
    def _variable_names(self) -> dict[int, str]:
        return variable_names(self.trace.concrete.graph)

    def _op(self, body: Body, name: str, node: NodeDef, count: float, waits: Sequence[str]) -> None:
        path = body.names[name]
        op = body.operations[name]
        sources = [self._resolve(body, *split_input(i)) for i in node.input if not i.startswith("^")]
        inputs = tuple(self.specs[n][k] for n, k in sources)
        outputs = tuple(self._spec(path, k, t) for k, t in enumerate(body.results(name)))
        key, attrs = self._attrs(node)
        constant = node.op == "Const"
        flags: list[str] = []
        inner: tuple[OpSignature, ...] = ()
        stateful = is_stateful(node.op)
        if stateful:
            flags.append("stateful")
            self.stateful.append(path)
        for difference in may_differ(node):
            of_integers = difference in (Difference.DIVISION, Difference.POWER)
            if not of_integers or (op.inputs[0].dtype.is_integer and self._may_fail(op)):
                flags.append(difference.value)
        requested = merged_device(node.device, body.scope)
        if entry_of(node.op).unseen_code == "python":
            requested = "/job:localhost/replica:0/task:0/device:CPU:0"
            flags.append("unit")
        elif "f" in node.attr:
            function = library_function(body.graph, node.attr["f"].func.name)
            if is_compiled(node, function):
                flags.append("unit")
                compiled = list(_whole(function.graph)) if hasattr(function, "graph") else []
                inner = tuple(map(self._compiled, compiled))
                self._unheeded(path, {op.device: None for op in compiled if op.device})
        resource = ""
        if any(s.dtype == "resource" for s in outputs) and not any(s.dtype == "resource" for s in inputs):
            # An op that makes a handle names state of its own (a table, an iterator, an anonymous variable).
            resource = path
            self.resources[path] = Resource(path, node.op, "", 0)
        self._add(
            path,
            op_type=node.op,
            signature=self._signature(node.op, inputs, outputs, attrs, key, inner),
            count=count,
            role="constant" if constant else "op",
            support=self.kernels.lookup(node),
            requested=requested,
            planned=self._planned(body, name),
            resource=resource,
            flags=tuple(flags),
            body=body.frame.path,
        )
        for position, (source, index) in enumerate(sources):
            self._edge(source, path, index, position, handle_binds=not takes_handles_from_afar(node))
        for source in waits:
            self._control(source, path)
        if node.op == "Switch":
            self._join(sources[0][0], path, "TensorFlow runs a Switch where its value comes from")
        if "_class" in node.attr:
            for constraint in node.attr["_class"].list.s:
                other = constraint.decode().removeprefix("loc:@")
                if other in body.names and other != name and other not in body.inputs and other not in body.children:
                    self._join(path, body.names[other], "they are colocated in the graph")

    @staticmethod
    def _planned(body: Body, name: str) -> tuple[str, str]:
        """The placed function by whose plan an op has its device, and what decided it there; "" twice for what is in none."""
        around: Body | None = body
        while around is not None:
            plan = around.graph.placement if isinstance(around.graph, CopiedGraph) else None
            if plan is not None:
                return plan.graph.name, plan.why(name).text if name in plan.ops else ""
            around = around.parent
        return "", ""

    def _may_fail(self, op: Any) -> bool:
        """Whether a division or power of integers may have a divisor of zero or an exponent below it, on a GPU's own memory."""
        known = static_value(op.inputs[1])
        if known is not None and (known >= 0 if op.type == "Pow" else known != 0).all():
            return False
        on_gpu = self.kernels.lookup(op.node_def).kernels.get("GPU")
        return on_gpu is not None and not on_gpu.host_inputs  # an int32 kernel is the CPU's

    def _loop(self, body: Body, name: str, node: NodeDef, children: tuple[Body, ...], count: float, waits: Sequence[str]) -> None:
        cond, inner = children
        path = body.names[name]
        sources = [self._resolve(body, *split_input(i)) for i in node.input if not i.startswith("^")]
        trips, source_of_trips = self._trips(cond, inner, sources)
        self.trip_counts[path] = (trips, source_of_trips)
        carried = [(i, s) for i, s in enumerate(sources) if self.specs[s[0]][s[1]].dtype != "resource"]
        for j, hoist in enumerate(inner.hoists):
            handle = self._resolve(body, *hoist.handle)
            self._read(f"{path}/read{j}", hoist.reader.nodes[hoist.read], handle, hoist.tensor, count, body, waits)
            carried.append((len(sources) + j, (f"{path}/read{j}", 0)))
        for i, (source, index) in carried:
            tensor = inner.input_tensors[i] if i < len(sources) else inner.hoists[i - len(sources)].tensor
            spec = self._spec(f"{path}/in{i}", 0, tensor)
            self._loop_value(f"{path}/in{i}", "LoopVariable", "Switch", spec, count * max(trips, 1), inner)
            self._edge(source, f"{path}/in{i}", index, 0)
            for wait in waits:
                self._control(wait, f"{path}/in{i}")
        self._body(cond, count * (trips + 1), waits)
        predicate = self._resolve(cond, *self._behind_identities(cond, *cond.outputs[0]))
        boolean = TensorSpec("bool", ())
        self._add(
            path,
            op_type=node.op,
            signature=self._signature(node.op, (boolean,), (boolean,), ()),
            count=count * (trips + 1),
            role="loop",
            support=HOST_PREDICATE,
            requested="",
            body=inner.path,
        )
        self._edge(*_flip(predicate, path), 0)
        for wait in waits:
            self._control(wait, path)
        first = len(self.pending)
        self._body(inner, count * trips, waits)
        governed = [n for n in list(self.pending)[first:] if self.pending[n]["role"] != "constant"]
        for i, _ in carried:
            if i < len(sources):
                result = self._resolve(inner, *inner.outputs[i])
                spec = self._spec(f"{path}/out{i}", 0, body.operations[name].outputs[i])
            else:
                result = f"{path}/in{i}", 0
                spec = self.specs[f"{path}/in{i}"][0]
            self._loop_value(f"{path}/out{i}", "NextIteration", "NextIteration", spec, count * max(trips, 1), inner)
            self._edge(result[0], f"{path}/out{i}", result[1], 0)
            self.next_rounds[f"{path}/in{i}"] = f"{path}/out{i}"
            self._join(f"{path}/in{i}", f"{path}/out{i}", f"loop variable {i} of {path} keeps one device")
            governed.append(f"{path}/out{i}")
        for other in governed:
            self._edge(path, other, 0, PREDICATE)
        self.after[path] = [path, *(f"{path}/out{i}" for i, _ in carried), *self._ends(inner)]

    def _read(self, path: str, node: NodeDef, handle: Source, value: Any, count: float, body: Body, waits: Sequence[str]) -> None:
        """A read of a variable moved in front of the loop that repeats it."""
        key, attrs = self._attrs(node)
        signature = self._signature(node.op, (self.specs[handle[0]][handle[1]],), (self._spec(path, 0, value),), attrs, key)
        self._add(
            path,
            op_type=node.op,
            signature=signature,
            count=count,
            role="op",
            support=self.kernels.lookup(node),
            flags=("stateful",),
            body=body.frame.path,
        )
        self._edge(handle[0], path, handle[1], 0)
        for wait in waits:
            self._control(wait, path)

    def _loop_value(self, path: str, op_type: str, kernel: str, spec: TensorSpec, count: float, inner: Body) -> None:
        attrs: tuple[tuple[str, AttrValue], ...] = (("T", spec.dtype),)
        self._add(
            path,
            op_type=op_type,
            signature=self._signature(op_type, (spec,), (spec,), attrs),
            count=count,
            role="loop",
            support=self.kernels.lookup_type(kernel, {"T": spec.dtype}),
            body=inner.path,
        )

    def _branches(
        self, body: Body, name: str, node: NodeDef, children: tuple[Body, ...], count: float, waits: Sequence[str]
    ) -> None:
        path = body.names[name]
        source, index = self._resolve(body, *split_input(node.input[0]))
        predicate = self.specs[source][index]
        self._add(
            path,
            op_type=node.op,
            signature=self._signature(node.op, (predicate,), (predicate,), ()),
            count=count,
            role="branch",
            support=HOST_PREDICATE,
            requested=merged_device(node.device, body.scope),
            planned=self._planned(body, name),
            body=body.frame.path,
        )
        self._edge(source, path, index, 0)
        for wait in waits:
            self._control(wait, path)
        merge = f"{path}/out"
        results: list[tuple[Source, int]] = []
        ends: list[str] = []
        for child in children:
            first = len(self.pending)
            self._body(child, count / len(children), waits)
            for other in list(self.pending)[first:]:
                if self.pending[other]["role"] != "constant":
                    self._edge(path, other, 0, PREDICATE)
            results += [(self._resolve(child, *ref), k) for k, ref in enumerate(child.outputs)]
            ends += self._ends(child)
        outputs = tuple(self._spec(merge, k, t) for k, t in enumerate(body.results(name)))
        self._add(
            merge,
            op_type="BranchMerge",
            signature=self._signature("BranchMerge", tuple(outputs[k] for _, k in results), outputs, ()),
            count=count,
            role="branch",
            support=self._merge_support(outputs, [k for _, k in results]),
            body=body.frame.path,
        )
        self._join(path, merge, f"the results of {path} come together on its device")
        self._edge(path, merge, 0, PREDICATE)
        for position, ((node_name, k), _) in enumerate(results):
            self._edge(node_name, merge, k, position)
        self.after[path] = [merge, *ends]

    def _merge_support(self, outputs: Sequence[TensorSpec], result_of_input: Sequence[int]) -> KernelSupport:
        """Kernels of the Merge ops that a branch's results become, as if they were one op."""
        each = [self.kernels.lookup_type("Merge", {"T": s.dtype}) for s in outputs]
        kernels = {}
        for kind in ("CPU", "GPU"):
            if all(kind in s.kernels for s in each):
                host = {k for k, s in enumerate(each) if 0 in s.kernels[kind].host_outputs}
                inputs = tuple(i for i, k in enumerate(result_of_input) if k in host)
                kernels[kind] = Kernel(inputs, tuple(sorted(host)))
        refusals = {kind: s.refusals[kind] for s in each for kind in s.refusals if kind not in kernels}
        return KernelSupport(kernels, refusals)

    # -- names -----------------------------------------------------------------------------------------------------

    def _resolve(self, body: Body, name: str, index: int) -> Source:
        """The flattened graph's node and output behind output `index` of op `name` in `body`."""
        while True:
            position = body.inputs.get(name)
            if position is not None:
                if body.parent is None:
                    return body.names[name], 0
                if body.kind in ("cond", "body") and body.input_tensors[position].dtype != tf.resource:
                    return f"{body.parent.names[body.site]}/in{position}", 0
                name, index = body.passed[position]
                body = body.parent
                continue
            children = body.children.get(name)
            if name in body.hoisted:
                loop = body.frame
                assert loop.parent is not None
                return f"{loop.parent.names[loop.site]}/in{len(loop.passed) + body.hoisted[name]}", 0
            if children is None:
                return body.names[name], index
            kind = children[0].kind
            if kind == "call":
                body = children[0]
                name, index = body.outputs[index]
                continue
            if kind == "branch":
                return f"{body.names[name]}/out", index
            if body.operations[name].outputs[index].dtype == tf.resource:
                name, index = children[1].passed[index]
                continue
            return f"{body.names[name]}/out{index}", 0

    def _behind_identities(self, body: Body, name: str, index: int) -> Source:
        """The op whose value is handed on: TensorFlow takes out what hands a loop's predicate on where its maker is."""
        while name in body.nodes and name not in body.inputs:
            node = body.nodes[name]
            if node.op != "Identity":
                break
            asked, maker = merged_device(node.device, body.scope), body.nodes.get(split_input(node.input[0])[0])
            if asked and (maker is None or merged_device(maker.device, body.scope) != asked):
                break
            identity, (name, index) = body.names[name], split_input(node.input[0])
            self._join(identity, self._resolve(body, name, index)[0], "it hands a loop's predicate on")
        return name, index

    def _finished(self, body: Body, name: str) -> list[str]:
        """The nodes after which op `name` of `body` is done."""
        if name in body.inputs or name in body.hoisted:
            return [self._resolve(body, name, 0)[0]]
        path = body.names[name]
        return self.after.get(path, [path])

    def _ends(self, body: Body) -> list[str]:
        return list(dict.fromkeys(n for name in body.control_outputs for n in self._finished(body, name)))

    # -- adding ----------------------------------------------------------------------------------------------------

    def _add(
        self,
        path: str,
        *,
        op_type: str,
        signature: OpSignature,
        count: float,
        role: Role,
        support: KernelSupport,
        requested: str = "",
        planned: tuple[str, str] = ("", ""),
        location: str = "",
        resource: str = "",
        flags: tuple[str, ...] = (),
        body: str = "",
    ) -> None:
        self.graph.add_node(path)
        self.specs[path] = signature.outputs
        self.pending[path] = {
            "op_type": op_type,
            "signature": signature,
            "count": count,
            "body": body,
            "role": role,
            "kernels": support.kernels,
            "refusals": support.refusals,
            "requested_device": requested,
            "planned_by": planned[0],
            "planned_why": planned[1],
            "location": location,
            "resource": resource,
            "flags": flags,
        }

    def _edge(self, source: str, target: str, src_index: int, dst_index: int, handle_binds: bool = True) -> None:
        if source == target:
            return
        data = self.graph.get_edge_data(source, target)
        edge = TensorEdge(src_index, dst_index)
        if data is None:
            self.graph.add_edge(source, target, tensors=(edge,), control=False)
        else:
            data["tensors"] += (edge,)
        dtype = self.specs[source][src_index].dtype
        if dst_index != PREDICATE and (dtype == "variant" or (dtype == "resource" and handle_binds)):
            self._join(source, target, "")

    def _control(self, source: str, target: str) -> None:
        if source == target:
            return
        data = self.graph.get_edge_data(source, target)
        if data is None:
            self.graph.add_edge(source, target, tensors=(), control=True)
        else:
            data["control"] = True

    def _spec(self, path: str, index: int, tensor: Any) -> TensorSpec:
        better = self.shapes(path, index) if self.shapes is not None else None
        if better is None:
            shape = tensor.shape
            better = None if shape.rank is None else tuple(shape.as_list())
        spec = TensorSpec(tensor.dtype.name, better)
        return self.interned.setdefault(spec, spec)

    def _signature(
        self,
        op_type: str,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        attrs: tuple[tuple[str, AttrValue], ...],
        key: bytes = b"",
        inner: tuple[OpSignature, ...] = (),
    ) -> OpSignature:
        """One object for all ops of one signature."""
        identity = (op_type, key or attrs, inputs, outputs, inner)
        found = self.signatures.get(identity)
        if found is None:
            found = self.signatures[identity] = OpSignature(op_type, inputs, outputs, attrs, inner)
        return found

    def _compiled(self, op: Any) -> OpSignature:
        """The signature of an op inside a compiled call."""
        inputs, outputs = (tuple(self._spec("", 0, t) for t in tensors) for tensors in (op.inputs, op.outputs))
        key, attrs = self._attrs(op.node_def)
        return self._signature(op.type, inputs, outputs, attrs, key)

    def _unheeded(self, path: str, scopes: Iterable[str]) -> None:
        if asked := ", ".join(f"tf.device({scope!r})" for scope in scopes):
            self.notes.append(f"{path!r}: {asked} inside it overridden: XLA compiles the call as a whole, for one device.")

    def _attrs(self, node: NodeDef) -> tuple[bytes, tuple[tuple[str, AttrValue], ...]]:
        if node.op == "Const":
            dtype = node.attr["dtype"].type
            key = b"Const%d" % dtype
            if key not in self.attributes:
                self.attributes[key] = (("dtype", tf.dtypes.as_dtype(dtype).name),)
            return key, self.attributes[key]
        bare = NodeDef(op=node.op, attr=node.attr)
        key = bare.SerializeToString(deterministic=True)
        found = self.attributes.get(key)
        if found is None:
            found = self.attributes[key] = tuple(_plain_attrs(node.attr))
        return key, found

    def _join_saved(self) -> None:
        """Keeps ops with their gradients' where what is saved between them means nothing to another device."""
        for name in [name for name, fields in self.pending.items() if Difference.SAVED in entry_of(fields["op_type"]).differs]:
            stack = [(name, output) for output in range(3, len(self.specs[name]))]
            seen = set(stack)
            while stack:
                source, output = stack.pop()
                for target, data in self.graph.adj[source].items():
                    taken = [edge.dst_index for edge in data["tensors"] if edge.src_index == output and edge.dst_index >= 0]
                    if not taken:
                        continue
                    kind = self.pending[target]["op_type"]
                    passes_on = entry_of(kind).passes_on
                    if passes_on or "Grad" in kind or "Backprop" in kind:
                        self._join(name, target, "the gradient takes what was saved where it was saved")
                    if not passes_on:
                        continue
                    outputs = len(self.specs[target])
                    found = {(target, k % outputs) for k in (taken if kind == "BranchMerge" else range(outputs))}
                    stack += found - seen
                    seen |= found

    # -- groups ----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> str:
        root = name
        while (up := self.parents.get(root, root)) != root:
            root = up
        while (up := self.parents.get(name, name)) != root:
            self.parents[name] = root
            name = up
        return root

    def _join(self, a: str, b: str, reason: str) -> None:
        a, b = self._find(a), self._find(b)
        self.parents.setdefault(a, a)
        if a != b:
            self.parents[b] = a
        if reason:
            self.reasons.setdefault(a, reason)

    def _groups(self) -> dict[str, str]:
        return {name: self._find(name) for name in self.parents}

    def _live(self, keep: Sequence[str]) -> set[str]:
        """What something the caller or the world can see depends on; the runtime prunes the rest."""
        live: set[str] = set()
        stack = list(keep)
        while stack:
            name = stack.pop()
            if name not in live:
                live.add(name)
                stack.extend(self.graph.pred[name])
                if name in self.next_rounds:
                    stack.append(self.next_rounds[name])
        return live

    # -- trip counts -----------------------------------------------------------------------------------------------

    def _trips(self, cond: Body, inner: Body, sources: Sequence[Source]) -> tuple[int, str]:
        """How often a loop runs: from counters with constant start, step and limit in its condition, else the default."""
        bounds: list[tuple[int, int, int, int]] = []
        complete = True
        for test in self._conjuncts(cond, *cond.outputs[0]):
            bound = self._bound(cond, inner, test)
            if bound is None:
                complete = False
            else:
                bounds.append(bound)
        if not bounds:
            return DEFAULT_TRIPS, "default"
        trips = min(b[0] for b in bounds)
        for _, position, start, step in bounds:
            self.finals[f"{cond.parent.names[cond.site]}/out{position}"] = start + trips * step  # type: ignore[union-attr]
        return trips, "constant" if complete else "upper bound"

    def _conjuncts(self, cond: Body, name: str, index: int) -> Iterator[tuple[Body, str]]:
        cond, name = self._through(cond, name, index)
        node = cond.nodes[name]
        if node.op == "LogicalAnd":
            for text in node.input[:2]:
                yield from self._conjuncts(cond, *split_input(text))
        else:
            yield cond, name

    def _through(self, body: Body, name: str, index: int) -> tuple[Body, str]:
        """Past calls and ops that pass a value on."""
        while True:
            children = body.children.get(name)
            node = body.nodes[name]
            if children is not None and children[0].kind == "call":
                body = children[0]
                name, index = body.outputs[index]
            elif name not in body.inputs and node.op in ("Identity", "Squeeze", "Reshape", "StopGradient"):
                name, index = split_input(node.input[0])
            elif name in body.inputs and body.kind == "call" and body.parent is not None:
                name, index = body.passed[body.inputs[name]]
                body = body.parent
            else:
                return body, name

    def _bound(self, cond: Body, inner: Body, test: tuple[Body, str]) -> tuple[int, int, int, int] | None:
        """(trips, loop variable, start, step) that one comparison of a counter with a limit allows; None if it is not one."""
        body, name = test
        node = body.nodes[name]
        if name in body.inputs or node.op not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
            return None
        sides = [self._through(body, *split_input(text)) for text in node.input[:2]]
        for swapped in (False, True):
            counter_side, limit_side = sides[::-1] if swapped else sides
            holder, counter = counter_side
            if holder is not cond or counter not in cond.inputs:
                continue
            position = cond.inputs[counter]
            limit = self._value(*limit_side)
            start = self._value(cond.parent, *cond.passed[position]) if cond.parent is not None else None
            step = self._step(inner, position)
            if limit is None or start is None or not step:
                continue
            rising = (node.op in ("Less", "LessEqual")) != swapped
            if rising != (step > 0):
                continue
            span = (limit - start) if rising else (start - limit)
            trips = math.floor(span / abs(step)) + 1 if "Equal" in node.op else math.ceil(span / abs(step))
            return max(0, trips), position, start, step
        return None

    def _step(self, inner: Body, position: int) -> int | None:
        """The constant a loop variable grows by in each iteration."""
        body, name = self._through(inner, *inner.outputs[position])
        node = body.nodes[name]
        if node.op not in ("AddV2", "Add", "Sub") or name in body.inputs:
            return None
        left, right = (self._through(body, *split_input(text)) for text in node.input[:2])
        if left[0] is inner and inner.inputs.get(left[1]) == position:
            by = self._value(*right)
            return None if by is None else (-by if node.op == "Sub" else by)
        if node.op != "Sub" and right[0] is inner and inner.inputs.get(right[1]) == position:
            return self._value(*left)
        return None

    def _value(self, body: Body, name: str, index: int = 0) -> int | None:
        """An integer that is known while tracing, looked up through the bodies around it; None if it is not."""
        while True:
            body, name = self._through(body, name, index)
            if name in body.inputs:
                if body.kind == "root" or body.parent is None:
                    return None
                position = body.inputs[name]
                if body.kind in ("cond", "body"):
                    loop_body = body.parent.children[body.site][1]
                    back = self._through(loop_body, *loop_body.outputs[position])
                    if not (back[0] is loop_body and loop_body.inputs.get(back[1]) == position):
                        return None  # it changes from iteration to iteration
                name, index = body.passed[position]
                body = body.parent
                continue
            children = body.children.get(name)
            if children is not None:
                return self.finals.get(f"{body.names[name]}/out{index}") if children[0].kind == "cond" else None
            value = static_value(body.operations[name].outputs[index])
            if value is None or getattr(value, "size", 1) != 1 or getattr(value, "dtype", None) is None:
                return None
            if value.dtype.kind not in "iuf" or not math.isfinite(float(value.reshape(-1)[0])):
                return None
            number = value.reshape(-1)[0]
            return int(number) if float(number).is_integer() else None


def _whole(graph: Any) -> Iterator[Any]:
    """The ops of a compiled function and of the functions it calls, once each, without constants and arguments."""
    for op in graph.get_operations():
        named = [getattr(library_function(graph, name), "graph", None) for name in functions_of(op.node_def)]
        inner = [g for g in named if g is not None]
        for called in inner:
            yield from _whole(called)
        if op.type not in ("Const", "Placeholder") and not (inner and op.type in CALLS):
            yield op


def _flip(source: Source, target: str) -> tuple[str, str, int]:
    return source[0], target, source[1]


def _short_device(value: Any) -> str:
    """The device an eager tensor's bytes or a handle's state sit on, short; "" if that is not known."""
    spec = tf.DeviceSpec.from_string(location(value))
    return f"{spec.device_type}:{spec.device_index}" if spec.device_type is not None else ""


def _plain_attrs(attrs: Mapping[str, AttrProto]) -> Iterator[tuple[str, AttrValue]]:
    """The attributes a cost can depend on, as plain values, sorted by name; none that changes from trace to trace."""
    for name in sorted(attrs):
        if name.startswith("_") or name in IRRELEVANT:
            continue
        value = attrs[name]
        kind = value.WhichOneof("value")
        if kind == "type":
            yield name, tf.dtypes.as_dtype(value.type).name
        elif kind in ("i", "f", "b"):
            yield name, getattr(value, kind)
        elif kind == "s" and len(value.s) <= 64:
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
            elif items.s and all(len(s) <= 64 for s in items.s):
                yield name, tuple(s.decode("utf-8", "replace") for s in items.s)
