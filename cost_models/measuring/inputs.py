"""Inputs on which an op of a given signature really does what the signature says.

A signature has shapes and no values, and some values decide what happens: an axis, a permutation, indices, sizes. Those are
worked out from the shapes here, op type by op type. Whether they were right shows when the op is run: it must give the
signature's shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cost_models.base import DTYPE_BYTES, OpSignature, TensorSpec

Shape: TypeAlias = tuple[int, ...]
Recipe: TypeAlias = Callable[[OpSignature], Mapping[int, Any]]
"""Gives the values of those inputs whose values matter, by position."""

TABLE_BYTES = 2**28
"""No scratch table is made larger than this."""


class UnmeasurableError(Exception):
    """An op that cannot be run by itself, and why, in words."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A variable to be made for the measurement and forgotten after it."""

    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor to pass."""

    array: Any
    steers: bool
    """Decides what the op does, so that it belongs in host memory; else it is the data that the op works on."""


def inputs_of(op: OpSignature) -> list[Scratch | Value]:
    """What to pass to an op of this signature.

    Raises:
        UnmeasurableError: it acts on more than its inputs, or what it should be given does not follow from the signature.
    """
    check_runnable(op)
    op = _assumed(op)
    values = RECIPES.get(op.op_type, _nothing)(op)
    rng = np.random.default_rng(0)
    inputs: list[Scratch | Value] = []
    for position, spec in enumerate(op.inputs):
        if spec.dtype == "resource":
            inputs.append(_scratch(op))
        elif position in values:
            inputs.append(Value(_shaped(values[position], spec, op), steers=not isinstance(values[position], _Data)))
        else:
            inputs.append(Value(anything(rng, spec), steers=False))
    return inputs


# -- what is not run -----------------------------------------------------------------------------------------------------

_ON_VARIABLES = ("ResourceApply", "ResourceGather", "ResourceScatter", "ResourceSparseApply")
_VARIABLE_OPS = frozenset({"ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_RANDOM = frozenset(
    {
        *("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt", "RandomShuffle"),
        *("Multinomial", "RandomGamma", "RandomPoissonV2"),
    }
)


_OUTSIDE = frozenset({"PyFuncStateless", "Abort", "Batch", "Unbatch", "UnbatchGrad"})
"""Not stateful to TensorFlow, and yet they run the user's Python, end the process or wait for other calls."""


def check_runnable(op: OpSignature) -> None:
    """UnmeasurableError for an op that acts on more than its inputs, or for whose inputs no values can be made. Makes none."""
    op = _assumed(op)
    definition = op_def_registry.get(op.op_type)
    if definition is None:
        raise UnmeasurableError("it is no op of its own")
    if any(a.type in ("func", "list(func)") for a in definition.attr):
        raise UnmeasurableError("it calls a function")
    on_scratch = op.op_type.startswith(_ON_VARIABLES) or op.op_type in _VARIABLE_OPS
    outside = op.op_type in _OUTSIDE or op.op_type.startswith("Debug")  # those write where an attribute says
    if outside or (definition.is_stateful and not on_scratch and op.op_type not in _RANDOM):
        raise UnmeasurableError("it has side effects")
    for spec in op.inputs:
        if spec.dtype == "resource" and not on_scratch:
            raise UnmeasurableError("it works on a resource that is no variable")
        if spec.shape is None or None in spec.shape:
            raise UnmeasurableError("the shape of an input is not known")
        if spec.dtype not in DTYPE_BYTES or spec.dtype == "variant" or spec.dtype.startswith(("q", "float8", "int4", "uint4")):
            raise UnmeasurableError(f"no values of type {spec.dtype} can be made")


def _assumed(op: OpSignature) -> OpSignature:
    """With the one shape that is never known: of what cuDNN keeps for a batch norm's gradient, which is often nothing."""
    if op.op_type != "FusedBatchNormGradV3":
        return op
    return replace(op, inputs=(*op.inputs[:5], TensorSpec(op.inputs[5].dtype, (0,))))


