"""The bodies of a traced function: the function itself, and every function, loop and branch that it calls.

A body only refers to TensorFlow's own graph, which must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.ops import types_where
from placer.errors import TraceError
from placer.tf._private.func_graphs import made_by_strategy, registered
from placer.tf.trace.op_types import names_function

CALLS = types_where(lambda entry: entry.control == "call")
LOOPS = types_where(lambda entry: entry.control == "loop")
BRANCHES = types_where(lambda entry: entry.control == "branch")

BodyKind = Literal["root", "call", "cond", "body", "branch"]


@dataclass(frozen=True, eq=False)
class Hoist:
    """A variable that a loop's body reads and that nothing in the loop writes: it can be read once, before the loop."""

    handle: tuple[str, int]
    """Op and output of the loop's parent body that gives the handle."""
    reader: Body
    read: str
    """One of the reads: an op of `reader`."""

    @property
    def tensor(self) -> Any:
        """The value read."""
        return self.reader.operations[self.read].outputs[0]


@dataclass(eq=False, repr=False)
class Body:
    """One graph of the trace at one call site. A function that is called from two sites has two bodies.

    A *frame* is a body that remains a graph of its own when the function is rebuilt: the root, and loops and branches. Called
    functions are inlined into the frame around them.
    """

    path: str
    kind: BodyKind
    function: Any
    parent: Body | None
    site: str
    """The op in `parent` that calls this body."""
    nodes: dict[str, NodeDef] = field(init=False)
    """By op name, in an order in which inputs come first."""
    names: dict[str, str] = field(default_factory=dict)
    """Path of each op, unique in the trace."""
    children: dict[str, tuple[Body, ...]] = field(default_factory=dict)
    """By the op that calls them: one body for a call, condition and body for a loop, one body for each branch."""
    hoists: list[Hoist] = field(default_factory=list)
    """Of a loop body: the variables whose values the loop could be given instead of their handles."""
    hoisted: dict[str, int] = field(default_factory=dict)
    """By read of this body that a hoist of its frame replaces: the hoist's position in the frame's `hoists`."""
    outer_scope: str = ""
    """Of a root: the device scope around the call that traced it."""
    input_tensors: tuple[Any, ...] = field(init=False)
    inputs: dict[str, int] = field(init=False)
    """Position of each input op."""
    output_tensors: tuple[Any, ...] = field(init=False)
    outputs: list[tuple[str, int]] = field(init=False)
    """Op name and output index of each result."""
    control_outputs: list[str] = field(init=False)
    attributes: dict[str, AttrValue] = field(init=False)
    """Those that the function is registered with."""
    operations: dict[str, Any] = field(init=False)
    """TensorFlow's own op objects, by name."""

    def __post_init__(self) -> None:
        # TensorFlow adds to these graphs when a gradient of the plain function is taken. A trace has what was there before.
        nodes, inputs, outputs, self.attributes = registered(self.function)
        self.nodes = _topological(nodes)
        self.input_tensors = tuple(self.graph.inputs[:inputs])
        self.inputs = {t.op.name: i for i, t in enumerate(self.input_tensors)}
        self.output_tensors = tuple(self.graph.outputs[:outputs])
        self.outputs = [(t.op.name, t.value_index) for t in self.output_tensors]
        self.control_outputs = [op.name for op in self.graph.control_outputs]
        self.operations = {op.name: op for op in self.graph.get_operations() if op.name in nodes}

    @property
    def graph(self) -> Any:
        """The function's FuncGraph."""
        return self.function.graph

    def results(self, name: str) -> list[Any]:
        """The output tensors of op `name`."""
        node = self.nodes[name]
        types = "T" if node.op in LOOPS else "Tout" if node.op in CALLS or node.op in BRANCHES else ""
        outputs: list[Any] = self.operations[name].outputs
        return outputs[: len(node.attr[types].list.type)] if types else outputs

    @property
    def frame(self) -> Body:
        return self.parent.frame if self.kind == "call" and self.parent is not None else self

    @property
    def loop_body(self) -> Body:
        """Of a loop's condition or body: the loop's body."""
        assert self.parent is not None
        return self.parent.children[self.site][1]

    def walk(self) -> Iterator[Body]:
        """This body and all bodies below it, callers first."""
        yield self
        for bodies in self.children.values():
            for child in bodies:
                yield from child.walk()

    def inlined(self) -> Iterator[Body]:
        """This body and every called function that becomes part of it."""
        yield self
        for bodies in self.children.values():
            if bodies[0].kind == "call":
                yield from bodies[0].inlined()

    @cached_property
    def scope(self) -> str:
        """The device that the callers request. When TensorFlow inlines a body, ops without a device get this one."""
        if self.parent is None:
            return self.outer_scope
        return merged_device(self.parent.nodes[self.site].device, self.parent.scope)

    @cached_property
    def is_of_strategy(self) -> bool:
        """Whether a distribution strategy calls it, or calls a function that does."""
        if self.parent is None:
            return False
        return self.parent.is_of_strategy or made_by_strategy(self.parent.operations[self.site])

    @cached_property
    def operands(self) -> list[tuple[str, int]]:
        """What the calling op passes to this body's inputs, as (op, output) of the parent."""
        assert self.parent is not None
        node = self.parent.nodes[self.site]
        inputs = [split_input(i) for i in node.input if not i.startswith("^")]
        return inputs[1:] if self.kind == "branch" else inputs


