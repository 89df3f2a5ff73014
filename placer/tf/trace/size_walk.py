"""One walk through a trace that carries sizes on, through called functions, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import OpSignature, TensorSpec
from placer.graph.sizes import Rounds, Shape, Source, weakest
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body, split_input
from placer.tf.trace.graph_builder import Source as Output
from placer.tf.trace.loop_sizes import Kind, LoopVariable, is_invariant, joined, list_after
from placer.tf.trace.monotone import is_falling, is_monotone, is_nonnegative, remainder_bound
from placer.tf.trace.partitions import Partitions
from placer.tf.trace.resolving import Resolver
from placer.tf.trace.rounds import LoopRounds
from placer.tf.trace.scratch_shapes import Ref, ScratchShapes, as_tuple, may_be_size, small_value
from placer.tf.trace.signatures import Signatures
from placer.tf.trace.size_rules import (
    TensorLists,
    bounded_outputs,
    has_rule,
    is_known,
    is_open,
    likely_outputs,
    likely_value,
    merged,
)
from placer.tf.trace.tracing import Trace

Override: TypeAlias = Callable[[str, int, Shape], tuple[Shape, Source] | None]
"""By node, output and what is known of its shape: a shape that a run had or that the user says, and which of the two."""

_ATTEMPTS = 4
"""Walks through a loop's body until its sizes hold; before the last one, sizes that do not are left open."""
_MAX_DEPTH = 50
"""Ops in a row that are looked back along for a value."""
_NOTHING: frozenset[str] = frozenset()
_HANDLES = (tf.resource, tf.variant)


