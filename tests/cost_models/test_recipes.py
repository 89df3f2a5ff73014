"""Every recipe of the table of ops makes inputs that satisfy its op."""

from __future__ import annotations

from typing import Any

import pytest
from tensorflow.python.framework import kernels

from cost_models.measuring.chains import Bench, plain_graphs
from cost_models.ops import types_where
from cost_models.ops.optype import no_values
from tests.cost_models.test_measuring import graph  # noqa: F401
from tests.helpers.signatures import signature

_ROWS, BOXES = "int32[3]", "float32[50,4], float32[50], int32[]"
EXAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Bincount(int32[8], int32[], float32[0]) -> float32[5]", {}),
    (
        "CTCBeamSearchDecoder(float32[9,2,5], int32[2]) -> int64[?,2], int64[?], int64[2], float32[2,1]",
        {"beam_width": 3, "top_paths": 1},
    ),
    ("CTCGreedyDecoder(float32[9,2,5], int32[2]) -> int64[?,2], int64[?], int64[2], float32[2,1]", {}),
    ("CTCLoss(float32[9,2,5], int64[6,2], int32[6], int32[2]) -> float32[2], float32[9,2,5]", {}),
    ("CholeskyGrad(float32[4,4], float32[4,4]) -> float32[4,4]", {}),
    ("Concat(int32[], float32[2,3], float32[2,4]) -> float32[2,7]", {}),
    ("ConjugateTranspose(float32[2,3], int32[2]) -> float32[3,2]", {}),
    ("CumulativeLogsumexp(float32[3,4], int32[]) -> float32[3,4]", {}),
    ("DenseBincount(int32[8], int32[], float32[0]) -> float32[5]", {}),
    ("EuclideanNorm(float32[3,4], int32[1]) -> float32[3]", {}),
    ("ExpandDims(float32[3,4], int32[]) -> float32[3,1,4]", {}),
    ("Gather(float32[9,2], int32[3]) -> float32[3,2]", {}),
    ("IRFFT2D(complex64[4,3], int32[2]) -> float32[4,4]", {}),
    ("IRFFT3D(complex64[2,4,3], int32[3]) -> float32[2,4,4]", {}),
    ("InvertPermutation(int32[5]) -> int32[5]", {}),
    ("LinSpace(float32[], float32[], int32[]) -> float32[5]", {}),
    ("ListDiff(int64[9], int64[3]) -> int64[?], int32[?]", {}),
    ("LogMatrixDeterminant(float32[4,4]) -> float32[], float32[]", {}),
    ("Lu(float32[4,4]) -> float32[4,4], int32[4]", {}),
    ("MatrixDeterminant(float32[4,4]) -> float32[]", {}),
    ("MirrorPadGrad(float32[6,5], int32[2,2]) -> float32[4,4]", {"mode": "REFLECT"}),
    ("Multinomial(float32[3,9], int32[]) -> int64[3,4]", {}),
    (f"NonMaxSuppression({BOXES}) -> int32[?]", {}),
    (f"NonMaxSuppressionV2({BOXES}, float32[]) -> int32[?]", {}),
    (f"NonMaxSuppressionV4({BOXES}, float32[], float32[]) -> int32[?], int32[]", {}),
    (f"NonMaxSuppressionV5({BOXES}, float32[], float32[], float32[]) -> int32[?], float32[?], int32[]", {}),
    ("PadV2(float32[2,3], int32[2,2], float32[]) -> float32[3,5]", {}),
    ("ParallelDynamicStitch(int32[2], int32[3], float32[2,4], float32[3,4]) -> float32[5,4]", {}),
    ("RFFT3D(float32[2,4,4], int32[3]) -> complex64[2,4,3]", {}),
    ("Qr(float32[4,4]) -> float32[4,4], float32[4,4]", {}),
    ("Reshape(float32[2,3], int32[1]) -> float32[6]", {}),
    (f"ResourceApplyFtrl({', '.join([*['resource[]'] * 3, 'float32[3,4]', *['float32[]'] * 4])}) -> nothing", {}),
    (f"ResourceApplyFtrlV2({', '.join([*['resource[]'] * 3, 'float32[3,4]', *['float32[]'] * 5])}) -> nothing", {}),
    ("ResourceGatherNd(resource[], int32[3,1]) -> float32[3,4]", {}),
    *(
        (f"ResourceScatter{each}(resource[], int32[3], float32[3,4]) -> nothing", {})
        for each in ("Div", "Max", "Min", "Mul", "Sub")
    ),
    *((f"ResourceScatterNd{each}(resource[], int32[3,2], float32[3,4]) -> nothing", {}) for each in ("Add", "Max", "Min", "Sub")),
    *(
        (f"ResourceSparseApply{rule}({', '.join(inputs)}) -> nothing", {})
        for rule, inputs in {
            "Adadelta": [*["resource[]"] * 3, *["float32[]"] * 3, "float32[3,4]", _ROWS],
            "AdagradDA": [*["resource[]"] * 3, "float32[3,4]", _ROWS, *["float32[]"] * 3, "int64[]"],
            "AdagradV2": [*["resource[]"] * 2, *["float32[]"] * 2, "float32[3,4]", _ROWS],
            "CenteredRMSProp": [*["resource[]"] * 4, *["float32[]"] * 4, "float32[3,4]", _ROWS],
            "Ftrl": [*["resource[]"] * 3, "float32[3,4]", _ROWS, *["float32[]"] * 4],
            "FtrlV2": [*["resource[]"] * 3, "float32[3,4]", _ROWS, *["float32[]"] * 5],
            "KerasMomentum": [*["resource[]"] * 2, "float32[]", "float32[3,4]", _ROWS, "float32[]"],
            "ProximalAdagrad": [*["resource[]"] * 2, *["float32[]"] * 3, "float32[3,4]", _ROWS],
            "ProximalGradientDescent": ["resource[]", *["float32[]"] * 3, "float32[3,4]", _ROWS],
            "RMSProp": [*["resource[]"] * 3, *["float32[]"] * 4, "float32[3,4]", _ROWS],
        }.items()
    ),
    *((f"Segment{each}(float32[8,3], int32[8]) -> float32[?,3]", {}) for each in ("Mean", "Min", "Prod")),
    *((f"SparseSegment{each}(float32[9,3], int32[8], int32[8]) -> float32[?,3]", {}) for each in ("Sum", "SqrtN")),
    *(
        (f"SparseSegment{each}Grad(float32[4,3], int32[8], int32[8], int32[]) -> float32[9,3]", {})
        for each in ("Sum", "Mean", "SqrtN")
    ),
    ("SparseTensorDenseMatMul(int64[7,2], float32[7], int64[2], float32[5,4]) -> float32[6,4]", {}),
    *(
        (f"Stateless{each}(int32[2], int64[2]) -> float32[3,4]", {})
        for each in ("RandomNormal", "RandomUniform", "TruncatedNormal")
    ),
    ("SelfAdjointEigV2(float32[4,4]) -> float32[4], float32[4,4]", {}),
    ("StatelessMultinomial(float32[3,9], int32[], int64[2]) -> int64[3,4]", {}),
    ("StatelessRandomUniformFullInt(int32[2], int64[2]) -> int32[3,4]", {}),
    ("StatelessRandomUniformFullIntV2(int32[2], uint64[1], uint64[2], int32[]) -> int32[3,4]", {}),
    ("StatelessRandomUniformInt(int32[2], int64[2], int32[], int32[]) -> int32[3,4]", {}),
    ("StatelessTruncatedNormalV2(int32[2], uint64[1], uint64[2], int32[]) -> float32[3,4]", {}),
    *((f"TensorScatter{each}(float32[9,3], int32[4,1], float32[4,3]) -> float32[9,3]", {}) for each in ("Max", "Min", "Sub")),
    ("Svd(float32[4,4]) -> float32[4], float32[4,4], float32[4,4]", {}),
    ("UniqueV2(int64[9], int64[1]) -> int64[?], int32[9]", {}),
    ("UniqueWithCounts(int64[9]) -> int64[?], int32[9], int32[?]", {}),
    ("UniqueWithCountsV2(int64[9], int64[0]) -> int64[?], int32[9], int32[?]", {}),
    *((f"UnsortedSegment{each}(float32[8,3], int32[8], int32[]) -> float32[4,3]", {}) for each in ("Min", "Prod")),
)
NOT_ON_CPUS = {"SegmentSumV2", "SegmentMaxV2", "SegmentMinV2", "SegmentProdV2", "CTCLossV2", "CudnnRNNV3"}
"""Ops that have kernels for XLA or for GPUs alone."""


@pytest.mark.parametrize(("text", "attrs"), EXAMPLES, ids=lambda each: each.partition("(")[0] if isinstance(each, str) else "")
def test_a_recipe_makes_inputs_that_satisfy_the_op(text: str, attrs: dict[str, Any]) -> None:
    """A bench runs the op once and compares its results' shapes with the signature."""
    with plain_graphs():
        Bench(signature(text, **attrs), "CPU:0")


def test_every_recipe_is_run(graph: Any) -> None:  # noqa: F811
    """By the examples here, or by the test of a graph with many ops."""
    there = {op.op_type for op in graph} | {text.partition("(")[0] for text, _ in EXAMPLES}
    assert types_where(lambda entry: entry.recipe is not no_values) - there == NOT_ON_CPUS
    assert not any(
        kernel.device_type == "CPU" for name in NOT_ON_CPUS for kernel in kernels.get_registered_kernels_for_op(name).kernel
    )
