"""Ops that run a function for each element of a dataset: how often, and what the function's ops are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from placer.graph.sizes import Rounds, Shape, Source, weakest
from placer.tf._private.datasets import DatasetSize
from placer.tf._private.definitions import readable_function
from placer.tf.trace.bodies import Body, origin, split_input
from placer.tf.trace.inner_ops import InnerOp, InnerOps
from placer.tf.trace.rounds import ASSUMED_ROUNDS, LoopRounds
from placer.tf.trace.scratch_shapes import as_tuple, small_value
from placer.tf.trace.size_rules import merged
from placer.tf.trace.tracing import Argument, Trace

_RUN_FOR_EACH = {"ReduceDataset": "Tstate", "ScanDataset": "Tstate", "MapDataset": "", "ParallelMapDatasetV2": ""}
"""By op type, the attribute with the types of the state that the function is given before the element."""
_SAME_COUNT = ("ScanDataset", "MapDataset", "ParallelMapDatasetV2", "PrefetchDataset", "OptionsDataset", "ModelDataset")
_NOT_MORE = ("TakeWhileDataset", "FilterDataset")
_SAME_ELEMENTS = ("PrefetchDataset", "OptionsDataset", "ModelDataset", "TakeWhileDataset", "FilterDataset")
_ATTEMPTS = 4
"""Elements after which the state of a dataset's function has its last shape, or is taken to change with every element."""
READS_ALL = "ReduceDataset"
"""The op type that runs its function for each element of a dataset, until the end, while the op itself runs."""


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
    """The datasets of a trace.

    Args:
        trace: the trace.
        shape_of: gives what is known of the shape of output `index` of op `name` of a body.
    """

    def __init__(self, trace: Trace, shape_of: Callable[[Body, str, int], Shape]) -> None:
        self._trace = trace
        self._shape_of = shape_of

    def elements_of(self, body: Body, name: str) -> DatasetSize:
        """The elements of the dataset that op `name` takes."""
        return self._size(body, *split_input(body.nodes[name].input[0]))

    def ops(self, body: Body, name: str, reader: InnerOps) -> list[InnerOp]:
        """The ops of the function that op `name` runs for each element, read by `reader`."""
        function = _function_of(body, name)
        if function is None:
            return []
        shapes = self._inputs(body, name, self._state(body, name, reader))
        return reader.read(reader.body_of(function), shapes)[0]

    def state_after(self, body: Body, name: str) -> tuple[list[Shape], Source]:
        """The shapes of the state that op `name` gives after the last element, where they follow, and their source."""
        size = self.elements_of(body, name)
        source = weakest([size.source, size.elements.source if size.elements else "assumed"])
        return self._state(body, name, _reader(body, name)), source

    def _state(self, body: Body, name: str, reader: InnerOps) -> list[Shape]:
        """The shapes of an op's state when they no longer change; None for those that change with every element."""
        function, count = _function_of(body, name), _states(body.nodes[name])
        state = self._given(body, name)[1 : 1 + count]
        if function is None or not state:
            return state
        rounds = rounds_of(self.elements_of(body, name)).value
        before = state
        for _ in range(min(_ATTEMPTS, rounds)):
            before = state
            state = reader.read(reader.body_of(function), self._inputs(body, name, state))[1][:count]
            if state == before:
                return state
        return state if rounds <= _ATTEMPTS else [a if a == b else None for a, b in zip(state, before, strict=True)]

    def _inputs(self, body: Body, name: str, state: Sequence[Shape]) -> list[Shape]:
        """Shapes of the inputs of an op's function: the state, the element, and what the function captures."""
        elements = self.elements_of(body, name).shapes
        return [*state, *elements, *self._given(body, name)[1 + len(state) :]] if elements else list(state)

    def _given(self, body: Body, name: str) -> list[Shape]:
        texts = [text for text in body.nodes[name].input if not text.startswith("^")]
        return [self._shape_of(body, *split_input(text)) for text in texts]

    def _size(self, body: Body, name: str, index: int) -> DatasetSize:
        body, name, index = origin(body, name, index)
        node = body.nodes[name]
        if name in body.inputs:
            return self._of_input(body, name) or DatasetSize(None, (), "assumed")
        if not node.input:
            return DatasetSize(None, (), "assumed")
        if node.op in _SAME_COUNT or node.op in _NOT_MORE:
            size = self._size(body, *split_input(node.input[0]))
            count = size.elements
            if count is not None and node.op in _NOT_MORE:
                count = Rounds(count.value, weakest([count.source, "bound"]))
            return DatasetSize(count, size.shapes if node.op in _SAME_ELEMENTS else self._made(body, name), size.source)
        return DatasetSize(self._counted(body, name), _stated(node), "assumed")

    def _made(self, body: Body, name: str) -> tuple[Shape, ...]:
        """The shapes of the elements that an op makes with its function."""
        stated, function, reader = _stated(body.nodes[name]), _function_of(body, name), _reader(body, name)
        if function is None:
            return stated
        state = self._state(body, name, reader)
        results = reader.read(reader.body_of(function), self._inputs(body, name, state))[1][len(state) :]
        return tuple(map(merged, stated, results)) if len(results) == len(stated) else stated

    def _of_input(self, body: Body, name: str) -> DatasetSize | None:
        if body.kind != "root":
            return None
        if name in self._trace.captured_datasets:
            return self._trace.captured_datasets[name]
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


def _function_of(body: Body, name: str) -> Any:
    return readable_function(body.graph, body.nodes[name].attr["f"].func.name)


def _states(node: Any) -> int:
    """How many tensors of state an op's function is given before the element."""
    attribute = _RUN_FOR_EACH[node.op]
    return len(node.attr[attribute].list.type) if attribute else 0


def _reader(body: Body, name: str) -> InnerOps:
    return InnerOps(body.names[name], LoopRounds().of_loop)
