"""Products of matrices."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.table import register
from cost_models.ops.work import LIBRARY_DTYPES, TRANSPOSE_NS, Work, elements, nbytes, sides

PRODUCT = frozenset({Difference.PRECISION, Difference.SUM_ORDER})
"""Why a product's results depend on the device."""
SIDES_MULTIPLE = 4
"""A GPU's matrix units take tensors whose last side is a multiple of this."""
_UNALIGNED, _TRANSPOSED = 0.4, 0.65
"""Shares of a GPU's best rate if rows do not start at a multiple of 16 bytes, and if the left factor is transposed."""
_FILL_NS = 4_000.0
"""Time until a GPU's matrix units are busy."""
_BATCH_NS = 30_000.0
"""Time in which a CPU's library prepares products of a batch."""
_ROW_NS, _MATRIX_NS = 0.04, 1.0
"""Time of a GPU for each row of the products, and for each product of a batch, however short."""
_ROW_FLOPS, _MATRIX_FLOPS = 400.0, 8_000.0
"""Operations that a CPU could do in a large product while it handles a row, or a product of a batch."""


def _matmul(op: OpSignature) -> Work:
    """2·m·n·k for each matrix of the batch. oneDNN takes one core for a single product if its matrices fit that core's cache."""
    left = sides(op.inputs, 0)
    transposed = op.attr("transpose_a") or op.attr("adj_x")
    depth = (left[-2] if transposed else left[-1]) if len(left) >= 2 else 1
    tensors = op.inputs[:2] + op.outputs[:1]
    aligned = all((sides((spec,), 0) or (1,))[-1] % SIDES_MULTIPLE == 0 for spec in tensors)
    batched = len(sides(op.outputs, 0)) > 2
    return replace(
        _products(op, depth, batched),
        efficiency=(1.0 if aligned else _UNALIGNED) * (_TRANSPOSED if transposed else 1.0),
        one_core=bool(op.outputs) and op.outputs[0].dtype in LIBRARY_DTYPES and not batched,
    )


def _products(op: OpSignature, depth: int, batched: bool) -> Work:
    """The work of a product of matrices, or of a batch of them. A number of a result is a sum of `depth` products of two numbers.

    Sides of length 0 count as 1.
    """
    shape = sides(op.outputs, 0)
    rows, matrices = max(1, math.prod(shape[:-1])), max(1, math.prod(shape[:-2]))
    flops = 2.0 * max(1, elements(op.outputs[:1])) * max(1, depth)
    return Work(
        flops=flops,
        nbytes=nbytes(op.inputs) + nbytes(op.outputs),
        is_product=True,
        cpu_efficiency=min(1.0, flops / (_ROW_FLOPS * rows + _MATRIX_FLOPS * matrices)),
        cpu_serial_ns=_BATCH_NS if batched else 0.0,
        gpu_serial_ns=_FILL_NS + _ROW_NS * rows + _MATRIX_NS * matrices,
    )


def _einsum(op: OpSignature) -> Work:
    """Two operations for each point of the product of all labels' sizes. An ellipsis stands for the rest of the first output.

    Tensors whose axes do not lie as a batch of matrices are transposed first, each by a kernel of its own.
    """
    equation = str(op.attr("equation", ""))
    terms, _, output = equation.partition("->")
    size: dict[str, int] = {}
    for i, term in enumerate(terms.split(",")):
        labels, shape = term.replace("...", "."), sides(op.inputs, i)
        before, _, after = labels.partition(".")
        labelled = list(zip(before, shape, strict=False))
        labelled += list(zip(reversed(after), reversed(shape), strict=False)) if "." in labels else []
        for label, side in labelled:
            size[label] = max(size.get(label, 1), side)
    work = _products(op, math.prod(side for label, side in size.items() if label not in output), len(sides(op.outputs, 0)) > 2)
    transposes = _transposes(equation)
    return replace(
        work,
        kernels=1 + transposes,
        cpu_serial_ns=work.cpu_serial_ns + transposes * TRANSPOSE_NS,
        workspace_bytes=round(work.nbytes),
    )


def _transposes(equation: str) -> int:
    """How many of two factors and their product are not laid out as a batch of matrices."""
    terms, _, output = equation.replace("...", ".").partition("->")
    left, _, right = terms.partition(",")
    batch = [label for label in output if label in left and label in right]

    def kinds(labels: str) -> list[int]:
        """The kinds of labels in their order, equal neighbours once: 0 batch, 1 left side, 2 right side, 3 summed over."""
        each = (0 if label in batch else 3 if label not in output else 1 if label in left else 2 for label in labels)
        return [kind for kind, _ in itertools.groupby(each)]

    def is_matrices(labels: str) -> bool:
        order = kinds(labels)
        return len(set(order)) == len(order) and 0 not in order[1:]

    return (not is_matrices(left)) + (not is_matrices(right)) + (kinds(output) != sorted(set(kinds(output))))


register("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 _FusedMatMul", OpType(work=_matmul, start_factor=2.1, differs=PRODUCT))
register("SparseMatMul", OpType(work=_matmul))
register("Einsum", OpType(work=_einsum, start_factor=2.1, differs=PRODUCT))
register("XlaEinsum", OpType(work=_einsum))
