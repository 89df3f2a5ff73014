"""Ops that run a function for each element of a dataset: how often, and what the function's ops are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from placer.graph.sizes import Rounds, Shape, weakest
from placer.tf._private.datasets import DatasetSize, dataset_size
from placer.tf._private.definitions import readable_function
from placer.tf._private.func_graphs import external_captures
from placer.tf.trace.bodies import Body, is_call, origin, split_input
from placer.tf.trace.op_types import functions_of
from placer.tf.trace.rounds import ASSUMED_ROUNDS
from placer.tf.trace.scratch_shapes import Ref, ScratchShapes, as_tuple, small_value
from placer.tf.trace.size_rules import merged
from placer.tf.trace.tracing import Argument, Trace

_RUN_FOR_EACH = {"ReduceDataset": "Tstate", "ScanDataset": "Tstate", "MapDataset": "", "ParallelMapDatasetV2": ""}
"""By op type, the attribute with the types of the state that the function is given before the element."""
_SAME_COUNT = ("ScanDataset", "MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset", "ModelDataset")
_NOT_MORE = ("TakeWhileDataset", "FilterDataset")
_SAME_ELEMENTS = ("PrefetchDataset", "OptionsDataset", "ModelDataset", "TakeWhileDataset", "FilterDataset")
READS_ALL = "ReduceDataset"
"""The op type that runs its function for each element of a dataset, until the end, while the op itself runs."""


class SizedOp(NamedTuple):
    """An op of a function, with the shapes of its inputs and outputs."""

    op: Any
    inputs: list[Shape]
    outputs: list[Shape]


def runs_for_each(op_type: str) -> bool:
    """Whether ops of this type run a function for each element of their first input."""
    return op_type in _RUN_FOR_EACH


def run_as_often(body: Body, name: str) -> Iterator[str]:
    """The paths of the ops that run their functions as often as op `name`, which reads what they give."""
    while body.nodes[name].input:
        body, name, _ = origin(body, *split_input(body.nodes[name].input[0]))
        if name in body.inputs or body.nodes[name].op not in (*_SAME_COUNT, "TakeWhileDataset"):
            return
        if runs_for_each(body.nodes[name].op):
            yield body.names[name]


class DatasetBodies:
    """The datasets of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._captures = {inner.op.name: outer for outer, inner in external_captures(trace.root.graph)}

    def elements_of(self, body: Body, name: str) -> DatasetSize:
        """The elements of the dataset that op `name` takes."""
        return self._size(body, *split_input(body.nodes[name].input[0]))

    def ops(self, body: Body, name: str, elements: DatasetSize) -> list[SizedOp]:
        """The ops of the function that op `name` runs for each element."""
        node = body.nodes[name]
        function = readable_function(body.graph, node.attr["f"].func.name)
        if function is None:
            return []
        state = _RUN_FOR_EACH[node.op]
        given = function.graph.inputs[len(node.attr[state].list.type) if state else 0 :]
        return _sized_ops(function.graph, {t.name: shape for t, shape in zip(given, elements.shapes, strict=False)})

    def _size(self, body: Body, name: str, index: int) -> DatasetSize:
        body, name, index = origin(body, name, index)
        node = body.nodes[name]
        if name in body.inputs:
            return self._of_input(body, name) or DatasetSize(None, (), "assumed")
        if not node.input:
            return DatasetSize(None, (), "assumed")
        first = split_input(node.input[0])
        if node.op in _SAME_COUNT or node.op in _NOT_MORE:
            size = self._size(body, *first)
            count = size.elements
            if count is not None and node.op in _NOT_MORE:
                count = Rounds(count.value, weakest([count.source, "bound"]))
            return DatasetSize(count, size.shapes if node.op in _SAME_ELEMENTS else _stated(node), size.source)
        return DatasetSize(self._counted(body, name), _stated(node), "assumed")

    def _of_input(self, body: Body, name: str) -> DatasetSize | None:
        if body.kind != "root":
            return None
        if name in self._captures:
            captured = self._captures[name]
            return dataset_size(captured) if isinstance(captured, tf.__internal__.EagerTensor) else None
        position = body.inputs[name]
        value = self._trace.arguments[position] if position < len(self._trace.arguments) else None
        return value.dataset if isinstance(value, Argument) else None

    @staticmethod
    def _counted(body: Body, name: str) -> Rounds | None:
        """The elements of a range whose limits are constants."""
        op = body.operations[name]
        if op.type != "RangeDataset":
            return None
        numbers = [small_value(tensor) for tensor in op.inputs[:3]]
        if any(number is None for number in numbers):
            return None
        start, stop, step = (int(number) for number in numbers)
        return Rounds(len(range(start, stop, step)), "exact") if step else None


def rounds_of(elements: DatasetSize) -> Rounds:
    """How often a function runs for each of these elements."""
    return elements.elements or Rounds(ASSUMED_ROUNDS, "assumed")


def _stated(node: Any) -> tuple[Shape, ...]:
    return tuple(as_tuple(tf.TensorShape(shape)) for shape in node.attr["output_shapes"].list.shape)


def _sized_ops(graph: Any, inputs: Mapping[str, Shape]) -> list[SizedOp]:
    """The ops of a function and of those that it calls, without constants, inputs and the calls.

    Args:
        graph: of the function.
        inputs: by tensor, shapes of its inputs that are better known than in the graph.
    """
    scratch = ScratchShapes(graph.graph_def_versions)
    refs: dict[str, Ref] = {}
    ops: list[SizedOp] = []
    for op in graph.get_operations():
        if op.type == "Placeholder":
            [tensor] = op.outputs
            refs[tensor.name] = scratch.placeholder(tensor, merged(as_tuple(tensor.shape), inputs.get(tensor.name)))
            continue
        stated = [as_tuple(t.shape) for t in op.outputs]
        made = scratch.add(op.node_def, [refs[t.name] for t in op.inputs], op.outputs, stated)
        refs.update({t.name: ref for t, ref in zip(op.outputs, made, strict=True)})
        given = [scratch.shape(refs[t.name]) for t in op.inputs]
        called = [g for name in functions_of(op.node_def) if (g := getattr(readable_function(graph, name), "graph", None))]
        for inner in called:
            known = {t.name: shape for t, shape in zip(inner.inputs, given, strict=False)} if is_call(op.type) else {}
            ops += _sized_ops(inner, known)
        if op.type not in ("Const", "NoOp", "Identity") and not (called and is_call(op.type)):
            ops.append(SizedOp(op, given, [scratch.shape(ref) for ref in made]))
    return ops
