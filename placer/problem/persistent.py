"""What is kept in memory from step to step: variables, tables, captured tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Ints
from placer.problem.constraints import Constraints
from placer.problem.lifetimes import allocated


def kept(graph: OpGraph) -> Iterator[tuple[int, str, int]]:
    """What is in memory from step to step: the position of the op that holds it, its name and bytes.

    Each variable or table is there once, with the first op that holds it; a captured tensor is called as its op is.
    """
    seen: set[str] = set()
    for i, op in enumerate(graph):
        if op.resource:
            if op.resource in graph.resources and op.resource not in seen:
                yield i, graph.resources[op.resource].name, graph.resources[op.resource].nbytes
            seen.add(op.resource)
        elif op.role == "capture":
            yield i, op.name, sum(spec.nbytes for spec in op.signature.outputs)


def persistent_bytes(graph: OpGraph, constraints: Constraints) -> Ints:
    """[U]: bytes that each unit keeps from step to step."""
    held = np.zeros(len(constraints.allowed), np.int64)
    for i, _, nbytes in kept(graph):
        held[constraints.op_unit[i]] += allocated(nbytes)
    return held
