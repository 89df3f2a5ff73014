"""Graphs of functions that are registered without one, as TensorFlow 1's `Defun` and the import of a GraphDef register them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph

from placer.tf._private.func_graphs import FuncGraph, library_function


@dataclass(frozen=True, eq=False)
class DefinedFunction:
    """A function that has a definition only, with a graph that is made of it."""

    graph: FuncGraph
    definition: Any
    """The FunctionDef."""
    own_gradient: bool
    """Whether a call of it has a gradient that was given with the function, not that of its ops."""

    @property
    def name(self) -> str:
        return str(self.definition.signature.name)


def readable_function(graph: tf.Graph, name: str) -> Any:
    """The function `name` that is registered in `graph` or in a graph around it, with the FuncGraph `graph` as an attribute.

    Args:
        graph: a FuncGraph. It is not changed.
        name: of the function.

    Returns:
        The registered function if it has a graph, else a `DefinedFunction`. None if there is no such function, or if no graph can
        be made of its definition.
    """
    function = library_function(graph, name)
    if function is None or hasattr(function, "graph"):
        return function
    definition = function.cached_definition
    try:
        with graph.as_default():
            body = function_def_to_graph.function_def_to_graph(definition, propagate_device_spec=True)
    except (KeyError, TypeError, ValueError, tf.errors.OpError):  # for example, it calls a function that is not registered
        return None
    if not definition.signature.control_output:
        # A call of such a function ends when all its ops have run, not only those that its results need.
        body.control_outputs = [op for op in body.get_operations() if op.op_def.is_stateful]
    return DefinedFunction(body, definition, bool(function.grad_func_name or function.python_grad_func))
