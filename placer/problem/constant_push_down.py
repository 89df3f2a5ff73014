"""Constant push-down: how TensorFlow's optimisers reassociate products, which changes which op waits for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.base import TensorSpec
from cost_models.ops import entry_of
from placer.graph.op_graph import OpNode
from placer.problem.arrays import Bools, Ints

LOW_PRECISION = frozenset({"float16", "bfloat16"})
"""Element types of products that TensorFlow does not reassociate."""


def pushed_down(
    ops: Sequence[OpNode], constant: Bools, tensor_op: Ints, tensor_output: Ints, kept: Bools, entries: Ints
) -> tuple[list[OpNode], Ints]:
    """The ops and consumers as they run: C·(X·Y) with a constant C becomes X·(C·Y), where X is the factor that is last by name.

    Then the inner op waits for Y alone, and its result is held until X is there. X may come late: in a gradient the result is
    held through the backward pass before X. This is `ConstantPushDown` of Grappler's constant_folding.cc, between passes that
    sort factors by name. It requires that all these ops are on one device, which is assumed here, and that C is not larger than
    X. Divisions by a constant are products by then.

    Args:
        ops: [N]
        constant: [N], whether the op is a constant without inputs.
        tensor_op: [T], the producer of each tensor.
        tensor_output: [T], which of the producer's outputs it is.
        kept: [T], whether the caller holds it too.
        entries: [C, 3], tensor, consumer and input index, by tensor.

    Returns:
        The ops, [N], with their new inputs and outputs; and the new `entries`, row by row.
    """
    ops, entries = list(ops), entries.copy()
    known: list[bool] = constant.tolist()
    users = np.bincount(entries[:, 0], minlength=len(tensor_op)) + kept
    factors: dict[int, list[int]] = {}  # rows of `entries`, by product
    for row, (_, consumer, position) in enumerate(entries.tolist()):
        if entry_of(ops[consumer].op_type).multiplies and position >= 0:
            factors.setdefault(consumer, []).insert(position, row)
    takes = {op: rows for op, rows in factors.items() if len(rows) == 2}

    def maker(row: int) -> int:
        return int(tensor_op[entries[row, 0]])

    def spec(row: int) -> TensorSpec:
        output: int = tensor_output[entries[row, 0]]
        return ops[maker(row)].signature.outputs[output]

    def is_product(op: int) -> bool:
        return op in takes and (ops[op].op_type == "Mul" or known[maker(takes[op][1])])

    def rewrite(op: int, rows: list[int], made: TensorSpec) -> None:
        takes[op] = rows
        entries[rows, 1:] = [[op, 0], [op, 1]]
        signature = replace(ops[op].signature, op_type="Mul", inputs=(spec(rows[0]), spec(rows[1])), outputs=(made,))
        ops[op] = replace(ops[op], op_type="Mul", signature=signature)

    todo = sorted(takes, reverse=True)
    while todo:
        outer = todo.pop()
        c, between = sorted(takes[outer], key=lambda row: not known[maker(row)])
        inner = maker(between)
        known[outer] = known[inner]
        products = is_product(outer) and is_product(inner) and ops[outer].body == ops[inner].body
        alone = users[entries[between, 0]] == 1 and spec(between).dtype not in LOW_PRECISION
        if not (known[maker(c)] and not known[inner] and products and alone):
            continue
        y, x = sorted(takes[inner], key=lambda row: (not known[maker(row)], ops[maker(row)].name))
        if known[maker(y)] or spec(c).elements <= spec(x).elements:
            rewrite(inner, [c, y], _broadcast(spec(c), spec(y)))
            rewrite(outer, [x, between], ops[outer].signature.outputs[0])
            todo += [outer, inner]
    return ops, entries


def _broadcast(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    """The type and shape of a product of these; the larger of them where a shape is not known."""
    try:
        return replace(a, shape=np.broadcast_shapes(a.shape, b.shape))  # type: ignore[arg-type]
    except TypeError:
        return max(a, b, key=lambda spec: spec.elements)
