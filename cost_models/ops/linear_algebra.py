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
from cost_models.ops.work import Timed, Times, Work, elements, elements_in, nbytes, once, sides

_SIGN = frozenset({Difference.SIGN})


# -- counts: of n x m matrices, for the work of LAPACK on a CPU and for a GPU's chains of dependent kernels -------------------


def _matrices(op: OpSignature) -> float:
    return math.prod(sides(op.inputs, 0)[:-2])


def _side(op: OpSignature) -> float:
    """The shorter of n and m."""
    return min(sides(op.inputs, 0)[-2:], default=1)


def _sides_of_all(op: OpSignature) -> float:
    """The shorter of n and m, for each matrix."""
    return _matrices(op) * _side(op)


def _squares(op: OpSignature) -> float:
    """The shorter of n and m, squared."""
    return _side(op) ** 2


def _cubes(op: OpSignature) -> float:
    """The elements of all matrices times the shorter of n and m."""
    return elements_in(op) * _side(op)


def _elements_solved(op: OpSignature) -> float:
    """The elements of all matrices times the columns of the right-hand side."""
    return elements_in(op) * (sides(op.inputs, 1) or (1,))[-1]


# -- other formulas, and recipes -----------------------------------------------------------------------------------------


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


_CHOLESKY = Timed(cpu=((elements_in, 5.9), (_cubes, 0.0151)), gpu=((once, 70_500), (_side, 804)))
_ELIMINATION_ON_GPU: Times = ((once, 72_400), (_side, 2_380))
_DETERMINANT = Timed(cpu=((_matrices, 507), (elements_in, 8.8), (_cubes, 0.0031)), gpu=_ELIMINATION_ON_GPU)
_ELIMINATION = Timed(cpu=((elements_in, 21.7), (_cubes, 0.031)), gpu=_ELIMINATION_ON_GPU)
_SUBSTITUTION = Timed(
    cpu=((_matrices, 438), (elements_in, 0.134), (_elements_solved, 0.025)),
    gpu=((once, 7_980), (_side, 262)),
)
_ORTHOGONAL = Timed(cpu=((elements_in, 43), (_cubes, 0.086)))
_EIGEN = Timed(cpu=((elements_in, 81), (_cubes, 0.114)), gpu=((_matrices, 39_500), (_sides_of_all, 9_090)))
_SINGULAR = Timed(cpu=((_matrices, 2_200), (_squares, 200)), gpu=((_side, 30_200), (_squares, 308)))

register("Cholesky", OpType(work=_CHOLESKY, awaited=True, recipe=_well_conditioned))
register("MatrixDeterminant", OpType(work=_DETERMINANT, awaited=True, recipe=_well_conditioned))
register("LogMatrixDeterminant", OpType(work=_DETERMINANT, recipe=_well_conditioned))
register("MatrixInverse MatrixSolve Lu", OpType(work=_ELIMINATION, awaited=True, recipe=_well_conditioned))
register("MatrixTriangularSolve", OpType(work=_SUBSTITUTION, awaited=True, recipe=_well_conditioned))
register("CholeskyGrad", OpType(work=_ELIMINATION, recipe=_well_conditioned))
register("Qr", OpType(work=_ORTHOGONAL, awaited=True, differs=_SIGN, recipe=_random_matrices))
register("MatrixSolveLs", OpType(work=_ORTHOGONAL))
register("SelfAdjointEigV2", OpType(work=_EIGEN, awaited=True, differs=_SIGN, recipe=_random_matrices))
register("Svd", OpType(work=_SINGULAR, awaited=True, differs=_SIGN, recipe=_random_matrices))
register("Eig MatrixSquareRoot MatrixExponential MatrixLogarithm", OpType(work=_SINGULAR))
register("FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND RFFTND IRFFTND", OpType(work=_fourier))
register("RFFT RFFT2D RFFT3D", OpType(work=_fourier, recipe=_lengths_in))
register("IRFFT IRFFT2D IRFFT3D", OpType(work=_fourier, start_factor=3.4, recipe=_lengths_out))
