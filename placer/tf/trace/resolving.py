"""From ops of a body to nodes of the flattened graph."""

from __future__ import annotations

import tensorflow as tf

from placer.tf.trace.bodies import Body
from placer.tf.trace.graph_builder import Source


class Resolver:
    """Finds the nodes that give a value, and the nodes that a control edge waits for."""

    def __init__(self) -> None:
        self.last_nodes: dict[str, list[str]] = {}
        """By path of an inlined call, a loop or a branch: the nodes that a control edge from it waits for."""

    def source(self, body: Body, name: str, index: int) -> Source:
        """The flattened graph's node and output that give output `index` of op `name` in `body`."""
        while True:
            position = body.inputs.get(name)
            if position is not None:
                if body.parent is None:
                    return body.names[name], 0
                if body.kind in ("cond", "body") and body.input_tensors[position].dtype != tf.resource:
                    return f"{body.parent.names[body.site]}/in{position}", 0
                name, index = body.operands[position]
                body = body.parent
                continue
            children = body.children.get(name)
            if name in body.hoisted:
                loop = body.frame
                assert loop.parent is not None
                return f"{loop.parent.names[loop.site]}/in{len(loop.operands) + body.hoisted[name]}", 0
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
                name, index = children[1].operands[index]
                continue
            return f"{body.names[name]}/out{index}", 0

    def finished(self, body: Body, name: str) -> list[str]:
        """The nodes after which op `name` of `body` has finished."""
        if name in body.inputs or name in body.hoisted:
            return [self.source(body, name, 0)[0]]
        path = body.names[name]
        return self.last_nodes.get(path, [path])

    def finished_body(self, body: Body) -> list[str]:
        """The nodes after which the control outputs of `body` have finished."""
        return list(dict.fromkeys(n for name in body.control_outputs for n in self.finished(body, name)))
