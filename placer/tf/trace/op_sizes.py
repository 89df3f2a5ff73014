"""Carries sizes on from the inputs of ops to their outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from cost_models.base import OpSignature, TensorSpec
from placer.graph.sizes import Rounds, Shape, Source, weakest
from placer.tf.trace.bodies import Body, split_input
from placer.tf.trace.dataset_bodies import READS_ALL, DatasetBodies
from placer.tf.trace.graph_builder import Source as Output
from placer.tf.trace.loop_sizes import Kind
from placer.tf.trace.monotone import LIMITING, is_falling, is_monotone, is_nonnegative, largest_value, may_decide_size
from placer.tf.trace.partitions import Partitions
from placer.tf.trace.resolving import Resolver
from placer.tf.trace.rounds import LoopRounds
from placer.tf.trace.scratch_shapes import Ref, ScratchShapes, as_tuple, has_few, may_be_size, small_value
from placer.tf.trace.signatures import Signatures
from placer.tf.trace.size_rules import (
    HANDLES,
    LABELLING,
    TensorLists,
    bounded_outputs,
    has_rule,
    is_known,
    is_open,
    likely_outputs,
    merged,
    said_size,
    says_sizes,
)
from placer.tf.trace.tracing import Trace

Override: TypeAlias = Callable[[str, int, Shape], tuple[Shape, Source] | None]
"""By node, output and what is known of its shape: a shape that a run had or that the user says, and which of the two."""

_MAX_DEPTH = 50
"""Ops in a row that are looked back along for a value."""
NOTHING: frozenset[str] = frozenset()


@dataclass
class _Shared:
    """What all walks through a trace share."""

    traced: dict[Output, Any] = field(default_factory=dict)
    """By node and output: the tensor of the trace."""
    ops: dict[str, tuple[NodeDef, list[Output], list[Any]]] = field(default_factory=dict)
    """By path: an op, its inputs and the tensors that it gives in the trace."""
    partitions: Partitions = field(default_factory=Partitions)
    open: set[str] = field(default_factory=set)
    """Paths of the ops with sizes or values that are not exact, and of those that keep lists."""


@dataclass
class OpSizes:
    """The shapes of the tensors of a trace's ops, which are added in an order in which inputs come first.

    A walk through the trace looks again only at ops whose outputs the walk before does not know, or at values that depend on such
    sizes; for all others it takes over what is known.

    Args:
        trace: what is walked through.
        kind: "exact" for sizes that the arguments' shapes imply, "bound" for upper bounds, "likely" for likely sizes.
        scratch: the graph in which shapes are inferred.
        arguments: shapes of the root's inputs, None for what is known before.
        override: see `Override`.
        rounds: overrides for numbers of rounds.
        before: the walk before; None where the traced shapes are what is known before.
        varying: nodes whose sizes were not the same in all their executions.
    """

    trace: Trace
    kind: Kind
    scratch: ScratchShapes
    arguments: Sequence[Shape]
    override: Override
    rounds_overrides: Mapping[str, Rounds]
    before: OpSizes | None = None
    varying: frozenset[str] = NOTHING
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
        self.rounds = LoopRounds(self.rounds_overrides, self._value_for_rounds, self.kind != "likely")
        self._signatures = Signatures(None)
        self._datasets = DatasetBodies(self.trace, self._shape_in)
        self._boundary: dict[Output, Ref] = {}
        self._depth = 0
        self._nonnegative: set[Output] = set()
        """Outputs whose values follow from sizes and are not negative."""
        self.shared: _Shared = _Shared() if self.before is None else self.before.shared
        self.traced = self.shared.traced

    def shape(self, output: Output) -> Shape:
        """What this walk knows of a tensor's shape."""
        ref = self.refs.get(output)
        return self._known_before(output) if ref is None else merged(self.scratch.shape(ref), self._known_before(output))

    def origins_of_inputs(self, path: str) -> frozenset[str]:
        """The nodes on whose undecided sizes the shapes of an op's inputs depend; none for a loop's or branch's value."""
        return self._union(self.origins, self.shared.ops[path][1]) if path in self.shared.ops else NOTHING

    def _known_before(self, output: Output) -> Shape:
        if self.before is not None:
            return self.before.shape(output)
        return as_tuple(self.traced[output].shape)

    def _shape_in(self, body: Body, name: str, index: int) -> Shape:
        output = self.resolver.source(body, name, index)
        return self.shape(output) if output in self.traced else None

    def _add_input(self, body: Body, name: str) -> None:
        position, output = body.inputs[name], (body.names[name], 0)
        self.traced[output] = tensor = body.input_tensors[position]
        shape = self.arguments[position] if position < len(self.arguments) else None
        known = self._known_before(output)
        if is_known(known) or tensor.dtype in HANDLES:
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
        known = self.shared.ops.get(path)
        if known is None:
            inputs = [self.resolver.source(body, *split_input(text)) for text in node.input if not text.startswith("^")]
            results = body.results(name)
            self.shared.ops[path] = node, inputs, results
            self.traced.update({(path, k): result for k, result in enumerate(results)})
            self.shared.partitions.note(path, node.op, op, inputs)
        else:
            _, inputs, results = known
        limits = node.op in LIMITING and self._limits_data(node, op, inputs, results)
        if not limits and self._is_closed(inputs, results):
            return
        outputs: list[Output] = [(path, k) for k in range(len(results))]
        before = [self._known_before(output) for output in outputs]
        undecided = [is_open(node.op, result, shape) for result, shape in zip(results, before, strict=True)]
        by_shape = self._union(self.origins, inputs)
        by_value = self._union(self.value_origins, inputs)
        of_values = by_shape if node.op in ("Shape", "ShapeN", "Size") else by_value
        listed = None
        if any(map(_is_variant, results)) or (inputs and inputs[0] in self.lists.sizes):
            of_values = by_shape | by_value  # a list has sizes of tensors
            listed = self.lists.apply(node.op, path, inputs, self.shape, lambda k: self._value(inputs[k]))
            self.shared.open.add(path)
            pushed = self.lists.popped(node.op, inputs)
            if pushed is not None and results[1].dtype not in HANDLES:
                self._pass_on(pushed, outputs[1])
                self.value_origins[outputs[0]] = of_values
                return
        if limits:
            of_values, self.sources[path] = frozenset([path]), "bound"
        if not any(undecided) and (not of_values or not any(map(_may_give_size, results))):
            for output in outputs:
                self.refs.pop(output, None)
            return
        self.shared.open.add(path)
        shapes = [merged(shape, extra) for shape, extra in zip(before, listed or [None] * len(before), strict=True)]
        decided: dict[int, Source] = {}
        if any(undecided):
            for k, (shape, source) in self._decided_outputs(path, node, op, inputs, results, shapes).items():
                if undecided[k]:
                    shapes[k], decided[k] = shape, source
            if node.op == READS_ALL:
                state, source = self._datasets.state_after(body, name)
                for k, shape in enumerate(state):
                    if undecided[k] and is_known(shape) and (self.kind == "likely" or source == "exact"):
                        shapes[k], decided[k] = merged(shapes[k], shape), source
        if of_values and self.kind == "bound" and is_nonnegative(node, op, lambda k: inputs[k] in self._nonnegative):
            self._nonnegative.update(outputs)
        bounds = self.kind == "bound" and not (by_value and self._are_certain(by_value))
        largest = largest_value(node, op) if bounds or (limits and self.kind != "exact") else None
        if largest is not None and is_known(shapes[0]):
            self.refs[outputs[0]] = self.scratch.constant(np.full(shapes[0], largest, results[0].dtype.as_numpy_dtype))
        else:
            refs = [self._input(node, op, k, inputs) for k in range(len(inputs))]
            self.refs.update(zip(outputs, self.scratch.add(node, refs, results, shapes), strict=True))
        if (saying := says_sizes(node.op, len(outputs))) and any(undecided):
            self._say_sizes(path, saying, self._signature(node, inputs, results, shapes))
        for k, output in enumerate(outputs):
            if of_values:
                self.value_origins[output] = of_values
            if not undecided[k]:
                continue
            if k in decided:
                self._decide(output, decided[k])
            elif by_shape or by_value:
                deciding = [each for position, each in enumerate(inputs) if may_decide_size(node, op, position)]
                self.origins[output] = by_shape | self._union(self.value_origins, deciding) or by_value
            else:
                self._decide(output, "assumed")
        if saying and any(undecided):
            self.sources.setdefault(path, "assumed")  # of a value that says sizes, whatever its own sizes follow from

    def _limits_data(self, node: NodeDef, op: Any, inputs: Sequence[Output], results: Sequence[Any]) -> bool:
        """Whether an op gives a few numbers that data decides and a constant limits."""
        if not may_be_size(results[0]) or not self.value_origins.keys().isdisjoint(inputs):
            return False
        return largest_value(node, op) is not None and small_value(results[0]) is None

    def _is_closed(self, inputs: Sequence[Output], results: Sequence[Any]) -> bool:
        """Whether the trace knows all of an op's results and nothing open goes into it. Most ops are so."""
        if not (self.origins.keys().isdisjoint(inputs) and self.value_origins.keys().isdisjoint(inputs)):
            return False
        return all(tensor.shape.is_fully_defined() and not _is_variant(tensor) for tensor in results)

    def _pass_on(self, source: Output, target: Output) -> None:
        """Makes one output another's tensor, value included."""
        self.refs[target] = self._ref(source)
        for origins in (self.origins, self.value_origins):
            if source in origins:
                origins[target] = origins[source]

    def _say_sizes(self, path: str, saying: range, op: OpSignature) -> None:
        """Gives the outputs that say sizes their value."""
        certain = self.kind == "likely" or (self.kind == "bound" and op.op_type in LABELLING)
        value = said_size(op) if certain else None
        for k in saying:
            self.value_origins[path, k] = frozenset([path])
            if value is not None:
                self.refs[path, k] = self.scratch.constant(value)

    def _union(self, origins: Mapping[Output, frozenset[str]], outputs: Sequence[Output]) -> frozenset[str]:
        return NOTHING.union(*[origins[output] for output in outputs if output in origins])

    def _decided_outputs(
        self, path: str, node: NodeDef, op: Any, inputs: Sequence[Output], results: Sequence[Any], shapes: Sequence[Shape]
    ) -> dict[int, tuple[Shape, Source]]:
        """By output: a shape that is given, or that a rule gives, with its source."""
        if (same := self._with_same_rows(node, inputs)) is not None:
            return {0: (merged(shapes[0], same[0]), same[1])}
        if self.kind == "exact":
            return {}
        given = {k: known for k, shape in enumerate(shapes) if (known := self.override(path, k, shape)) is not None}
        if not has_rule(node.op):
            return given
        rule = bounded_outputs if self.kind == "bound" else likely_outputs
        ruled = rule(self._signature(node, inputs, results, shapes), lambda: self._constants(inputs))
        return {k: (merged(shapes[k], shape), "bound") for k, shape in enumerate(ruled or ())} | given

    def _with_same_rows(self, node: NodeDef, inputs: Sequence[Output]) -> tuple[Shape, Source] | None:
        """The shape of an op with as many rows as a tensor before it, and the source of these; None for any other op."""
        if node.op == "LookupTableFindV2":
            rows_of, shape = inputs[1], self.shape(inputs[1]) if self.shape(inputs[2]) == () else None
        elif (parted := self.shared.partitions.stitched(node.op, inputs)) is not None:
            rows, data, rows_of = self.shape(parted), self.shape(inputs[-1]), parted
            shape = None if rows is None or data is None else (rows[0], *data[1:])
        else:
            return None
        return None if shape is None else (shape, weakest(self.sources[origin] for origin in self.origins.get(rows_of, ())))

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
        origins = self.value_origins.get(output, NOTHING)
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
        if self._are_certain(origins):
            return True
        if not is_monotone(node, op, position):
            return False
        if node.op == "Reshape" and position == 1 and not (len(origins) == 1 and self.origins.get(inputs[0]) == origins):
            # An open dimension is a quotient, which is certain only if both numbers grow with the same size.
            unbounded = any(self.sources[origin] == "assumed" for origin in origins)
            value = None if unbounded else self._value(inputs[1])
            return value is not None and not (value < 0).any()
        return True

    def _are_certain(self, origins: frozenset[str]) -> bool:
        """Whether the sizes of these nodes are given, or are seen and were always the same."""
        return self.varying.isdisjoint(origins) and all(self.sources[origin] in ("given", "seen") for origin in origins)

    def _ref(self, output: Output) -> Ref:
        """The scratch graph's tensor of an output. One that no walk looked at becomes a constant or a placeholder."""
        walk: OpSizes | None = self
        while walk is not None:
            if output in walk.refs:
                return walk.refs[output]
            walk = walk.before
        if output not in self._boundary:
            self._boundary[output] = self._boundary_ref(output)
        return self._boundary[output]

    def _boundary_ref(self, output: Output) -> Ref:
        tensor, made = self.traced[output], self.shared.ops.get(output[0])
        shape = as_tuple(tensor.shape)
        if made is not None and made[0].op == "Const" and has_few(tensor):
            return self.scratch.add(made[0], (), made[2], [shape])[0]
        value = small_value(tensor)
        if value is not None:
            return self.scratch.constant(value)
        if made is not None and self._depth < _MAX_DEPTH and may_be_size(tensor):
            # Its value may follow from values outside of the body that it is in.
            node, inputs, results = made
            self._depth += 1
            refs = self.scratch.add(node, [self._ref(each) for each in inputs], results, [as_tuple(t.shape) for t in results])
            self._depth -= 1
            self._boundary.update({(output[0], k): ref for k, ref in enumerate(refs)})
            return refs[output[1]]
        return self.scratch.placeholder(tensor, shape)


def _is_variant(tensor: Any) -> bool:
    return tensor.dtype is tf.variant


def _may_give_size(tensor: Any) -> bool:
    """Whether a size may follow from the value of a tensor of known shape: not from many fractions, which are data."""
    return not tensor.dtype.is_floating or has_few(tensor)