def is_call(op_type: str) -> bool:
    """Whether an op calls one function and does nothing else."""
    return op_type in CALLS or names_function(op_type)


@cache
def merged_device(device: str, scope: str) -> str:
    """The device that an op requests inside a scope: its own device string, completed by the parts of `scope` that it omits."""
    if not device or not scope:
        return device or scope
    inner, outer = map(tf.DeviceSpec.from_string, (device, scope))
    return str(outer.make_merged_spec(inner).to_string())


def split_input(text: str) -> tuple[str, int]:
    """A NodeDef's input as (op name, output index)."""
    name, _, index = text.partition(":")
    return name, int(index) if index else 0


def input_op(text: str) -> str:
    """The op of a NodeDef's input, which may be a control edge."""
    return text[1:] if text[0] == "^" else text.partition(":")[0]


def input_text(name: str, index: int) -> str:
    """Output `index` of op `name` as a NodeDef writes it among its inputs."""
    return name if index == 0 else f"{name}:{index}"


def origin(body: Body, name: str, index: int) -> tuple[Body, str, int]:
    """The body, op and output that make the value of output `index` of op `name`, through inputs of bodies and calls."""
    while True:
        if name in body.inputs and body.parent is not None:
            name, index = body.operands[body.inputs[name]]
            body = body.parent
        elif name in body.children and body.children[name][0].kind == "call":
            body = body.children[name][0]
            name, index = body.outputs[index]
        else:
            return body, name, index


def is_compiled(node: NodeDef, function: Any = None) -> bool:
    """Whether XLA compiles a call as a whole, so that it cannot be split."""
    if "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b:
        return True
    attributes = getattr(function, "attributes", None) or {}
    return "_XlaMustCompile" in attributes and bool(attributes["_XlaMustCompile"].b)


def _topological(nodes: dict[str, NodeDef]) -> dict[str, NodeDef]:
    """`nodes` in an order in which inputs come first, changed as little as possible.

    The order of creation is almost always such an order, but taking a loop's gradient adds inputs to ops made earlier.
    """
    seen: set[str] = set()
    for name, node in nodes.items():
        if not seen.issuperset(map(input_op, node.input)):
            break
        seen.add(name)
    else:
        return nodes
    done: dict[str, NodeDef] = {}
    path: set[str] = set()
    for start in nodes:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in done:
                stack.pop()
                continue
            missing = [s for s in map(input_op, nodes[name].input) if s not in done]
            if not path.isdisjoint(missing):
                raise TraceError(f"{name!r} depends on itself: its loop is TensorFlow 1 control flow, which cannot be planned")
            if missing:
                path.add(name)
                stack.extend(reversed(missing))
            else:
                done[name] = nodes[name]
                path.discard(name)
                stack.pop()
    return done
