"""Results of inlined calls in an unplaced copy, whose gradients must be those of a call.

The gradient of a function is one of all its results: results without a gradient count as zeros, and gradients by index become
dense. An inlined call would lose that, so its results go through a call of a function that returns its arguments. In a loop,
TensorFlow makes all gradients present and dense by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.func_graphs import FuncGraph, add_function, unique_id
from placer.tf._private.functions import register_body
from placer.tf._private.gradients import is_trainable
from placer.tf._private.handles import copy_handle_data
from placer.tf.trace.bodies import Body, input_text


@dataclass(frozen=True)
class JoinedResults:
    """The results of an inlined call that go through one more call."""

    node: str
    """The name of that call."""
    results: Mapping[int, Any]
    """By position among the results of the inlined call: its tensor in the trace."""

    def restore(self, graph: Any) -> None:
        """Gives the call in the new graph its gradient, and its results their shapes and types."""
        op = graph.get_operation_by_name(self.node)
        op._gradient_function = lambda _, *upstream: [tf.convert_to_tensor(g) for g in upstream]
        for before, after in zip(self.results.values(), op.outputs, strict=True):
            after.set_shape(before.shape)
            copy_handle_data(before, after)


def joinable_results(body: Body, name: str) -> dict[int, Any]:
    """The results of the call `name` that have gradients, by position; empty for a call in a loop."""
    if _in_loop(body):
        return {}
    return {k: t for k, t in enumerate(body.results(name)) if is_trainable(t) and t.dtype != tf.resource}


def joining_call(name: str, sources: Sequence[tuple[str, int]], dtypes: Sequence[tf.DType], function: str) -> NodeDef:
    """The node that calls `function`, which returns its arguments, with outputs of other nodes."""
    call = NodeDef(op="PartitionedCall", name=name)
    call.input.extend(input_text(*source) for source in sources)
    for attribute in ("Tin", "Tout"):
        call.attr[attribute].list.type.extend(d.as_datatype_enum for d in dtypes)
    call.attr["f"].func.name = function
    return call


class IdentityFunctions:
    """Functions that return their arguments, one for each list of types."""

    def __init__(self) -> None:
        self._functions: dict[tuple[tf.DType, ...], Any] = {}

    def name(self, dtypes: tuple[tf.DType, ...], graph: Any) -> str:
        """The name of the function for these types, registered in `graph`."""
        if dtypes not in self._functions:
            identity = FuncGraph(f"identity_placed_{unique_id()}")
            with identity.as_default():
                identity.inputs = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
            identity.outputs = list(identity.inputs)
            self._functions[dtypes] = register_body(identity.name, identity)
        add_function(graph, self._functions[dtypes])
        return str(self._functions[dtypes].graph.name)


def _in_loop(body: Body) -> bool:
    return body.kind in ("cond", "body") or (body.parent is not None and _in_loop(body.parent))