def _scratch(op: OpSignature) -> Scratch:
    """The variable that an op on variables expects: rows of a table for sparse ones, else what goes in or comes out."""
    tensors = [spec for spec in (*op.inputs, *op.outputs) if spec.dtype != "resource"]
    if op.op_type.startswith(("ResourceGather", "ResourceScatter", "ResourceSparseApply")):
        indices = _indices_of(op)
        rows = op.outputs[0] if op.outputs else max(tensors, key=lambda spec: spec.elements)
        depth = _known(indices)[-1] if "Nd" in op.op_type else 1
        row = _known(rows)[len(_known(indices)) - ("Nd" in op.op_type) :]
        count = max(1, min(16 * indices.elements, TABLE_BYTES // (math.prod(row) * DTYPE_BYTES[rows.dtype] or 1)))
        sides = (count,) if depth == 1 else (max(2, round(count ** (1 / depth))),) * depth
        return Scratch(rows.dtype, (*sides, *row))
    largest = max(tensors, key=lambda spec: spec.elements)
    return Scratch(largest.dtype, _known(largest))


def _indices_of(op: OpSignature) -> TensorSpec:
    position = len(op.inputs) - 1 if op.op_type.startswith("ResourceSparseApply") else 1
    while op.inputs[position].dtype not in ("int32", "int64"):
        position -= 1  # an option, such as a learning rate's schedule, may come after the indices
    return op.inputs[position]


# -- values --------------------------------------------------------------------------------------------------------------


class _Data:
    """A recipe's value that is bulk data all the same: it goes where the op runs."""

    def __init__(self, array: Any) -> None:
        self.array = array


def _nothing(_: OpSignature) -> Mapping[int, Any]:
    return {}


def _shaped(value: Any, spec: TensorSpec, op: OpSignature) -> Any:
    array = np.asarray(value.array if isinstance(value, _Data) else value)
    if array.size != spec.elements:
        raise UnmeasurableError(f"its inputs' shapes do not tell what {op.op_type} should be given")
    return array.astype(tf.as_dtype(spec.dtype).as_numpy_dtype).reshape(_known(spec))


def anything(rng: np.random.Generator, spec: TensorSpec) -> Any:
    """Ordinary values: nothing is zero, negative or special, a few thousand different ones are repeated."""
    shape = _known(spec)
    some = rng.random(min(spec.elements, 2**16))
    if spec.dtype == "string":
        return np.resize(np.char.mod("%08d", (some * 1e8).astype(np.int64)).astype(object), shape)
    if spec.dtype == "bool":
        return np.resize(some < 0.5, shape)
    some = np.ones_like(some) if "int" in spec.dtype else 0.1 + 0.9 * some
    return np.resize(some.astype(tf.as_dtype(spec.dtype).as_numpy_dtype), shape)


def _below(end: int, spec: TensorSpec) -> _Data:
    """Random indices."""
    some = np.random.default_rng(1).integers(0, max(end, 1), min(spec.elements, 2**20))
    return _Data(np.resize(some, _known(spec)))


def _ascending(count: int, end: int) -> _Data:
    """Sorted ids from 0 to end - 1."""
    return _Data(np.sort(np.resize(np.arange(max(end, 1)), count)))


def _known(spec: TensorSpec) -> Shape:
    if spec.shape is None or None in spec.shape:
        raise UnmeasurableError("a shape that its inputs follow from is not known")
    return tuple(d for d in spec.shape if d is not None)


def _in(op: OpSignature, position: int) -> Shape:
    return _known(op.inputs[position])


def _out(op: OpSignature, position: int = 0) -> Shape:
    return _known(op.outputs[position])


def _axis_where(fits: Callable[[int], bool], rank: int) -> int:
    for axis in range(rank):
        if fits(axis):
            return axis
    raise UnmeasurableError("its shapes do not tell along which axis it works")


# -- recipes -------------------------------------------------------------------------------------------------------------

RECIPES: dict[str, Recipe] = {}


def _for(op_types: str) -> Callable[[Recipe], Recipe]:
    def register(recipe: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(op_types.split(), recipe))
        return recipe

    return register


@_for("Reshape BroadcastTo")
def _output_shape_second(op: OpSignature) -> Mapping[int, Any]:
    return {1: _out(op)}


@_for("Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter")
def _filter_sizes(op: OpSignature) -> Mapping[int, Any]:
    return {1: _out(op)}


@_for(
    """Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput AvgPoolGrad AvgPool3DGrad Fill Empty
    RandomUniform RandomStandardNormal TruncatedNormal"""
)
def _output_shape_first(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op)}


@_for("RandomUniformInt")
def _random_integers(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), 1: 0, 2: 1000}


