"""Reports of a run: ops in a private copy that add up sizes, rounds of loops, branches taken and elements of datasets.

The reports are numbers in one variable on the host. At each execution, a frame of the copy adds 1 and the shapes of its open
outputs to its own numbers, and keeps the largest shapes. The frame's own ops, their inputs and their order stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from placer.graph.seen import Seen, SeenShape
from placer.tf._private.func_graphs import FuncGraph, add_function, library_function, unique_id
from placer.tf._private.functions import register_body
from placer.tf._private.handles import copy_handle_data
from placer.tf.devices import full_name
from placer.tf.rewrite.copying import Copy
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body
from placer.tf.trace.dataset_bodies import READS_ALL, run_as_often
from placer.tf.trace.tracing import Trace

_HOST = "CPU:0"
MAX_RANK = 8
"""The most dimensions that are reported of a tensor of unknown rank."""

Output = tuple[str, int]


@dataclass(frozen=True)
class _Counter:
    """The numbers of one frame: its executions and the sums of its outputs' shapes, then the largest of all these numbers."""

    start: int
    """The position of the first number in the variable."""
    outputs: list[tuple[Output, int | None]]
    """The open outputs, each with its rank; None for an unknown rank, which is reported first, before `MAX_RANK` dimensions."""

    @property
    def length(self) -> int:
        """How many numbers the sums are, and how many the largest."""
        return 1 + sum(1 + MAX_RANK if rank is None else rank for _, rank in self.outputs)


