"""Where an upper bound of a value gives an upper bound of a size or of another value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.tf._private.func_graphs import static_value

_ALL = range(64)

_POSITIONS: dict[str, tuple[int, ...] | range] = {
    # Values from values.
    **dict.fromkeys(("Identity", "StopGradient", "Cast", "ExpandDims", "Squeeze", "Ceil", "Floor", "Round", "Snapshot"), (0,)),
    **dict.fromkeys(("Pack", "ConcatV2", "AddN", "AddV2", "Add", "Maximum", "Minimum", "Mul", "IdentityN"), _ALL),
    **dict.fromkeys(("Prod", "Sum", "Max", "Min", "Sub", "FloorDiv", "TruncateDiv", "RealDiv", "Div", "GatherV2"), (0,)),
    **dict.fromkeys(("Unpack", "SplitV"), (0,)),
    **dict.fromkeys(("SelectV2", "Split"), (1, 2)),
    # Sizes from values.
    **dict.fromkeys(
        ("Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput", "StridedSliceGrad"), (0,)
    ),
    **dict.fromkeys(("Empty", "StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"), (0,)),
    **dict.fromkeys(("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"), (0,)),
    **dict.fromkeys(("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"), (0,)),
    **dict.fromkeys(("Fill", "Tile", "BroadcastTo", "Slice", "StridedSlice", "Reshape", "Pad", "PadV2"), (0, 1, 2)),
    **dict.fromkeys(("Range", "OneHot", "TopKV2", "DenseBincount", "SparseToDense"), (1,)),
    **dict.fromkeys(("TensorListReserve", "EmptyTensorList", "TensorListStack"), (0, 1)),
    **dict.fromkeys(("ScatterNd", "UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"), (2,)),
    **dict.fromkeys(("NonMaxSuppressionV3", "NonMaxSuppressionV4", "NonMaxSuppressionV5"), (2,)),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"), (1,)),
    "BroadcastGradientArgs": (0, 1),
    # Sizes only: whatever the value is.
    **dict.fromkeys(("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"), _ALL),
}
"""By op type, the inputs of which an upper bound gives upper bounds of the outputs' sizes and values, as long as no value is
negative. `BroadcastGradientArgs` gives axes; where sizes grow together, these stay the same."""

_SUBTRACTED = {"Slice": (1,), "StridedSlice": (1, 3), "FloorDiv": (1,), "TruncateDiv": (1,), "RealDiv": (1,), "Div": (1,)}

_DATA: dict[str, tuple[int, ...] | range] = {
    **dict.fromkeys(("Identity", "StopGradient", "Cast", "ExpandDims", "Squeeze", "Snapshot", "Sum", "Max", "Min", "Prod"), (0,)),
    **dict.fromkeys(("Tile", "BroadcastTo", "Slice", "StridedSlice", "Reshape", "Pad", "PadV2", "GatherV2"), (0,)),
    **dict.fromkeys(
        ("Pack", "AddN", "AddV2", "Add", "Maximum", "Minimum", "Mul", "Sub", "FloorDiv", "RealDiv", "IdentityN"), _ALL
    ),
    "IdentityN": _ALL,
    "Fill": (1,),
}
"""By op type, the inputs whose values decide no size."""

_FALLING = {"Sub": 1, "Slice": 1, "StridedSlice": 1, "Range": 0}
"""By op type, the input of which a lower bound gives an upper bound of the outputs."""

LIMITING = ("FloorMod", "Minimum")
"""Op types whose results have an upper bound if one input is a constant."""

_SIZES = frozenset({"Shape", "ShapeN", "Size"})
_KEEPS_SIGN = frozenset(
    {
        *("Identity", "Cast", "Pack", "ConcatV2", "ExpandDims", "Squeeze", "Reshape", "AddN", "AddV2", "Add", "Mul", "Minimum"),
        *("Maximum", "Prod", "Sum", "Max", "Min", "FloorDiv", "GatherV2", "Slice", "StridedSlice", "Unpack", "SplitV", "Ceil"),
        *("FloorMod", "RealDiv", "Floor", "Round"),
    }
)
"""Op types whose results are not negative if no input is."""


def is_monotone(node: NodeDef, op: Any, position: int) -> bool:
    """Whether input `position` may be replaced by an upper bound.

    Args:
        node: the op.
        op: the same as TensorFlow's object, for the values of its constants.
        position: among its data inputs.
    """
    if node.op in ("DynamicStitch", "ParallelDynamicStitch"):
        return position >= len(op.inputs) // 2
    if node.op == "Sum" and position == 1:
        return bool(op.inputs[1].op.type == "BroadcastGradientArgs")
    if position not in _POSITIONS.get(node.op, ()) or position in _SUBTRACTED.get(node.op, ()):
        return False
    others = [static_value(tensor) for k, tensor in enumerate(op.inputs) if k != position]
    if node.op in ("Mul", "FloorDiv", "TruncateDiv", "RealDiv", "Div"):
        return all(value is None or (value >= 0).all() for value in others)
    if node.op == "Range":
        return others[1] is not None and bool((others[1] > 0).all())
    if node.op == "StridedSlice" and position == 2:
        return others[2] is not None and bool((others[2] > 0).all()) and not _masks(node)
    return True


def may_decide_size(node: NodeDef, op: Any, position: int) -> bool:
    """Whether a size may follow from the value of input `position`: a whole number, or a limit of a range."""
    is_number = node.op == "Range" or not op.inputs[position].dtype.is_floating
    return is_number and position not in _DATA.get(node.op, ())


def _masks(node: NodeDef) -> bool:
    return any(node.attr[name].i for name in ("ellipsis_mask", "new_axis_mask"))


def is_falling(node: NodeDef, position: int) -> bool:
    """Whether input `position` may be replaced by zeros, if it is not negative."""
    return _FALLING.get(node.op) == position


def is_nonnegative(node: NodeDef, op: Any, nonnegative: Callable[[int], bool]) -> bool:
    """Whether no result of an op can be negative.

    Args:
        node, op: see `is_monotone`.
        nonnegative: whether the input of this position is known not to be negative.
    """
    if node.op in _SIZES:
        return True
    return node.op in _KEEPS_SIGN and all(nonnegative(k) or _is_constant_above(t, 0) for k, t in enumerate(op.inputs))


def largest_value(node: NodeDef, op: Any) -> int | None:
    """The largest result of a remainder or minimum of integers, whatever one of its inputs is; None for another op."""
    if node.op not in LIMITING or not op.inputs[0].dtype.is_integer:
        return None
    if node.op == "FloorMod":
        return int(static_value(op.inputs[1]).max()) - 1 if _is_constant_above(op.inputs[1], 1) else None
    limits = [value for tensor in op.inputs if (value := static_value(tensor)) is not None]
    return int(limits[0].max()) if limits and limits[0].size else None


def _is_constant_above(tensor: Any, least: int) -> bool:
    value = static_value(tensor)
    return value is not None and value.dtype.kind in "iuf" and bool((value >= least).all())
