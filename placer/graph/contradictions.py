"""What in a graph refers to something that the graph does not have. A graph from a file must have no such contradiction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.graph.op_graph import OpGraph

MAX_BYTES = 2**62
"""No tensor is larger, so that sums over a plan fit in 64 bits with room to spare."""


def contradictions(graph: OpGraph) -> Iterator[str]:
    """Each contradiction of a graph, as text."""
    number = {name: k for k, name in enumerate(graph.graph)}
    outputs = {op.name: op.signature.outputs for op in graph}
    sizes = {id(spec): spec for op in graph for spec in (*op.signature.inputs, *op.signature.outputs)}
    for spec in sizes.values():
        if spec.nbytes >= MAX_BYTES:
            yield f"a tensor {spec} has {spec.nbytes} bytes"
    for op in graph:
        if op.name.startswith("^"):
            yield f"an op is called {op.name!r}, which TensorFlow reads as a control edge"
        if not math.isfinite(op.count):
            yield f"{op.name!r} runs {op.count} times"
        if op.resource and op.resource not in graph.resources:
            yield f"{op.name!r} has the state {op.resource!r}, which is not there"
    for source, target, data in graph.graph.edges(data=True):
        if number[source] >= number[target]:
            yield f"{target!r} reads {source!r}, which runs later"
        inputs = len(graph.op(target).signature.inputs)
        for tensor in data["tensors"]:
            if not (0 <= tensor.src_index < len(outputs[source]) and tensor.dst_index < inputs):
                yield f"input {tensor.dst_index} of {target!r} is output {tensor.src_index} of {source!r}, and one is not there"
    for name, output in graph.outputs:
        if output >= len(outputs.get(name, ())):
            yield f"a result is output {output} of {name!r}, which is not there"
    for name, known in graph.sizes.items():
        if len(known) != len(outputs.get(name, ())):
            yield f"{len(known)} sizes are known of {name!r}, which has {len(outputs.get(name, ()))} outputs"
            continue
        for size, spec in zip(known, outputs[name], strict=True):
            for shape in (size.bound, size.low, size.high) if size else ():
                if shape is not None and len(shape) != len(spec.shape or ()):
                    yield f"a shape {list(shape)} is known of {name!r}, which has {spec}"
