"""The NodeDefs of one new graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf.trace.bodies import input_op, input_text
from placer.tf.trace.op_types import is_stateful

_KEPT = "_grappler_do_not_remove"


class FrameNodes:
    """The nodes that replace a frame's ops and those of the functions it calls, in order, with the nodes between them.

    Args:
        taken: names that no added node may have.
    """

    def __init__(self, taken: set[str]) -> None:
        self.nodes: list[NodeDef] = []
        self.devices: dict[str, str] = {}
        """By node: the device that its outputs are on."""
        self.copied: dict[str, NodeDef] = {}
        """By name: the nodes that are copies of the trace's ops."""
        self._taken = taken

    def free_name(self, name: str) -> str:
        """Reserves a name that begins with `name` and that no other node has."""
        name = unlike(self._taken, name)
        self._taken.add(name)
        return name

    def add_identity(self, source: str, index: int, device: str, dtype: tf.DType, name: str, *, keep: bool = False) -> str:
        """Adds a node that passes output `index` of `source` on.

        Args:
            source, index, dtype: the output and its type.
            device: of the new node.
            name: of the new node, if it is free.
            keep: whether TensorFlow's optimisers must leave it as it is.

        Returns:
            The new node's name.
        """
        name = self.free_name(name)
        node = NodeDef(op="Identity", name=name, device=device)
        node.input.append(input_text(source, index))
        node.attr["T"].type = dtype.as_datatype_enum
        if keep:
            keep_node(node)
        self.nodes.append(node)
        return name

    def release_unneeded(self, results: Iterable[str], anything_returned: bool) -> None:
        """Lets Grappler remove kept nodes on which nothing depends, and with them the ops that only lead to them.

        Args:
            results: nodes whose values or completion the graph returns.
            anything_returned: False for a function without results. Grappler does not prune such a function, and a node that is
                not needed would run because it is sent to another device, so unneeded nodes get no device.
        """
        nodes = {node.name: node for node in self.nodes}
        if anything_returned and not any(_KEPT in node.attr for node in self.nodes):
            return
        ends = [*results, *(node.name for node in self.nodes if is_stateful(node.op))]
        needed: set[str] = set()
        while ends:
            name = ends.pop()
            if name in nodes and name not in needed:
                needed.add(name)
                ends += map(input_op, nodes[name].input)
        for name in nodes.keys() - needed:
            nodes[name].attr.pop(_KEPT, None)
            if not anything_returned:
                nodes[name].device = ""


def keep_node(node: NodeDef) -> None:
    """Makes Grappler leave a node as it is: neither removed nor fused."""
    node.attr[_KEPT].b = True


def unlike(taken: Collection[str], name: str) -> str:
    """A name that begins with `name` and is not in `taken`."""
    while name in taken:
        name += "_"
    return name