@dataclass
class SizeWalk:
    """The shapes of a trace's tensors.

    A walk looks again only at ops whose outputs the walk before does not know, or at values that depend on such sizes; for all
    others it takes over what is known.

    Args:
        trace: what is walked through.
        kind: "exact" for sizes that the arguments' shapes imply, "bound" for upper bounds, "likely" for likely sizes.
        scratch: the graph in which shapes are inferred.
        arguments: shapes of the root's inputs, None for what is known before.
        override: see `Override`.
        rounds: overrides for numbers of rounds.
        before: the walk before; None where the traced shapes are what is known before.
    """

    trace: Trace
    kind: Kind
    scratch: ScratchShapes
    arguments: Sequence[Shape]
    override: Override
    rounds_overrides: Mapping[str, Rounds]
    before: SizeWalk | None = None
    traced: dict[Output, Any] = field(default_factory=dict)
    """By node and output: the tensor of the trace."""
    refs: dict[Output, Ref] = field(default_factory=dict)
    """By node and output: the scratch graph's tensor, for what this walk looked at."""
    origins: dict[Output, frozenset[str]] = field(default_factory=dict)
    """By node and output: the nodes on whose undecided sizes its shape depends."""
    value_origins: dict[Output, frozenset[str]] = field(default_factory=dict)
    """The same of its value."""
    sources: dict[str, Source] = field(default_factory=dict)
    """By such a node: the source of its sizes."""

    def __post_init__(self) -> None:
        self.resolver = Resolver()
        self.lists = TensorLists()
        self.rounds = LoopRounds(self.rounds_overrides, self._value_for_rounds)
        self._signatures = Signatures(None)
        self._boundary: dict[Output, Ref] = {}
        self._depth = 0
        self._ops: dict[str, tuple[NodeDef, list[Output], list[Any]]] = {}
        """By path: an op, its inputs and the tensors that it gives in the trace."""
        self._nonnegative: set[Output] = set()
        """Outputs whose values follow from sizes and are not negative."""
        self._partitions = Partitions()
        self._walk(self.trace.root)

    def shape(self, output: Output) -> Shape:
        """What this walk knows of a tensor's shape."""
        ref = self.refs.get(output)
        return self._known_before(output) if ref is None else merged(self.scratch.shape(ref), self._known_before(output))

    def _known_before(self, output: Output) -> Shape:
        if self.before is not None:
            return self.before.shape(output)
        return as_tuple(self.traced[output].shape)

    # -- ops -------------------------------------------------------------------------------------------------------

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
                self._add_op(body, name, node)
            elif node.op in LOOPS:
                self._add_loop(body, name, node)
            elif node.op in BRANCHES:
                self._add_branches(body, name)
            else:
                self._walk(children[0])

    def _add_input(self, body: Body, name: str) -> None:
        position, output = body.inputs[name], (body.names[name], 0)
        self.traced[output] = tensor = body.input_tensors[position]
        shape = self.arguments[position] if position < len(self.arguments) else None
        known = self._known_before(output)
        if is_known(known) or tensor.dtype in _HANDLES:
            return
        given = self.override(*output, merged(known, shape)) if self.kind != "exact" else None
        self.refs[output] = self.scratch.placeholder(tensor, given[0] if given else merged(known, shape))
        self._decide(output, given[1] if given else "assumed")

    def _decide(self, output: Output, source: Source) -> None:
        """Notes that the size of an output follows from nothing before it."""
        self.origins[output] = frozenset([output[0]])
        self.sources[output[0]] = weakest([source, self.sources.get(output[0], "exact")])

    def _add_op(self, body: Body, name: str, node: NodeDef) -> None:
        path, op = body.names[name], body.operations[name]
        inputs = [self.resolver.source(body, *split_input(text)) for text in node.input if not text.startswith("^")]
        results = body.results(name)
        outputs: list[Output] = [(path, k) for k in range(len(results))]
        self.traced.update(zip(outputs, results, strict=True))
        self._ops[path] = node, inputs, results
        by_shape = self._union(self.origins, inputs)
        by_value = self._union(self.value_origins, inputs)
        of_values = by_shape if node.op in ("Shape", "ShapeN", "Size") else by_value
        if any(result.dtype == tf.variant for result in results):
            of_values = by_shape | by_value  # a list has sizes of tensors
        self._partitions.note(path, node.op, op, inputs)
        listed = self.lists.apply(node.op, path, inputs, self.shape, lambda k: self._value(inputs[k]))
        before = [self._known_before(output) for output in outputs]
        undecided = [is_open(node.op, result, shape) for result, shape in zip(results, before, strict=True)]
        if not of_values and not any(undecided):
            for output in outputs:
                self.refs.pop(output, None)
            return
        shapes = [merged(shape, extra) for shape, extra in zip(before, listed or [None] * len(before), strict=True)]
        decided: dict[int, Source] = {}
        if any(undecided):
            for k, (shape, source) in self._decided_outputs(path, node, op, inputs, results, shapes).items():
                if undecided[k]:
                    shapes[k], decided[k] = shape, source
        if of_values and is_nonnegative(node, op, lambda k: inputs[k] in self._nonnegative):
            self._nonnegative.update(outputs)
        largest = remainder_bound(node, op) if self.kind == "bound" else None
        if largest is not None and is_known(shapes[0]):
            self.refs[outputs[0]] = self.scratch.constant(np.full(shapes[0], largest, results[0].dtype.as_numpy_dtype))
        else:
            refs = [self._input(node, op, k, inputs) for k in range(len(inputs))]
            self.refs.update(zip(outputs, self.scratch.add(node, refs, results, shapes), strict=True))
        if self.kind == "likely" and any(undecided):
            self._assume_values(path, self._signature(node, inputs, results, shapes))
        for k, output in enumerate(outputs):
            if of_values:
                self.value_origins[output] = of_values
            if not undecided[k]:
                continue
            if k in decided:
                self._decide(output, decided[k])
            elif by_shape or by_value:
                self.origins[output] = by_shape | by_value
            else:
                self._decide(output, "assumed")

    def _assume_values(self, path: str, op: OpSignature) -> None:
        """Gives likely values to outputs that say a size."""
        for k in range(len(op.outputs)):
            if (value := likely_value(op, k)) is not None:
                self.refs[path, k] = self.scratch.constant(value)
                self.value_origins[path, k] = frozenset([path])

    def _union(self, origins: Mapping[Output, frozenset[str]], outputs: Sequence[Output]) -> frozenset[str]:
        found = [origins[output] for output in outputs if output in origins]
        return frozenset().union(*found) if found else _NOTHING

    def _decided_outputs(
        self, path: str, node: NodeDef, op: Any, inputs: Sequence[Output], results: Sequence[Any], shapes: Sequence[Shape]
    ) -> dict[int, tuple[Shape, Source]]:
        """By output: a shape that is given, or that a rule gives, with its source."""
        same = self.shape(inputs[1]) if node.op == "LookupTableFindV2" and self.shape(inputs[2]) == () else None
        follows = self._partitions.stitched(node.op, inputs, self.shape) or same
        if self.kind == "exact" or follows is not None:
            return {} if follows is None else {0: (merged(shapes[0], follows), "bound")}
        given = {k: known for k, shape in enumerate(shapes) if (known := self.override(path, k, shape)) is not None}
        if not has_rule(node.op):
            return given
        rule = bounded_outputs if self.kind == "bound" else likely_outputs
        ruled = rule(self._signature(node, inputs, results, shapes), lambda: self._constants(inputs))
        return {k: (merged(shapes[k], shape), "bound") for k, shape in enumerate(ruled or ())} | given

    def _signature(self, node: NodeDef, inputs: Sequence[Output], results: Sequence[Any], shapes: Sequence[Shape]) -> OpSignature:
        given = tuple(TensorSpec(self.traced[output].dtype.base_dtype.name, self.shape(output)) for output in inputs)
        made = tuple(TensorSpec(t.dtype.base_dtype.name, shape) for t, shape in zip(results, shapes, strict=True))
        key, attributes = self._signatures.attributes(node)
        return self._signatures.signature(node.op, given, made, attributes, key)

    def _constants(self, inputs: Sequence[Output]) -> dict[int, Any]:
        values = {k: self._value(output) for k, output in enumerate(inputs)}
        return {k: value for k, value in values.items() if value is not None}

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, output: Output) -> Any:
        ref = self.refs.get(output)
        return small_value(self.traced[output]) if ref is None else self.scratch.value(ref)

    def _value_for_rounds(self, body: Body, name: str, index: int) -> tuple[Any, Source]:
        output = self.resolver.source(body, name, index)
        if output not in self.traced:
            self.traced[output] = body.operations[name].outputs[index]
        origins = self.value_origins.get(output, _NOTHING)
        value = self._value(output)
        return (None if value is None else np.asarray(value)), weakest(self.sources[origin] for origin in origins)

    def _input(self, node: NodeDef, op: Any, position: int, inputs: Sequence[Output]) -> Ref:
        """The scratch graph's tensor for an op's input, without its value where no bound would follow from that."""
        output = inputs[position]
        ref = self._ref(output)
        if self.kind != "bound" or output not in self.value_origins or self._gives_bound(node, op, position, inputs):
            return ref
        if is_falling(node, position) and output in self._nonnegative and (value := self._value(output)) is not None:
            return self.scratch.constant(np.zeros_like(value))
        return self.scratch.hidden(ref, self.traced[output].dtype)

    def _gives_bound(self, node: NodeDef, op: Any, position: int, inputs: Sequence[Output]) -> bool:
        """Whether a bound of this input gives bounds of the outputs."""
        origins = self.value_origins[inputs[position]]
        if all(self.sources[origin] in ("given", "seen") for origin in origins):
            return True
        if not is_monotone(node, op, position):
            return False
        if node.op == "Reshape" and position == 1:
            value = self._value(inputs[1])
            if value is None or (value < 0).any():
                # The open dimension is a quotient, which is certain only if both numbers grow with the same size.
                return len(origins) == 1 and self.origins.get(inputs[0]) == origins
        return True

    def _ref(self, output: Output) -> Ref:
        """The scratch graph's tensor of an output. One that no walk looked at becomes a constant or a placeholder."""
        walk: SizeWalk | None = self
        while walk is not None:
            if output in walk.refs:
                return walk.refs[output]
            walk = walk.before
        if output not in self._boundary:
            self._boundary[output] = self._boundary_ref(output)
        return self._boundary[output]

    def _boundary_ref(self, output: Output) -> Ref:
        tensor = self.traced[output]
        value, shape = small_value(tensor), as_tuple(tensor.shape)
        if value is not None:
            return self.scratch.constant(value)
        made = self._ops.get(output[0])
        if made is not None and self._depth < _MAX_DEPTH and may_be_size(tensor):
            # Its value may follow from values outside of the body that it is in.
            node, inputs, results = made
            self._depth += 1
            refs = self.scratch.add(node, [self._ref(each) for each in inputs], results, [as_tuple(t.shape) for t in results])
            self._depth -= 1
            self._boundary.update({(output[0], k): ref for k, ref in enumerate(refs)})
            return refs[output[1]]
        return self.scratch.placeholder(tensor, shape)

    # -- loops and branches ----------------------------------------------------------------------------------------

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
                self.value_origins[entering] = self.value_origins.get(operand, _NOTHING)
            if is_invariant(inner, i):
                self._pass_on(operand, entering)
                self._pass_on(operand, leaving)
            elif tensor.dtype != tf.variant:
                variables[i] = LoopVariable(self.kind, self.shape(operand), rounds)
        self._settle(path, inner, operands, variables)
        self._walk(cond)
        for i, variable in variables.items():
            result = self.resolver.source(inner, *inner.outputs[i])
            self._pass_through((f"{path}/out{i}", 0), variable.after, (operands[i], result), path, bool(variable.change))
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
                self._pass_through((f"{path}/in{i}", 0), variable.inside, (operands[i],), path, bool(variable.change))
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

    def _pass_on(self, source: Output, target: Output) -> None:
        """Makes one output another's tensor, value included."""
        self.refs[target] = self._ref(source)
        for origins in (self.origins, self.value_origins):
            if source in origins:
                origins[target] = origins[source]

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
        if is_known(known) or self.traced[output].dtype in _HANDLES:
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
            if tensor.dtype in _HANDLES:
                continue
            shapes = [self.shape(result) for result in results]
            differ = any(shape != shapes[0] for shape in shapes)
            self.sources[path] = "bound"
            self._pass_through(output, joined(self.kind, shapes), results, path, differ)
