"""Reads of variables that can be done once before a loop instead of in each iteration."""

from __future__ import annotations

import tensorflow as tf

from cost_models.ops import entry_of
from placer.tf.trace.bodies import Body, Hoist, split_input
from placer.tf.trace.op_types import runs_unseen_code


def find_hoists(cond: Body, inner: Body) -> None:
    """Records in a loop's bodies the reads that can be done before the loop.

    There are none where code that is in no graph, such as a Python callback, may write the variable.

    Args:
        cond: the loop's condition.
        inner: the loop's body; it gets the hoists.
    """
    written: set[tuple[str, int]] = set()
    reads: list[tuple[tuple[str, int], Body, str]] = []
    members = set(map(id, inner.inlined()))
    for body in [*cond.walk(), *inner.walk()]:
        for name, node in body.nodes.items():
            if name in body.inputs or name in body.children:
                continue
            if runs_unseen_code(node.op):
                return
            for position, tensor in enumerate(body.operations[name].inputs):
                if tensor.dtype != tf.resource:
                    continue
                handle = _outside(body, *split_input(node.input[position]), inner.parent)
                if handle is None:
                    continue
                if not entry_of(node.op).reads:
                    written.add(handle)
                elif entry_of(node.op).reads == "value" and id(body) in members:
                    reads.append((handle, body, name))
    positions: dict[tuple[str, int], int] = {}
    for handle, body, name in reads:
        if handle not in written:
            if handle not in positions:
                positions[handle] = len(inner.hoists)
                inner.hoists.append(Hoist(handle, body, name))
            body.hoisted[name] = positions[handle]


def _outside(body: Body, name: str, index: int, parent: Body | None) -> tuple[str, int] | None:
    """The op and output of `parent` that give the value of output `index` of op `name`; None if it is made inside the loop."""
    while body is not parent:
        if name in body.inputs:
            name, index = body.operands[body.inputs[name]]
            if body.parent is None:
                return None
            body = body.parent
        elif name in body.children and body.children[name][0].kind == "call":
            body = body.children[name][0]
            name, index = body.outputs[index]
        else:
            return None
    return name, index
