"""Reads a Trace into an OpGraph: all bodies in one DAG, with shapes, kernels, groups, rounds of loops and places of inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import OpSignature
from cost_models.ops import Difference, entry_of
from placer.common.garbage_collection import paused_collection
from placer.graph.assumptions import assumption_notes
from placer.graph.op_graph import OpGraph, Resource
from placer.graph.requested_devices import device_with_kernel
from placer.graph.sizes import Shape
from placer.tf._private.definitions import readable_function
from placer.tf._private.func_graphs import static_value
from placer.tf.devices import connected_devices, full_name
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body, is_compiled, split_input
from placer.tf.trace.control_flow import ControlFlow
from placer.tf.trace.dataset_bodies import DatasetBodies, rounds_of, runs_for_each
from placer.tf.trace.graph_builder import GraphBuilder
from placer.tf.trace.inner_ops import InnerOp, InnerOps
from placer.tf.trace.inputs import Inputs
from placer.tf.trace.kernels import KernelIndex
from placer.tf.trace.known_sizes import KnownSizes
from placer.tf.trace.op_types import accepts_remote_handles, is_stateful, may_differ
from placer.tf.trace.requests import is_of_strategy, planned_by, requested_device
from placer.tf.trace.resolving import Resolver
from placer.tf.trace.signatures import Attributes, Signatures
from placer.tf.trace.tracing import Trace


@paused_collection()
def read(trace: Trace, sizes: KnownSizes | None = None, immovable: set[int] | None = None) -> OpGraph:
    """Flattens a trace.

    Args:
        trace: see `placer.tf.trace.tracing.trace`.
        sizes: what is known of sizes and rounds; None to derive it from the trace.
        immovable: ids of the handles of variables that may not move because a placed function relies on where they are.

    Returns:
        The graph, nodes in execution order. A called function's ops replace the call; a loop or branch adds the nodes described
        at `placer.graph.op_graph.Role`.
    """
    return _Reader(trace, sizes or KnownSizes(trace), immovable or set()).read()


class _Reader:
    def __init__(self, trace: Trace, sizes: KnownSizes, immovable: set[int]) -> None:
        self.trace = trace
        self.sizes = sizes
        self.kernels = KernelIndex.shared()
        self.builder = GraphBuilder()
        self.signatures = Signatures(sizes.shape_of)
        self.resolver = Resolver()
        self.control_flow = ControlFlow(
            self.builder, self.signatures, self.resolver, self._flatten, sizes.rounds, sizes.seen.weights
        )
        self.inputs = Inputs(trace, self.builder, self.signatures, immovable)
        self.datasets = DatasetBodies(trace, self._shape)
        self.stateful: list[str] = []
        self.notes: list[str] = []

    def read(self) -> OpGraph:
        root, builder = self.trace.root, self.builder
        self._flatten(root, 1.0, [])
        outputs = tuple(self.resolver.source(root, *ref) for ref in root.outputs)
        needed = [n for n, _ in outputs] + self.stateful
        needed += [n for name in root.control_outputs for n in self.resolver.finished(root, name)]
        live = builder.ancestors(needed)
        if self.trace.is_jit_compiled:
            compiled = [name for name, fields in builder.fields.items() if fields["role"] not in ("argument", "capture")]
            for name in compiled:
                builder.groups.join(compiled[0], name, "XLA compiles the function as a whole")
        builder.join_gradients()
        graph, group_reasons = builder.finish(live)
        read = OpGraph(
            name=self.trace.name,
            graph=graph,
            resources=self.inputs.resources,
            group_reasons=group_reasons,
            process_devices=connected_devices(),
            rounds=self.control_flow.rounds.known,
            sizes=self.sizes.of_nodes({path: len(specs) for path, specs in builder.specs.items()}),
            outputs=outputs,
            taken=self.sizes.seen.taken,
            notes=(*self.sizes.notes(self.trace), *self.notes),
            kernel_snapshot=self.kernels.snapshot,
        )
        return replace(read, notes=(*assumption_notes(read), *read.notes))

    def _flatten(self, body: Body, count: float, before: Sequence[str]) -> None:
        """Adds the ops of `body`, each run `count` times a step; its stateful ops wait for the nodes `before`."""
        for name, node in body.nodes.items():
            if name in body.inputs:
                if body.kind == "root":
                    self.inputs.add(name)
                continue
            if name in body.hoisted:
                continue
            children = body.children.get(name)
            waits = [n for i in node.input if i.startswith("^") for n in self.resolver.finished(body, i[1:])]
            if children is None:
                self._add_op(body, name, node, count, [*waits, *before] if before and is_stateful(node.op) else waits)
            elif node.op in LOOPS:
                self.control_flow.add_loop(body, name, node, count, waits)
            elif node.op in BRANCHES:
                self.control_flow.add_branches(body, name, node, count, waits)
            else:
                self._flatten(children[0], count, [*waits, *before])
                self.resolver.last_nodes[body.names[name]] = self.resolver.finished_body(children[0])

    def _add_op(self, body: Body, name: str, node: NodeDef, count: float, waits: Sequence[str]) -> None:
        builder, path, op_type = self.builder, body.names[name], node.op
        sources = [self.resolver.source(body, *split_input(i)) for i in node.input if not i.startswith("^")]
        inputs = tuple(builder.specs[n][k] for n, k in sources)
        outputs = tuple(self.signatures.spec(path, k, t) for k, t in enumerate(body.results(name)))
        key, attributes = self.signatures.attributes(node)
        flags = self._flags(body.operations[name], node)
        if "stateful" in flags:
            self.stateful.append(path)
        requested = requested_device(body, node)
        inner: tuple[OpSignature, ...] = ()
        if entry_of(op_type).unseen_code == "python":
            requested = full_name("CPU:0")
            flags.append("unit")
        elif runs_for_each(node.op):
            inner, attributes, key = self._for_each(body, name, attributes)
        elif "f" in node.attr:
            function = readable_function(body.graph, node.attr["f"].func.name)
            if is_compiled(node, function):
                flags.append("unit")
                inner = self._compiled(path, function, [spec.shape for spec in inputs])
        resource = ""
        if any(s.dtype == "resource" for s in outputs) and not any(s.dtype == "resource" for s in inputs):
            # An op that makes a handle has state of its own: a table, an iterator, an anonymous variable.
            resource = path
            self.inputs.resources[path] = Resource(path, op_type, "", 0)
        support = self.kernels.lookup(node)
        builder.add(
            path,
            op_type=op_type,
            signature=self.signatures.signature(op_type, inputs, outputs, attributes, key, inner),
            count=count,
            role="constant" if op_type == "Const" else "op",
            support=support,
            requested=requested,
            planned=planned_by(body, name),
            location=device_with_kernel(requested, support.kernels) if is_of_strategy(body, name) else "",
            resource=resource,
            flags=tuple(flags),
            body=body.frame.path,
        )
        handle_binds = not accepts_remote_handles(op_type)
        for position, source in enumerate(sources):
            builder.edge(source, path, position, handle_binds)
        if waits:
            builder.wait(path, waits)
        if op_type == "Switch":
            builder.groups.join(sources[0][0], path, "TensorFlow runs a Switch where its value comes from")
        if "_class" in node.attr:
            for constraint in node.attr["_class"].list.s:
                other = constraint.decode().removeprefix("loc:@")
                if other in body.names and other != name and other not in body.inputs and other not in body.children:
                    builder.groups.join(path, body.names[other], "they are colocated in the graph")

    def _for_each(self, body: Body, name: str, attributes: Attributes) -> tuple[tuple[OpSignature, ...], Attributes, bytes]:
        """The ops that op `name` runs for each element of a dataset, and its attributes with the number of elements."""
        elements, path = self.datasets.elements_of(body, name), body.names[name]
        rounds = self.sizes.rounds.of_dataset(path, rounds_of(elements))
        reader = InnerOps(path, self.sizes.rounds.of_loop, frozenset({"Const", "Placeholder", "Identity", "NoOp"}))
        inner = tuple(map(self.signatures.of_inner, self.datasets.ops(body, name, reader)))
        return inner, tuple(sorted({**dict(attributes), "rounds": rounds.value}.items())), b""

    def _shape(self, body: Body, name: str, index: int) -> Shape:
        node, output = self.resolver.source(body, name, index)
        return self.builder.specs[node][output].shape

    def _flags(self, op: Any, node: NodeDef) -> list[str]:
        """The flags of an op that follow from its type and attributes, see `OpNode.flags`."""
        flags = ["stateful"] if is_stateful(node.op) else []
        for difference in may_differ(node):
            of_integers = difference in (Difference.DIVISION, Difference.POWER)
            if not of_integers or (op.inputs[0].dtype.is_integer and self._may_fail(op)):
                flags.append(difference.value)
        return flags

    def _may_fail(self, op: Any) -> bool:
        """Whether a division or power of integers in a GPU's memory may have a divisor of zero or a negative exponent."""
        operand = static_value(op.inputs[1])
        if operand is not None and (operand >= 0 if op.type == "Pow" else operand != 0).all():
            return False
        on_gpu = self.kernels.lookup(op.node_def).kernels.get("GPU")
        return on_gpu is not None and not on_gpu.host_inputs  # int32 kernels of a GPU run on the host

    def _compiled(self, path: str, function: Any, given: list[Shape]) -> tuple[OpSignature, ...]:
        """The signatures of the ops in a compiled call; a note says which device scopes inside it have no effect."""
        if function is None:
            return ()
        reader = InnerOps(path, self.sizes.rounds.of_loop)
        ops, _ = reader.read(reader.body_of(function), given)
        if scopes := ", ".join(f"tf.device({scope!r})" for scope in dict.fromkeys(_devices(ops))):
            self.notes.append(f"{path!r}: {scopes} inside it overridden: XLA compiles the call as a whole, for one device.")
        return tuple(map(self.signatures.of_inner, ops))


def _devices(ops: Iterable[InnerOp]) -> Iterator[str]:
    """The devices that ops inside a function ask for."""
    for each in ops:
        if each.op.device:
            yield each.op.device
        yield from _devices(each.inner)
