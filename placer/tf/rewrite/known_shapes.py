"""Shapes that follow from the shapes of a call's arguments."""

from __future__ import annotations

from placer.tf.rewrite.rewriting import flatten
from placer.tf.trace.signatures import Shape, ShapeOf
from placer.tf.trace.tracing import Trace


def known_shapes(trace: Trace) -> ShapeOf | None:
    """The shapes that the example arguments give to outputs whose traced shape is unknown; None if they add nothing."""
    traced = [t.shape for t in trace.root.input_tensors]
    shapes = list(traced)
    for position, value in enumerate(trace.arguments):
        shape = getattr(value, "shape", None)
        if shape is not None and shape.rank is not None and not traced[position].is_fully_defined():
            shapes[position] = shape
    if all(a is b for a, b in zip(traced, shapes, strict=True)):
        return None
    output_shapes: dict[str, list[Shape]] = {
        op.name: [None if t.shape.rank is None else tuple(t.shape.as_list()) for t in op.outputs]
        for op in flatten(trace, shapes).get_operations()
    }

    def shape_of(path: str, index: int) -> Shape:
        of_node = output_shapes.get(path)
        return of_node[index] if of_node is not None and index < len(of_node) else None

    return shape_of
