"""One walk through a trace that carries sizes on, through called functions, loops and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.graph.sizes import Shape, weakest
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body, split_input
from placer.tf.trace.graph_builder import Source as Output
from placer.tf.trace.loop_sizes import LoopVariable, is_invariant, joined, list_after
from placer.tf.trace.op_sizes import NOTHING, OpSizes
from placer.tf.trace.size_rules import HANDLES, is_known, merged

_ATTEMPTS = 4
"""Walks through a loop's body until its sizes hold; before the last one, sizes that do not are left open."""


@dataclass
class SizeWalk(OpSizes):
    """The shapes of all tensors of a trace; see `OpSizes` for its fields."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._walk(self.trace.root)

    def _walk(self, body: Body) -> None:
        for name, node in body.nodes.items():
            if name in body.inputs:
                if body.kind == "root":
                    self._add_input(body, name)
                continue
            if name in body.hoisted:
                continue
            children = body.children.get(name)
            if children is None:
                if self.before is None or body.names[name] in self.shared.open:
                    self._add_op(body, name, node)
            elif node.op in LOOPS:
                self._add_loop(body, name, node)
            elif node.op in BRANCHES:
                self._add_branches(body, name)
            else:
                self._walk(children[0])

    def _add_loop(self, body: Body, name: str, node: NodeDef) -> None:
        cond, inner = body.children[name]
        path = body.names[name]
        operands = [self.resolver.source(body, *split_input(text)) for text in node.input if not text.startswith("^")]
        rounds = self.rounds.of_loop(cond, inner)
        self.sources[path] = weakest([rounds.source, "bound"])
        for j, hoist in enumerate(inner.hoists):
            self.traced[f"{path}/read{j}", 0] = self.traced[f"{path}/in{len(operands) + j}", 0] = hoist.tensor
        variables: dict[int, LoopVariable] = {}
        lists: list[int] = []
        for i, operand in enumerate(operands):
            tensor = inner.input_tensors[i]
            entering, leaving = (f"{path}/in{i}", 0), (f"{path}/out{i}", 0)
            self.traced[entering], self.traced[leaving] = tensor, body.operations[name].outputs[i]
            if tensor.dtype == tf.resource:
                continue
            if tensor.dtype == tf.variant and operand in self.lists.sizes:
                lists.append(i)
                self.lists.sizes[entering] = self.lists.sizes[operand]
                self.value_origins[entering] = self.value_origins.get(operand, NOTHING)
            if is_invariant(inner, i):
                self._pass_on(operand, entering)
                self._pass_on(operand, leaving)
            elif tensor.dtype != tf.variant:
                variables[i] = LoopVariable(self.kind, self.shape(operand), rounds)
        self._settle(path, inner, operands, variables)
        self._walk(cond)
        for i, variable in variables.items():
            result = self.resolver.source(inner, *inner.outputs[i])
            self._pass_through((f"{path}/out{i}", 0), variable.after, (operands[i], result), path, variable.varies)
        for i in lists:
            result, leaving = self.resolver.source(inner, *inner.outputs[i]), (f"{path}/out{i}", 0)
            before, after = self.lists.sizes[operands[i]], self.lists.sizes.get(result)
            if after is not None:
                self.lists.sizes[leaving] = list_after(self.kind, before, after, rounds)
                origins = self._union(self.value_origins, (operands[i], result))
                self.value_origins[leaving] = origins if after.length == before.length else origins | {path}

    def _settle(self, path: str, inner: Body, operands: Sequence[Output], variables: Mapping[int, LoopVariable]) -> None:
        """Walks through a loop's body until the shapes of the loop's variables hold for every round."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            for i, variable in variables.items():
                self._pass_through((f"{path}/in{i}", 0), variable.inside, (operands[i],), path, variable.varies)
            self._walk(inner)
            if not attempts_left:
                return
            held = True
            for i, variable in variables.items():
                result = self.shape(self.resolver.source(inner, *inner.outputs[i]))
                if attempts_left == 1:
                    variable.give_up(result)
                else:
                    held &= variable.settle(result)
            if held and attempts_left > 1:
                return

    def _pass_through(self, output: Output, shape: Shape, of: Sequence[Output], decided_by: str, varies: bool) -> None:
        """Gives an output of a loop or branch a shape.

        Args:
            output: of the loop or branch.
            shape: its shape.
            of: the outputs from whose shapes it follows.
            decided_by: the loop or branch.
            varies: whether it depends on the number of rounds or on the choice as well.
        """
        known = self._known_before(output)
        if is_known(known) or self.traced[output].dtype in HANDLES:
            self.refs.pop(output, None)
            return
        shape = merged(known, shape)
        if self.kind != "exact" and (given := self.override(*output, known)) is not None:
            self.refs[output] = self.scratch.placeholder(self.traced[output], given[0])
            self._decide(output, given[1])
            return
        self.refs[output] = self.scratch.placeholder(self.traced[output], shape)
        origins = self._union(self.origins, of)
        if varies or not origins:
            origins |= {decided_by}
        if is_known(shape) and origins:
            self.origins[output] = origins
        else:
            self._decide(output, "assumed")

    def _add_branches(self, body: Body, name: str) -> None:
        path, children = body.names[name], body.children[name]
        for child in children:
            self._walk(child)
        for k, tensor in enumerate(body.results(name)):
            output = f"{path}/out", k
            self.traced[output] = tensor
            results = [self.resolver.source(child, *child.outputs[k]) for child in children]
            if tensor.dtype in HANDLES:
                continue
            shapes = [self.shape(result) for result in results]
            differ = any(shape != shapes[0] for shape in shapes)
            self.sources[path] = "bound"
            self._pass_through(output, joined(self.kind, shapes), results, path, differ)