class Reports:
    """What a copy of a trace reports.

    Args:
        trace: what is copied.
        outputs: open outputs, as `KnownSizes.open_outputs` gives them.
    """

    def __init__(self, trace: Trace, outputs: Iterable[Output]) -> None:
        self._trace = trace
        self._variable = f"placer_reports_{unique_id()}"
        self._length = 0
        """The numbers of all frames."""
        self._counters: dict[int, _Counter] = {}
        """By id of the frame's Body."""
        self._elements: dict[tuple[int, str], int] = {}
        """By id of a Body and an op in it that reads a dataset to its end: the position of the number of elements."""
        self._outputs: dict[int, list[tuple[Output, Body, str, int]]] = defaultdict(list)
        """By id of the frame's Body: open outputs in it, each with the body, op and output of the trace."""
        places = dict(place for body in trace.root.walk() for place in _outputs_of(body))
        for output in outputs:
            if output in places:
                body, name, index = places[output]
                if name not in body.hoisted:
                    self._outputs[id(body.frame)].append((output, body, name, index))

    def add_ops(self, copy: Copy, frame: Body) -> list[Any]:
        """Adds the ops that report to a frame's new graph; returns those that must run.

        TensorFlow drops ops of a stateless branch on which no result depends, so a branch's results wait for the report.
        """
        graph = copy.graphs[id(frame)]
        for body in frame.inlined():
            for name in [name for name, node in body.nodes.items() if node.op == READS_ALL]:
                self._count_elements(graph, body, name)
        if frame.kind == "cond" and not frame.children and not self._outputs[id(frame)]:
            return []  # its loop's body counts the rounds
        open_outputs = []
        tensors = []
        for output, body, name, index in self._outputs[id(frame)]:
            tensor = copy.tensor(body, name, index)
            if tensor.dtype not in (tf.resource, tf.variant):
                open_outputs.append((output, tensor.shape.rank))
                tensors.append(tensor)
        counter = self._counters[id(frame)] = _Counter(self._length, open_outputs)
        self._length += 2 * counter.length if tensors else 1
        with graph.as_default(), tf.name_scope(self._variable):
            with tf.device(full_name(_HOST)):
                parts = [part for tensor in tensors for part in _reported(tensor)]
                report = tf.concat([tf.ones([1], tf.int64), *parts], 0) if parts else tf.ones([1], tf.int64)
                positions = np.arange(counter.start, self._length, dtype=np.int32).reshape(-1, counter.length, 1)
                handle = self._handle()
                added = [tf.raw_ops.ResourceScatterNdAdd(ref=handle, indices=positions[0], updates=report, use_locking=True)]
                if tensors:
                    largest = tf.raw_ops.ResourceScatterNdMax(ref=handle, indices=positions[1], updates=report, use_locking=True)
                    added.append(largest)
            if frame.kind == "branch":
                with tf.control_dependencies(added):
                    graph.outputs[:] = [self._waiting(copy, frame, tensor) for tensor in graph.outputs]
        return added

    @staticmethod
    def _waiting(copy: Copy, frame: Body, result: Any) -> Any:
        """A branch's result that waits for the control dependencies around the call, on the device that the result is on."""
        if result.dtype in (tf.resource, tf.variant):
            return result
        device = result.device
        if not device and copy.device_of is not None and frame.parent is not None:
            device = copy.device(f"{frame.parent.names[frame.site]}/out")  # it is an input of the branch
        with tf.device(device or None):
            return tf.identity(result)

    def _count_elements(self, graph: Any, body: Body, name: str) -> None:
        """Lets op `name` count the elements for which it runs its function."""
        op = graph.get_operation_by_name(body.names[name])
        function = library_function(graph, op.node_def.attr["f"].func.name)
        if not hasattr(function, "graph"):
            return
        position, self._length = self._length, self._length + 1
        self._elements[id(body), name] = position
        with graph.as_default():
            counting = FuncGraph(f"{function.graph.name}_counting_{unique_id()}")
        with counting.as_default():
            for given in function.graph.inputs:
                placeholder = tf.compat.v1.placeholder(given.dtype, given.shape)
                copy_handle_data(given, placeholder)
                counting.inputs.append(placeholder)
            counting.outputs.extend(function.call_flat(*counting.inputs))
            with tf.device(full_name(_HOST)):
                one = tf.ones([1], tf.int64)
                added = tf.raw_ops.ResourceScatterNdAdd(ref=self._handle(), indices=[[position]], updates=one, use_locking=True)
            counting.control_outputs.append(added)
        add_function(graph, register_body(counting.name, counting))
        op._set_func_attr("f", counting.name)

    def _handle(self) -> Any:
        return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=tf.TensorShape([None]), shared_name=self._variable)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The variable exists inside the block. `seen` can be called at its end."""
        tf.raw_ops.AssignVariableOp(resource=self._eager_handle, value=self._zeros)
        try:
            yield
        finally:
            tf.raw_ops.DestroyResourceOp(resource=self._eager_handle, ignore_lookup_error=True)

    @cached_property
    def _eager_handle(self) -> Any:
        with tf.device(full_name(_HOST)):
            return self._handle()

    @cached_property
    def _zeros(self) -> Any:
        with tf.device(full_name(_HOST)):
            return tf.zeros([self._length], tf.int64)

    def seen(self) -> Seen:
        """What was reported since the variable exists."""
        numbers = tf.raw_ops.ReadVariableOp(resource=self._eager_handle, dtype=tf.int64).numpy().tolist()
        times = {frame: numbers[counter.start] for frame, counter in self._counters.items()}
        sizes: dict[Output, SeenShape] = {}
        rounds: dict[str, int] = {}
        taken: dict[str, tuple[int, ...]] = {}
        for frame, counter in self._counters.items():
            if times[frame]:
                sizes.update(_shapes(counter, numbers))
        for body in self._trace.root.walk():
            for name, children in body.children.items():
                reached, path = times[id(body.frame)], body.names[name]
                if reached and body.nodes[name].op in LOOPS:
                    rounds[path] = round(times[id(children[1])] / reached)
                elif reached and body.nodes[name].op in BRANCHES:
                    taken[path] = tuple(times[id(child)] for child in children)
            for name in body.nodes:
                position, reached = self._elements.get((id(body), name)), times.get(id(body.frame))
                if reached and position is not None:
                    elements = round(numbers[position] / reached)
                    rounds |= dict.fromkeys((body.names[name], *run_as_often(body, name)), elements)
        return Seen(sizes, rounds, taken)


def _outputs_of(body: Body) -> Iterator[tuple[Output, tuple[Body, str, int]]]:
    """The nodes of the flattened graph that give values of a body, each with the body, op and output that has the value."""
    for name, path in body.names.items():
        if name in body.inputs:
            if body.kind == "body" and body.parent is not None:
                yield (f"{body.parent.names[body.site]}/in{body.inputs[name]}", 0), (body, name, 0)
            continue
        op, children = body.nodes[name].op, body.children.get(name)
        for k in range(len(body.results(name))):
            if children is None:
                yield (path, k), (body, name, k)
            elif op in LOOPS:
                yield (f"{path}/out{k}", 0), (body, name, k)
            elif op in BRANCHES:
                yield (f"{path}/out", k), (body, name, k)


def _reported(tensor: Any) -> list[Any]:
    """The numbers that are reported of a tensor: int64 vectors of a length that is known."""
    with tf.device(tensor.device or None):
        shape = tf.raw_ops.Shape(input=tensor, out_type=tf.int64)
    if tensor.shape.rank is not None:
        return [shape]
    rank = tf.raw_ops.Shape(input=shape, out_type=tf.int64)
    padded = tf.concat([shape, tf.zeros([MAX_RANK], tf.int64)], 0)[:MAX_RANK]
    return [rank, tf.ensure_shape(padded, [MAX_RANK])]


def _shapes(counter: _Counter, numbers: list[int]) -> Iterator[tuple[Output, SeenShape]]:
    """The shapes of a frame's open outputs; not of one whose rank varied or is above `MAX_RANK`."""
    middle = counter.start + counter.length
    total, largest = numbers[counter.start : middle], numbers[middle : middle + counter.length]
    times, at = total[0], 1
    for output, static_rank in counter.outputs:
        rank, reported = (static_rank, static_rank) if static_rank is not None else (largest[at], MAX_RANK)
        same = static_rank is not None or (rank * times == total[at] and rank <= MAX_RANK)
        at += static_rank is None
        if same:
            mean = tuple(-(-side // times) for side in total[at : at + rank])
            yield output, SeenShape(mean, tuple(largest[at : at + rank]))
        at += reported
