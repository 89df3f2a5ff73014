"""The ops inside a function that is placed as a whole: their shapes, and how often its loops run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.graph.sizes import Rounds, Shape
from placer.tf._private.definitions import readable_function
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body, is_call, split_input
from placer.tf.trace.body_tree import read_inner
from placer.tf.trace.op_types import functions_of
from placer.tf.trace.scratch_shapes import Ref, ScratchShapes, as_tuple
from placer.tf.trace.size_rules import is_open, merged


class InnerOp(NamedTuple):
    """An op of a function, with the shapes of its inputs and outputs."""

    op: Any
    inputs: list[Shape]
    outputs: list[Shape]
    rounds: int = 0
    """Of a loop: how often the ops of `inner` run."""
    inner: tuple[InnerOp, ...] = ()
    """Of a loop: the ops of its condition and body."""


@dataclass
class InnerOps:
    """Reads functions that are placed as a whole.

    Args:
        path: of the op that runs the functions. Paths of their loops begin with it.
        rounds_of_loop: gives the rounds of a loop, from its condition and its body.
        left_out: op types that are not listed.
    """

    path: str
    rounds_of_loop: Callable[[Body, Body], Rounds]
    left_out: frozenset[str] = frozenset({"Const", "Placeholder"})
    _bodies: dict[str, Body] = field(default_factory=dict)

    def body_of(self, function: Any) -> Body:
        """The bodies of a function."""
        if function.name not in self._bodies:
            self._bodies[function.name] = read_inner(function, self.path)
        return self._bodies[function.name]

    def read(self, body: Body, shapes: Sequence[Shape]) -> tuple[list[InnerOp], list[Shape]]:
        """The ops of a body and of those that it calls, without the calls, and the shapes of its results.

        Args:
            body: see `body_of`.
            shapes: of its inputs, as far as they are better known than in the trace; there may be fewer than inputs.
        """
        scratch = ScratchShapes(body.graph.graph_def_versions) if _has_open(body) else _StatedShapes()
        refs: dict[tuple[str, int], Ref] = {}
        listed: list[tuple[Any, list[Ref], list[Ref]] | InnerOp] = []
        for name, node in body.nodes.items():
            position, outputs = body.inputs.get(name), list(body.operations[name].outputs)
            known: Sequence[Shape] = [as_tuple(tensor.shape) for tensor in outputs]
            if position is not None:
                given_shape = shapes[position] if position < len(shapes) else None
                refs[name, 0] = scratch.placeholder(outputs[0], merged(known[0], given_shape))
                continue
            given = [refs[split_input(text)] for text in node.input if not text.startswith("^")]
            called: list[InnerOp] = []
            if functions_of(node):
                called, results = self._called(body, name, node, [scratch.shape(ref) for ref in given])
                known = [merged(stated, result) for stated, result in zip_longest(known, results)]
            made = scratch.add(node, given, outputs, known)
            refs.update({(name, k): ref for k, ref in enumerate(made)})
            listed += called
            if not (node.op in self.left_out or node.op in LOOPS or (called and is_call(node.op))):
                listed.append((body.operations[name], given, made))
        ops = [each if isinstance(each, InnerOp) else _sized(scratch, *each) for each in listed]
        return ops, [scratch.shape(refs[output]) for output in body.outputs]

    def _called(self, body: Body, name: str, node: NodeDef, given: list[Shape]) -> tuple[list[InnerOp], list[Shape]]:
        """The ops that a call, loop, branch or other op with functions runs, and the shapes of its results, [] if not known."""
        children = body.children.get(name, ())
        if node.op in LOOPS and children:
            return self._loop(body, name, given)
        if children:
            of_each = [self.read(child, given[1:] if node.op in BRANCHES else given) for child in children]
            results = of_each[0][1]
            return [op for ops, _ in of_each for op in ops], results if all(other == results for _, other in of_each) else []
        functions = [readable_function(body.graph, each) for each in functions_of(node)]
        known = given if is_call(node.op) else []
        return [op for f in functions if f is not None for op in self.read(self.body_of(f), known)[0]], []

    def _loop(self, body: Body, name: str, given: list[Shape]) -> tuple[list[InnerOp], list[Shape]]:
        cond, inner = body.children[name]
        rounds = self.rounds_of_loop(cond, inner).value
        ops, results = self.read(inner, given)
        if results != given:  # the sizes of some variables change from round to round
            given = [shape if shape == result else None for shape, result in zip(given, results, strict=True)]
            ops, results = self.read(inner, given)
        ops += self.read(cond, given)[0]
        return [InnerOp(body.operations[name], given, results, rounds, tuple(ops))], results


class _StatedShapes:
    """Takes the place of `ScratchShapes` where the trace knows every shape: a tensor is the shape that is stated for it."""

    def placeholder(self, _traced: Any, shape: Shape) -> Any:
        """The input."""
        return shape

    def add(self, _node: NodeDef, _inputs: Sequence[Any], _traced: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
        """The outputs."""
        return list(shapes)

    def shape(self, ref: Any) -> Shape:
        """The shape."""
        known: Shape = ref
        return known


def _has_open(body: Body) -> bool:
    """Whether it matters that the trace does not know the shape of some tensor of a body."""
    operations = (body.operations[name] for name in body.nodes)
    return any(is_open(op.type, tensor, as_tuple(tensor.shape)) for op in operations for tensor in op.outputs)


def _sized(scratch: ScratchShapes | _StatedShapes, op: Any, given: Sequence[Ref], made: Sequence[Ref]) -> InnerOp:
    return InnerOp(op, list(map(scratch.shape, given)), list(map(scratch.shape, made)))