@_for("StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal StatelessRandomUniformFullInt")
def _stateless(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), 1: (1, 2)}


@_for("StatelessRandomUniformInt")
def _stateless_integers(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), 1: (1, 2), 2: 0, 3: 1000}


@_for("StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2 StatelessRandomUniformFullIntV2")
def _stateless_by_key(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), 1: 1, 2: (0, 0), 3: 1}


@_for("StatelessRandomUniformIntV2")
def _stateless_integers_by_key(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), 1: 1, 2: (0, 0), 3: 1, 4: 0, 5: 1000}


@_for("Range")
def _range(op: OpSignature) -> Mapping[int, Any]:
    return {0: 0, 1: _out(op)[0], 2: 1}


@_for("LinSpace")
def _linspace(op: OpSignature) -> Mapping[int, Any]:
    return {0: 0, 1: 1, 2: _out(op)[0]}


@_for("Tile")
def _tile(op: OpSignature) -> Mapping[int, Any]:
    return {1: [new // max(old, 1) for new, old in zip(_out(op), _in(op, 0), strict=True)]}


@_for("Pad PadV2 MirrorPad")
def _pad(op: OpSignature) -> Mapping[int, Any]:
    return {1: [((new - old) // 2, new - old - (new - old) // 2) for new, old in zip(_out(op), _in(op, 0), strict=True)]}


@_for("MirrorPadGrad")
def _pad_back(op: OpSignature) -> Mapping[int, Any]:
    return {1: [((old - new) // 2, old - new - (old - new) // 2) for new, old in zip(_out(op), _in(op, 0), strict=True)]}


@_for("Slice")
def _slice(op: OpSignature) -> Mapping[int, Any]:
    return {1: [0] * len(_out(op)), 2: _out(op)}


@_for("StridedSlice")
def _strided_slice(op: OpSignature) -> Mapping[int, Any]:
    return dict(enumerate(_strides(op, _in(op, 0), _out(op)), start=1))


@_for("StridedSliceGrad")
def _strided_slice_back(op: OpSignature) -> Mapping[int, Any]:
    return {0: _out(op), **dict(enumerate(_strides(op, _out(op), _in(op, 4)), start=1))}


def _strides(op: OpSignature, whole: Shape, part: Shape) -> tuple[list[int], list[int], list[int]]:
    """Begin, end and stride for each entry of the slice, reading its masks."""

    def masked(name: str, entry: int) -> bool:
        return bool(int(op.attr(name, 0) or 0) >> entry & 1)  # type: ignore[arg-type]

    entries = op.inputs[1].elements
    plain = sum(not masked("new_axis_mask", k) and not masked("ellipsis_mask", k) for k in range(entries))
    sides, kept = list(whole), list(part)
    begin, end, stride = [], [], []
    for k in range(entries):
        if masked("ellipsis_mask", k):
            skipped = max(0, len(whole) - plain)
            del sides[:skipped], kept[:skipped]
            slot = (0, 0, 1)
        elif masked("new_axis_mask", k):
            del kept[:1]
            slot = (0, 1, 1)
        elif masked("shrink_axis_mask", k):
            del sides[:1]
            slot = (0, 1, 1)
        else:
            side, keep = sides.pop(0), kept.pop(0)
            to_the_end = masked("end_mask", k) and not masked("begin_mask", k)
            by = -(-side // keep) if masked("end_mask", k) and masked("begin_mask", k) and keep else 1
            slot = (side - keep if to_the_end else 0, keep, by)
        begin.append(slot[0])
        end.append(slot[1])
        stride.append(slot[2])
    return begin, end, stride


@_for("ConcatV2 Concat")
def _concat(op: OpSignature) -> Mapping[int, Any]:
    position, parts = (len(op.inputs) - 1, op.inputs[:-1]) if op.op_type == "ConcatV2" else (0, op.inputs[1:])
    shapes, whole = [_known(part) for part in parts], _out(op)
    return {position: _axis_where(lambda axis: sum(s[axis] for s in shapes) == whole[axis], len(whole))}


@_for("Split")
def _split(op: OpSignature) -> Mapping[int, Any]:
    whole, part = _in(op, 1), _out(op)
    return {0: _axis_where(lambda axis: part[axis] * len(op.outputs) == whole[axis], len(whole))}


@_for("SplitV")
def _split_by_sizes(op: OpSignature) -> Mapping[int, Any]:
    whole, parts = _in(op, 0), [_known(spec) for spec in op.outputs]
    axis = _axis_where(lambda axis: sum(part[axis] for part in parts) == whole[axis], len(whole))
    return {1: [part[axis] for part in parts], 2: axis}


@_for("Transpose ConjugateTranspose")
def _transpose(op: OpSignature) -> Mapping[int, Any]:
    """A permutation that gives the output's shape and moves something, where one does."""
    old, new = _in(op, 0), _out(op)
    if len(old) > 6:
        raise UnmeasurableError("its shapes do not tell the permutation")
    fitting = [p for p in itertools.permutations(range(len(old))) if tuple(old[k] for k in p) == new]
    return {1: fitting[min(1, len(fitting) - 1)] if fitting[0] == tuple(range(len(old))) else fitting[0]}


@_for("Sum Mean Max Min Prod All Any EuclideanNorm")
def _reduce(op: OpSignature) -> Mapping[int, Any]:
    """The first axes that, reduced, leave the output's shape."""
    shape, left = _in(op, 0), _out(op)
    for axes in itertools.combinations(range(len(shape)), op.inputs[1].elements):
        kept = [1 if axis in axes else side for axis, side in enumerate(shape)]
        rest = [side for axis, side in enumerate(shape) if axis not in axes]
        if tuple(kept if op.attr("keep_dims") else rest) == left:
            return {1: axes}
    raise UnmeasurableError("its shapes do not tell which axes it reduces")


@_for("ArgMax ArgMin")
def _reduce_one(op: OpSignature) -> Mapping[int, Any]:
    shape, left = _in(op, 0), _out(op)
    return {1: _axis_where(lambda axis: shape[:axis] + shape[axis + 1 :] == left, len(shape))}


@_for("Cumsum Cumprod CumulativeLogsumexp")
def _cumulative(op: OpSignature) -> Mapping[int, Any]:
    return {1: len(_in(op, 0)) - 1}


@_for("ReverseV2")
def _reverse(op: OpSignature) -> Mapping[int, Any]:
    return {1: range(op.inputs[1].elements)}


@_for("Roll")
def _roll(op: OpSignature) -> Mapping[int, Any]:
    return {2: range(op.inputs[2].elements)}


@_for("ReverseSequence")
def _reverse_sequence(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(_in(op, 0)[int(op.attr("seq_dim", 0) or 0)], op.inputs[1])}  # type: ignore[arg-type]


@_for("OneHot")
def _one_hot(op: OpSignature) -> Mapping[int, Any]:
    depth = _out(op)[int(op.attr("axis", -1))]  # type: ignore[arg-type]
    return {0: _below(depth, op.inputs[0]), 1: depth}


@_for("Gather GatherV2")
def _gather(op: OpSignature) -> Mapping[int, Any]:
    table, indices, out = _in(op, 0), _in(op, 1), _out(op)
    if op.op_type == "Gather":
        return {1: _below(table[0], op.inputs[1])}
    batch = int(op.attr("batch_dims", 0) or 0)  # type: ignore[arg-type]
    axis = _axis_where(
        lambda axis: axis >= batch and table[:axis] + indices[batch:] + table[axis + 1 :] == out,
        len(table),
    )
    return {1: _below(table[axis], op.inputs[1]), 2: axis}


@_for("GatherNd")
def _gather_nd(op: OpSignature) -> Mapping[int, Any]:
    return {1: _points(op.inputs[1], _in(op, 0))}


@_for("TensorScatterUpdate TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin")
def _tensor_scatter(op: OpSignature) -> Mapping[int, Any]:
    return {1: _points(op.inputs[1], _in(op, 0))}


@_for("ScatterNd")
def _scatter_nd(op: OpSignature) -> Mapping[int, Any]:
    return {0: _points(op.inputs[0], _out(op)), 2: _out(op)}


def _points(spec: TensorSpec, table: Shape) -> _Data:
    """Random positions in a table, the last axis of `spec` being their coordinates."""
    shape = _known(spec)
    rng = np.random.default_rng(1)
    return _Data(np.stack([rng.integers(0, max(side, 1), shape[:-1]) for side in table[: shape[-1]]], axis=-1))


@_for(
    """ResourceGather ResourceScatterAdd ResourceScatterSub ResourceScatterMul ResourceScatterDiv ResourceScatterMax
    ResourceScatterMin ResourceScatterUpdate"""
)
def _rows_second(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(_scratch(op).shape[0], op.inputs[1])}


@_for("ResourceGatherNd ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdUpdate")
def _points_second(op: OpSignature) -> Mapping[int, Any]:
    return {1: _points(op.inputs[1], _scratch(op).shape)}


@_for(
    """ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 ResourceSparseApplyMomentum ResourceSparseApplyKerasMomentum
    ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2 ResourceSparseApplyRMSProp ResourceSparseApplyAdadelta
    ResourceSparseApplyCenteredRMSProp ResourceSparseApplyProximalAdagrad"""
)
def _rows_of_a_sparse_update(op: OpSignature) -> Mapping[int, Any]:
    return {op.inputs.index(_indices_of(op)): _below(_scratch(op).shape[0], _indices_of(op))}


@_for("UnsortedSegmentSum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd")
def _unsorted_segments(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(_out(op)[0], op.inputs[1]), 2: _out(op)[0]}


@_for("SegmentSum SegmentMean SegmentMax SegmentMin SegmentProd SegmentSumV2 SegmentMaxV2 SegmentMinV2 SegmentProdV2")
def _segments(op: OpSignature) -> Mapping[int, Any]:
    """Where the number of segments is not known, four rows each."""
    rows, out = _in(op, 1)[0], op.outputs[0].shape
    segments = out[0] if out and out[0] is not None else max(1, rows // 4)
    return {1: _ascending(rows, segments), 2: segments} if len(op.inputs) > 2 else {1: _ascending(rows, segments)}


@_for("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN")
def _sparse_segments(op: OpSignature) -> Mapping[int, Any]:
    rows, out = _in(op, 2)[0], op.outputs[0].shape
    segments = out[0] if out and out[0] is not None else max(1, rows // 4)
    return {1: _below(_in(op, 0)[0], op.inputs[1]), 2: _ascending(rows, segments)}


@_for("SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad")
def _sparse_segments_back(op: OpSignature) -> Mapping[int, Any]:
    rows = _in(op, 1)[0]
    return {1: _below(_out(op)[0], op.inputs[1]), 2: _ascending(rows, _in(op, 0)[0]), 3: _out(op)[0]}


@_for("SparseTensorDenseMatMul")
def _sparse_product(op: OpSignature) -> Mapping[int, Any]:
    shape = (_out(op)[0], _in(op, 3)[0])
    return {0: _points(op.inputs[0], shape), 2: shape}


@_for("Bincount DenseBincount")
def _bincount(op: OpSignature) -> Mapping[int, Any]:
    return {0: _below(_out(op)[-1], op.inputs[0]), 1: _out(op)[-1]}


@_for("SparseSoftmaxCrossEntropyWithLogits")
def _labels(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(_in(op, 0)[-1], op.inputs[1])}


@_for("InTopKV2")
def _in_top_k(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(_in(op, 0)[-1], op.inputs[1]), 2: 1}


@_for("TopKV2")
def _top_k(op: OpSignature) -> Mapping[int, Any]:
    return {1: _out(op)[-1]}


@_for("Unique UniqueV2 UniqueWithCounts ListDiff")
def _many_different(op: OpSignature) -> Mapping[int, Any]:
    return {
        position: _below(spec.elements, spec)
        for position, spec in enumerate(op.inputs)
        if spec.dtype != "string" and (position == 0 or op.op_type == "ListDiff")
    }


@_for("DynamicPartition")
def _partitions(op: OpSignature) -> Mapping[int, Any]:
    return {1: _below(len(op.outputs), op.inputs[1])}


@_for("DynamicStitch ParallelDynamicStitch")
def _stitch(op: OpSignature) -> Mapping[int, Any]:
    """Every index once."""
    half, start, values = len(op.inputs) // 2, 0, {}
    for position, spec in enumerate(op.inputs[:half]):
        values[position] = range(start, start + spec.elements)
        start += spec.elements
    return values


@_for("NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5")
def _suppression(op: OpSignature) -> Mapping[int, Any]:
    """Boxes of a tenth of the picture's side anywhere in it, of which a hundred are kept."""
    kept = op.outputs[0].shape
    options = dict(enumerate((0.5, 0.0, 0.0), start=3))
    limit = kept[0] if kept and kept[0] is not None and op.attr("pad_to_max_output_size") else 100
    return {0: _boxes(_in(op, 0)), 2: limit, **{k: v for k, v in options.items() if k < len(op.inputs)}}


@_for("CombinedNonMaxSuppression")
def _combined_suppression(op: OpSignature) -> Mapping[int, Any]:
    return {0: _boxes(_in(op, 0)), 2: _out(op)[1], 3: _out(op)[1], 4: 0.5, 5: 0.0}


def _boxes(shape: Shape) -> _Data:
    corners = np.random.default_rng(1).random((*shape[:-1], 2))
    return _Data(np.concatenate([corners, corners + 0.1], axis=-1))


@_for("ResizeBilinear ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBicubic ResizeArea")
def _resize(op: OpSignature) -> Mapping[int, Any]:
    return {1: _out(op)[1:3]}


@_for("CropAndResize")
def _crop(op: OpSignature) -> Mapping[int, Any]:
    return {1: _boxes(_in(op, 1)), 2: _below(_in(op, 0)[0], op.inputs[2]), 3: _out(op)[1:3]}


@_for("RFFT RFFT2D RFFT3D")
def _real_transform(op: OpSignature) -> Mapping[int, Any]:
    return {1: _in(op, 0)[-op.inputs[1].elements :]}


@_for("IRFFT IRFFT2D IRFFT3D")
def _real_transform_back(op: OpSignature) -> Mapping[int, Any]:
    return {1: _out(op)[-op.inputs[1].elements :]}


@_for("Cholesky CholeskyGrad MatrixInverse MatrixSolve MatrixTriangularSolve LogMatrixDeterminant MatrixDeterminant Lu")
def _well_conditioned(op: OpSignature) -> Mapping[int, Any]:
    *batch, rows, columns = _in(op, 0)
    return {0: _Data(np.broadcast_to(np.eye(rows, columns) * rows + 0.5, (*batch, rows, columns)))}


@_for("MatrixDiagV3")
def _diagonal(op: OpSignature) -> Mapping[int, Any]:
    return {1: 0, 2: -1, 3: -1, 4: 0}


@_for("MatrixDiagPartV3 MatrixSetDiagV3")
def _on_a_diagonal(op: OpSignature) -> Mapping[int, Any]:
    return {1: 0, 2: 0} if op.op_type == "MatrixDiagPartV3" else {2: 0}


@_for("MatrixBandPart")
def _band(op: OpSignature) -> Mapping[int, Any]:
    return {1: -1, 2: 0}


@_for("Substr")
def _substring(op: OpSignature) -> Mapping[int, Any]:
    return {1: np.zeros(_in(op, 1)), 2: np.full(_in(op, 2), 3)}


@_for("InvertPermutation")
def _permutation(op: OpSignature) -> Mapping[int, Any]:
    return {0: range(_in(op, 0)[0])}


@_for("ExpandDims")
def _new_axis(op: OpSignature) -> Mapping[int, Any]:
    shape, out = _in(op, 0), _out(op)
    return {1: _axis_where(lambda axis: out[axis] == 1 and out[:axis] + out[axis + 1 :] == shape, len(out))}
