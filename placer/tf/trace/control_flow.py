"""Loops and branches as nodes of the flattened graph.

A While, If or Case is one op in the traced graph. When TensorFlow lowers it, its values and predicates become ops of their own:
Enter, Merge, Switch, NextIteration and Exit. The nodes that are added here represent them, see `placer.graph.op_graph.Role`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import TensorSpec
from placer.graph.op_graph import Kernel
from placer.tf.trace.bodies import Body, split_input
from placer.tf.trace.graph_builder import GraphBuilder, Source
from placer.tf.trace.kernels import DEVICE_TYPES, KernelIndex, KernelSupport
from placer.tf.trace.requests import planned_by, requested_device
from placer.tf.trace.resolving import Resolver
from placer.tf.trace.rounds import LoopRounds
from placer.tf.trace.signatures import Signatures

HOST_PREDICATE = KernelSupport({"CPU": Kernel(), "GPU": Kernel((0,), (0,))}, {})

Flatten: TypeAlias = Callable[[Body, float, Sequence[str]], None]


@dataclass
class ControlFlow:
    """Adds loops and branches to the flattened graph."""

    builder: GraphBuilder
    signatures: Signatures
    resolver: Resolver
    flatten: Flatten
    """Adds the ops of a body, given how often it runs in a step and the nodes that its stateful ops wait for."""
    rounds: LoopRounds
    weights: Callable[[str, int], Sequence[int]]
    """Gives the weights of a branch's bodies, from its path and their number: each runs that share of the branch's runs."""
    kernels: KernelIndex = field(default_factory=KernelIndex.shared)

    # -- loops -----------------------------------------------------------------------------------------------------

    def add_loop(self, body: Body, name: str, node: NodeDef, count: float, waits: Sequence[str]) -> None:
        """Adds the loop that op `name` of `body` is, with its condition and its body.

        Args:
            body, name, node: the op.
            count: how often it runs in a step.
            waits: the nodes for which it waits.
        """
        builder, resolver = self.builder, self.resolver
        cond, inner = body.children[name]
        path = body.names[name]
        sources = [resolver.source(body, *split_input(i)) for i in node.input if not i.startswith("^")]
        rounds = self.rounds.of_loop(cond, inner).value
        carried = [(i, s) for i, s in enumerate(sources) if builder.specs[s[0]][s[1]].dtype != "resource"]
        for j, hoist in enumerate(inner.hoists):
            handle = resolver.source(body, *hoist.handle)
            self._add_hoisted_read(f"{path}/read{j}", hoist.reader.nodes[hoist.read], handle, hoist.tensor, count, body, waits)
            carried.append((len(sources) + j, (f"{path}/read{j}", 0)))
        for i, source in carried:
            tensor = inner.input_tensors[i] if i < len(sources) else inner.hoists[i - len(sources)].tensor
            spec = self.signatures.spec(f"{path}/in{i}", 0, tensor)
            self._add_loop_value(f"{path}/in{i}", "LoopVariable", "Switch", spec, count * max(rounds, 1), inner)
            builder.edge(source, f"{path}/in{i}", 0)
            builder.wait(f"{path}/in{i}", waits)
        self.flatten(cond, count * (rounds + 1), waits)
        predicate = resolver.source(cond, *self._behind_identities(cond, *cond.outputs[0]))
        boolean = TensorSpec("bool", ())
        builder.add(
            path,
            op_type=node.op,
            signature=self.signatures.signature(node.op, (boolean,), (boolean,)),
            count=count * (rounds + 1),
            role="loop",
            support=HOST_PREDICATE,
            body=inner.path,
        )
        builder.edge(predicate, path, 0)
        builder.wait(path, waits)
        before = len(builder.fields)
        self.flatten(inner, count * rounds, waits)
        for i, _ in carried:
            if i < len(sources):
                result = resolver.source(inner, *inner.outputs[i])
                spec = self.signatures.spec(f"{path}/out{i}", 0, body.operations[name].outputs[i])
            else:
                result = f"{path}/in{i}", 0
                spec = builder.specs[f"{path}/in{i}"][0]
            self._add_loop_value(f"{path}/out{i}", "NextIteration", "NextIteration", spec, count * max(rounds, 1), inner)
            builder.edge(result, f"{path}/out{i}", 0)
            builder.next_iterations[f"{path}/in{i}"] = f"{path}/out{i}"
            builder.groups.join(f"{path}/in{i}", f"{path}/out{i}", f"loop variable {i} of {path} keeps one device")
        builder.control(path, builder.nodes_since(before))
        resolver.last_nodes[path] = [path, *(f"{path}/out{i}" for i, _ in carried), *resolver.finished_body(inner)]

    def _add_hoisted_read(
        self, path: str, node: NodeDef, handle: Source, value: Any, count: float, body: Body, waits: Sequence[str]
    ) -> None:
        """Adds a read of a variable before the loop that repeats it."""
        key, attributes = self.signatures.attributes(node)
        inputs, outputs = (self.builder.specs[handle[0]][handle[1]],), (self.signatures.spec(path, 0, value),)
        self.builder.add(
            path,
            op_type=node.op,
            signature=self.signatures.signature(node.op, inputs, outputs, attributes, key),
            count=count,
            role="op",
            support=self.kernels.lookup(node),
            flags=("stateful",),
            body=body.frame.path,
        )
        self.builder.edge(handle, path, 0)
        self.builder.wait(path, waits)

    def _add_loop_value(self, path: str, op_type: str, kernel: str, spec: TensorSpec, count: float, inner: Body) -> None:
        self.builder.add(
            path,
            op_type=op_type,
            signature=self.signatures.signature(op_type, (spec,), (spec,), (("T", spec.dtype),)),
            count=count,
            role="loop",
            support=self.kernels.lookup_type(kernel, {"T": spec.dtype}),
            body=inner.path,
        )

    def _behind_identities(self, body: Body, name: str, index: int) -> Source:
        """The op that makes a loop's predicate, and its output.

        TensorFlow removes an Identity of the predicate that is on the device of its input, so the two share a group.
        """
        while name in body.nodes and name not in body.inputs:
            node = body.nodes[name]
            if node.op != "Identity":
                break
            requested, maker = requested_device(body, node), body.nodes.get(split_input(node.input[0])[0])
            if requested and (maker is None or requested_device(body, maker) != requested):
                break
            identity, (name, index) = body.names[name], split_input(node.input[0])
            self.builder.groups.join(identity, self.resolver.source(body, name, index)[0], "it hands a loop's predicate on")
        return name, index

    # -- branches --------------------------------------------------------------------------------------------------

    def add_branches(self, body: Body, name: str, node: NodeDef, count: float, waits: Sequence[str]) -> None:
        """Adds the If or Case that op `name` of `body` is, with its branches, each with its share of `count`."""
        builder, resolver, children = self.builder, self.resolver, body.children[name]
        path = body.names[name]
        predicate = resolver.source(body, *split_input(node.input[0]))
        predicate_spec = builder.specs[predicate[0]][predicate[1]]
        builder.add(
            path,
            op_type=node.op,
            signature=self.signatures.signature(node.op, (predicate_spec,), (predicate_spec,)),
            count=count,
            role="branch",
            support=HOST_PREDICATE,
            requested=requested_device(body, node),
            planned=planned_by(body, name),
            body=body.frame.path,
        )
        builder.edge(predicate, path, 0)
        builder.wait(path, waits)
        merge = f"{path}/out"
        results: list[tuple[Source, int]] = []
        last_nodes: list[str] = []
        weights = self.weights(path, len(children))
        for child, weight in zip(children, weights, strict=True):
            before = len(builder.fields)
            self.flatten(child, count * weight / sum(weights), waits)
            builder.control(path, builder.nodes_since(before))
            results += [(resolver.source(child, *ref), k) for k, ref in enumerate(child.outputs)]
            last_nodes += resolver.finished_body(child)
        outputs = tuple(self.signatures.spec(merge, k, t) for k, t in enumerate(body.results(name)))
        builder.add(
            merge,
            op_type="BranchMerge",
            signature=self.signatures.signature("BranchMerge", tuple(outputs[k] for _, k in results), outputs),
            count=count,
            role="branch",
            support=self._merge_support(outputs, [k for _, k in results]),
            body=body.frame.path,
        )
        builder.groups.join(path, merge, f"the results of {path} come together on its device")
        builder.control(path, [merge])
        for position, (source, _) in enumerate(results):
            builder.edge(source, merge, position)
        resolver.last_nodes[path] = [merge, *last_nodes]

    def _merge_support(self, outputs: Sequence[TensorSpec], result_of_input: Sequence[int]) -> KernelSupport:
        """Kernels of the Merge ops that a branch's results become, as if they were one op."""
        each = [self.kernels.lookup_type("Merge", {"T": s.dtype}) for s in outputs]
        kernels = {}
        for kind in DEVICE_TYPES:
            if all(kind in s.kernels for s in each):
                host = {k for k, s in enumerate(each) if 0 in s.kernels[kind].host_outputs}
                inputs = tuple(i for i, k in enumerate(result_of_input) if k in host)
                kernels[kind] = Kernel(inputs, tuple(sorted(host)))
        refusals = {kind: s.refusals[kind] for s in each for kind in s.refusals if kind not in kernels}
        return KernelSupport(kernels, refusals)
