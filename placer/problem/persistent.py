"""Memory that is held from step to step: variables, tables, captured tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Ints
from placer.problem.constraints import Constraints
from placer.problem.lifetimes import allocated


def persistent(graph: OpGraph) -> Iterator[tuple[int, str, int]]:
    """Variables, tables and captured tensors: for each the position of the op that holds it, its name and its bytes.

    A variable or table is listed once, with the first op that holds it. A captured tensor has the name of its op.
    """
    counted: set[str] = set()
    for i, op in enumerate(graph):
        if op.resource:
            if op.resource in graph.resources and op.resource not in counted:
                yield i, graph.resources[op.resource].name, graph.resources[op.resource].nbytes
            counted.add(op.resource)
        elif op.role == "capture":
            yield i, op.name, sum(spec.nbytes for spec in op.signature.outputs)


def persistent_bytes(graph: OpGraph, constraints: Constraints) -> Ints:
    """[U]: bytes that each unit holds from step to step."""
    held = np.zeros(len(constraints.allowed), np.int64)
    for i, _, nbytes in persistent(graph):
        held[constraints.op_unit[i]] += allocated(nbytes)
    return held
