"""Graphs that placer builds as copies of traced ones, with what is known of them beyond their ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

if TYPE_CHECKING:
    from placer.plan.call_plan import CallPlan
    from placer.tf.trace.tracing import Trace


class CopiedGraph(func_graph.FuncGraph):  # type: ignore[misc]
    """A FuncGraph that is a copy of a traced body."""

    def __init__(self, name: str, original_ops: Callable[[], Mapping[str, Any]]) -> None:
        """Args:
        name: of the graph.
        original_ops: gives, by node, the op of the user's code that the node is a copy of.
        """
        super().__init__(name)
        self.original_ops = original_ops
        self.trace: Trace | None = None
        """What a copy of a whole function was made from. It keeps Python callbacks and closures of custom gradients alive."""
        self.plan: CallPlan | None = None
        """The plan that the function runs by; None for a copy that was made without one."""
        self.on_error: Callable[[tf.errors.OpError], None] | None = None
        """Called with an error of one of the graph's ops before that is raised."""


def original_ops(graph: Any) -> Mapping[str, Any]:
    """By node of a copied graph, the op of the user's code that it was copied from; empty for any other graph."""
    return graph.original_ops() if isinstance(graph, CopiedGraph) else {}


def report_error(graph: Any, error: tf.errors.OpError) -> None:
    """Calls `on_error` of `graph` or, if it has none, of the closest graph around it that has one."""
    while graph is not None:
        if isinstance(graph, CopiedGraph) and graph.on_error is not None:
            graph.on_error(error)
            return
        graph = getattr(graph, "outer_graph", None)
