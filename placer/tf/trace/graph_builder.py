"""The OpGraph that is being built: its nodes, edges and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops import Difference, entry_of
from placer.graph.op_graph import OpNode, Role, TensorEdge
from placer.tf.trace.grouping import Groups
from placer.tf.trace.kernels import KernelSupport

PREDICATE = -1
"""`TensorEdge.dst_index` of the edge from a loop's or branch's predicate to the ops that it controls. It is in host memory."""

Source = tuple[str, int]
"""A node of the flattened graph and one of its outputs."""


class GraphBuilder:
    """Nodes in execution order, the edges between them, and the groups of nodes that must share a device."""

    def __init__(self) -> None:
        self.graph = nx.DiGraph()
        self.specs: dict[str, tuple[TensorSpec, ...]] = {}
        """By node: the types of its outputs."""
        self.fields: dict[str, dict[str, Any]] = {}
        """By node: the fields of its `OpNode`, all but its name and group."""
        self.groups = Groups()
        self.next_iterations: dict[str, str] = {}
        """By loop variable: the node whose value it has in the next iteration."""

    def add(
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
        """Adds a node; see `OpNode` for its fields. `planned` is (`planned_by`, `planned_why`)."""
        self.graph.add_node(path)
        self.specs[path] = signature.outputs
        self.fields[path] = {
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

    def edge(self, source: Source, target: str, dst_index: int, handle_binds: bool = True) -> None:
        """Adds a tensor: an output of a node is input `dst_index` of `target`.

        Args:
            source, target, dst_index: the edge.
            handle_binds: whether the reader of a resource handle must be on the handle's device.
        """
        node, src_index = source
        if node == target:
            return
        data = self.graph.get_edge_data(node, target)
        tensor = TensorEdge(src_index, dst_index)
        if data is None:
            self.graph.add_edge(node, target, tensors=(tensor,), control=False)
        else:
            data["tensors"] += (tensor,)
        dtype = self.specs[node][src_index].dtype
        if dst_index != PREDICATE and (dtype == "variant" or (dtype == "resource" and handle_binds)):
            self.groups.join(node, target)

    def wait(self, target: str, sources: Iterable[str]) -> None:
        """Adds a control edge from each of `sources` to `target`."""
        for source in sources:
            if source == target:
                continue
            data = self.graph.get_edge_data(source, target)
            if data is None:
                self.graph.add_edge(source, target, tensors=(), control=True)
            else:
                data["control"] = True

    def control(self, predicate: str, nodes: Iterable[str]) -> None:
        """Adds an edge from a loop's or branch's node to each op of its bodies; constants do not wait for a predicate."""
        for node in nodes:
            if self.fields[node]["role"] != "constant":
                self.edge((predicate, 0), node, PREDICATE)

    def nodes_since(self, count: int) -> list[str]:
        """The nodes that were added after the first `count` ones."""
        return list(self.fields)[count:]

    def join_gradients(self) -> None:
        """Puts ops and their gradients' ops in one group where the gradient reads outputs that only one device understands."""
        for name in [name for name, fields in self.fields.items() if Difference.SAVED in entry_of(fields["op_type"]).differs]:
            stack = [(name, output) for output in range(3, len(self.specs[name]))]
            seen = set(stack)
            while stack:
                source, output = stack.pop()
                for target, data in self.graph.adj[source].items():
                    positions = [edge.dst_index for edge in data["tensors"] if edge.src_index == output and edge.dst_index >= 0]
                    if not positions:
                        continue
                    op_type = self.fields[target]["op_type"]
                    passes_on = entry_of(op_type).passes_on
                    if passes_on or "Grad" in op_type or "Backprop" in op_type:
                        self.groups.join(name, target, "the gradient takes what was saved where it was saved")
                    if not passes_on:
                        continue
                    outputs = len(self.specs[target])
                    passed = {(target, k % outputs) for k in (positions if op_type == "BranchMerge" else range(outputs))}
                    stack += passed - seen
                    seen |= passed

    def ancestors(self, ends: Sequence[str]) -> set[str]:
        """`ends` and all nodes on which one of them depends. TensorFlow's runtime prunes all others."""
        live: set[str] = set()
        stack = list(ends)
        while stack:
            name = stack.pop()
            if name not in live:
                live.add(name)
                stack.extend(self.graph.pred[name])
                if name in self.next_iterations:
                    stack.append(self.next_iterations[name])
        return live

    def finish(self, live: set[str]) -> tuple[nx.DiGraph, dict[str, str]]:
        """The graph with its `OpNode`s, and the reason of each group. A node that is not live runs zero times a step."""
        groups = self.groups.group_of()
        for name, fields in self.fields.items():
            if name not in live:
                fields["count"] = 0.0
            self.graph.nodes[name]["op"] = OpNode(name=name, group=groups.get(name, ""), **fields)
        return self.graph, {group: self.groups.reason(group) for group in dict.fromkeys(groups.values())}
