"""Scratch graphs, whose ops are not run when they are added: for a variable's initial value before it is created."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops, random_seed
from tensorflow.python.ops import control_flow_v2_func_graphs

from placer.tf._private.func_graphs import FuncGraph, external_captures
from placer.tf._private.functions import call_flat, concrete_from_graph

SCRATCH_NAME = "scratch_graph"
"""The name that Keras gives to graphs in which it computes the shapes of a layer's results. They never run."""


def in_scratch_graph() -> bool:
    """Whether the current graph never runs, or is a loop or branch in one that never runs."""
    graph = ops.get_default_graph()
    while isinstance(graph, control_flow_v2_func_graphs.ControlFlowFuncGraph):
        graph = graph.outer_graph
    # A tf.function of that name has automatic control dependencies, and it runs.
    return isinstance(graph, FuncGraph) and graph.name.startswith(SCRATCH_NAME) and not graph._add_control_dependencies


class _EagerSeeds:
    """Replaces a graph's count of op seeds: gives each op the seed that it would have if it ran eagerly."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def __mod__(self, limit: int) -> int:
        self.given.append(context.internal_operation_seed() % limit)
        return self.given[-1]

    def __add__(self, _: int) -> _EagerSeeds:
        return self


class Scratch:
    """A scratch graph, and the values that its tensors have when its ops are run later."""

    def __init__(self) -> None:
        self.graph = FuncGraph(SCRATCH_NAME)
        self._seeds = _EagerSeeds()
        random_seed._graph_to_seed_dict[self.graph] = self._seeds
        self._seed = self.graph.seed
        self._generator_state = context.context()._rng.getstate() if context.global_seed() is not None else None

    def return_seeds(self) -> None:
        """Makes the seeds that its ops took available again."""
        if self._generator_state is not None:
            context.context()._rng.setstate(self._generator_state)

    def is_repeatable(self) -> bool:
        """Whether its ops give the same values at any time: they are not random, or they took a seed when they were added."""
        captured = [outer for outer, _ in external_captures(self.graph)]
        uses_others = any(outer.dtype in (tf.resource, tf.variant) or tf.is_symbolic_tensor(outer) for outer in captured)
        if uses_others or self.graph.seed != self._seed:
            return False
        return all(not op.op_def.is_stateful or self._is_seeded(op) for op in self.graph.get_operations())

    def _is_seeded(self, op: Any) -> bool:
        if not {"seed", "seed2"} <= {attr.name for attr in op.op_def.attr}:
            return False
        first, second = op.get_attr("seed"), op.get_attr("seed2")
        return second in self._seeds.given or first == second == 0

    def value(self, tensor: Any) -> Any:
        """Runs the graph for the value of one of its tensors."""
        self.graph.outputs = [tensor]
        self.graph.structured_outputs = tensor
        concrete = concrete_from_graph(self.graph, None, {})
        [value] = call_flat(concrete, (), concrete.captured_inputs)
        return value
