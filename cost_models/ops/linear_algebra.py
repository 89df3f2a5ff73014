"""Decompositions, solvers and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import Data, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import Formula, Work, elements, nbytes, sides

_SIGN = frozenset({Difference.SIGN})
_CPU_FLOPS_PER_NS = 20
"""One core on one matrix: some 20 GFLOP/s."""
_GPU_STEP_NS = 3_000.0
"""One of the dependent kernels that make a GPU's solver."""


def _solver(flops_factor: float, first_steps: int, steps_per_row: float, batched: bool = False) -> Formula:
    """flops_factor·n³ for each n x n matrix (LAPACK working notes); n is the geometric mean of the sides.

    A CPU keeps each matrix on one core. A GPU's solver runs a chain of dependent kernels, which grows with the matrix. Unless
    it is `batched`, it solves one matrix after another. The chains, not the arithmetic, make small decompositions hundreds of
    times slower on a GPU.
    """

    def formula(op: OpSignature) -> Work:
        shape = sides(op.inputs, 0)
        rows, columns = shape[-2:] if len(shape) >= 2 else (1, 1)
        batch = math.prod(shape[:-2])
        flops = flops_factor * batch * math.sqrt(rows * columns) ** 3
        steps = (1 if batched else batch) * (first_steps + steps_per_row * columns)
        return Work(
            flops=flops,
            nbytes=nbytes(op.inputs) + nbytes(op.outputs),
            cpu_serial_ns=flops / _CPU_FLOPS_PER_NS if batch == 1 else 0.0,
            gpu_serial_ns=_GPU_STEP_NS * steps,
        )

    return formula


def _fourier(op: OpSignature) -> Work:
    """5·n·log2 n for each complex transform of length n."""
    count = max(elements(op.inputs[:1]), elements(op.outputs[:1]))
    length = max((sides(op.inputs, 0) or (1,))[-1], 2)
    return Work(flops=5.0 * count * math.log2(length), nbytes=2 * (nbytes(op.inputs) + nbytes(op.outputs)))


def _well_conditioned(op: OpSignature) -> Mapping[int, Any]:
    *batch, rows, columns = shape_in(op, 0)
    return {0: Data(np.broadcast_to(np.eye(rows, columns) * rows + 0.5, (*batch, rows, columns)))}


def _random_matrices(op: OpSignature) -> Mapping[int, Any]:
    """Matrices of full rank, which values that repeat would not be."""
    return {0: Data(np.random.default_rng(1).standard_normal(shape_in(op, 0)))}


def _lengths_in(op: OpSignature) -> Mapping[int, Any]:
    return {1: shape_in(op, 0)[-op.inputs[1].elements :]}


def _lengths_out(op: OpSignature) -> Mapping[int, Any]:
    return {1: shape_out(op)[-op.inputs[1].elements :]}


_cholesky = _solver(1 / 3, 6, 0.05, batched=True)
_elimination = _solver(2, 8, 0.1, batched=True)

register("Cholesky MatrixDeterminant", OpType(work=_cholesky, awaited=True, recipe=_well_conditioned))
register("LogMatrixDeterminant", OpType(work=_cholesky, recipe=_well_conditioned))
register(
    "MatrixInverse MatrixSolve Lu MatrixTriangularSolve",
    OpType(work=_elimination, awaited=True, recipe=_well_conditioned),
)
register("CholeskyGrad", OpType(work=_elimination, recipe=_well_conditioned))
register("Qr", OpType(work=_solver(3, 10, 1), awaited=True, differs=_SIGN, recipe=_random_matrices))
register("MatrixSolveLs", OpType(work=_solver(3, 10, 1)))
register("SelfAdjointEigV2", OpType(work=_solver(9, 30, 2), awaited=True, differs=_SIGN, recipe=_random_matrices))
register("Eig", OpType(work=_solver(9, 30, 2)))
register("Svd", OpType(work=_solver(20, 60, 4), awaited=True, differs=_SIGN, recipe=_random_matrices))
register("MatrixSquareRoot MatrixExponential MatrixLogarithm", OpType(work=_solver(20, 60, 4)))
register("FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND RFFTND IRFFTND", OpType(work=_fourier))
register("RFFT RFFT2D RFFT3D", OpType(work=_fourier, recipe=_lengths_in))
register("IRFFT IRFFT2D IRFFT3D", OpType(work=_fourier, recipe=_lengths_out))
