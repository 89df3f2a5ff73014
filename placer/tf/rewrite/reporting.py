"""Reports of a run: ops in a private copy that add up sizes, rounds of loops and branches taken.

Each frame of the copy gets one counter, a variable on the host. At each execution the frame adds 1 and the shapes of its open
outputs to it. A second variable keeps the largest shapes. The frame's own ops, their inputs and their order stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from placer.graph.seen import Seen, SeenShape
from placer.tf._private.func_graphs import unique_id
from placer.tf.rewrite.copying import Copy
from placer.tf.trace.bodies import BRANCHES, LOOPS, Body
from placer.tf.trace.tracing import Trace

_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
MAX_RANK = 8
"""The most dimensions that are reported of a tensor of unknown rank."""

Output = tuple[str, int]


@dataclass
class _Counter:
    """The variables of one frame."""

    name: str
    outputs: list[tuple[Output, int | None]]
    """The open outputs, each with its rank; None for an unknown rank, which is reported first, before `MAX_RANK` dimensions."""

    @property
    def length(self) -> int:
        return 1 + sum(1 + MAX_RANK if rank is None else rank for _, rank in self.outputs)

    def handle(self, part: str) -> Any:
        """The variable "sum" or "largest": one int64 for the number of executions, then those of each output."""
        return tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[self.length], shared_name=f"{self.name}_{part}")


class Reports:
    """What a copy of a trace reports.

    Args:
        trace: what is copied.
        outputs: open outputs, as `KnownSizes.open_outputs` gives them.
    """

    def __init__(self, trace: Trace, outputs: Iterable[Output]) -> None:
        self._trace = trace
        self._counters: dict[int, _Counter] = {}
        """By id of the frame's Body."""
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
        if frame.kind == "cond" and not frame.children and not self._outputs[id(frame)]:
            return []  # its loop's body counts the rounds
        graph = copy.graphs[id(frame)]
        open_outputs = []
        tensors = []
        for output, body, name, index in self._outputs[id(frame)]:
            tensor = copy.tensor(body, name, index)
            if tensor.dtype not in (tf.resource, tf.variant):
                open_outputs.append((output, tensor.shape.rank))
                tensors.append(tensor)
        counter = _Counter(f"placer_reports_{unique_id()}", open_outputs)
        self._counters[id(frame)] = counter
        with graph.as_default(), tf.name_scope(counter.name):
            parts = [part for tensor in tensors for part in _reported(tensor)]
            with tf.device(_HOST):
                report = tf.concat([tf.ones([1], tf.int64), *parts], 0)
                added = [tf.raw_ops.AssignAddVariableOp(resource=counter.handle("sum"), value=report)]
                if tensors:
                    indices = tf.range(counter.length, dtype=tf.int32)[:, None]
                    largest = counter.handle("largest")
                    added.append(tf.raw_ops.ResourceScatterNdMax(ref=largest, indices=indices, updates=report, use_locking=True))
            if frame.kind == "branch":
                with tf.control_dependencies(added):
                    graph.outputs[:] = [t if t.dtype in (tf.resource, tf.variant) else tf.identity(t) for t in graph.outputs]
        return added

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The variables exist inside the block. `seen` can be called at its end."""
        with tf.init_scope(), tf.device(_HOST):
            handles = [(c.handle(part), c.length) for c in self._counters.values() for part in ("sum", "largest")]
            for handle, length in handles:
                tf.raw_ops.AssignVariableOp(resource=handle, value=tf.zeros([length], tf.int64))
            try:
                yield
            finally:
                for handle, _ in handles:
                    tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)

    def seen(self) -> Seen:
        """What was reported since the variables exist."""
        with tf.init_scope(), tf.device(_HOST):
            sums, largest = (
                {
                    frame: tf.raw_ops.ReadVariableOp(resource=counter.handle(part), dtype=tf.int64).numpy()
                    for frame, counter in self._counters.items()
                }
                for part in ("sum", "largest")
            )
        sizes: dict[Output, SeenShape] = {}
        rounds: dict[str, int] = {}
        taken: dict[str, tuple[int, ...]] = {}
        for frame, counter in self._counters.items():
            if sums[frame][0]:
                sizes.update(_shapes(counter, sums[frame], largest[frame]))
        for body in self._trace.root.walk():
            for name, children in body.children.items():
                reached, path = int(sums[id(body.frame)][0]), body.names[name]
                if reached and body.nodes[name].op in LOOPS:
                    rounds[path] = round(int(sums[id(children[1])][0]) / reached)
                elif reached and body.nodes[name].op in BRANCHES:
                    taken[path] = tuple(int(sums[id(child)][0]) for child in children)
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
    shape = tf.raw_ops.Shape(input=tensor, out_type=tf.int64)
    if tensor.shape.rank is not None:
        return [shape]
    rank = tf.raw_ops.Shape(input=shape, out_type=tf.int64)
    padded = tf.concat([shape, tf.zeros([MAX_RANK], tf.int64)], 0)[:MAX_RANK]
    return [rank, tf.ensure_shape(padded, [MAX_RANK])]


def _shapes(counter: _Counter, total: Any, largest: Any) -> Iterator[tuple[Output, SeenShape]]:
    """The shapes of a frame's open outputs; not of one whose rank varied or is above `MAX_RANK`."""
    times, at = int(total[0]), 1
    for output, static_rank in counter.outputs:
        rank, reported = (static_rank, static_rank) if static_rank is not None else (int(largest[at]), MAX_RANK)
        same = static_rank is not None or (rank * times == total[at] and rank <= MAX_RANK)
        at += static_rank is None
        if same:
            mean = -(-total[at : at + rank] // times)
            yield output, SeenShape(tuple(map(int, mean)), tuple(map(int, np.asarray(largest[at : at + rank]))))
        at += reported
