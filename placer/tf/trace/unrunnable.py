"""Kernels that are registered and fail when they run: a table of what TensorFlow's registry does not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorflow.python.util import _pywrap_util_port

from placer.tf.trace.node_attributes import Attrs, Value


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a node's attributes. Conditions are combined by `&` and negated by `~`."""

    attrs: frozenset[str]
    """The attributes that it reads."""
    holds: Callable[[Attrs], bool]

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.attrs | other.attrs, lambda attrs: self.holds(attrs) and other.holds(attrs))

    def __invert__(self) -> Condition:
        return Condition(self.attrs, lambda attrs: not self.holds(attrs))


def has(attr: str, *values: Value) -> Condition:
    """The attribute has one of these values."""
    return Condition(frozenset({attr}), lambda attrs: attrs.get(attr) in values)


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Ops whose registered kernel for a device type fails when it runs under a condition."""

    ops: frozenset[str]
    device_type: str
    when: Condition
    why: str
    """The limitation of the kernel, as a predicate of a sentence about it."""

    def forbids(self, op_type: str, device_type: str, attrs: Attrs) -> bool:
        return op_type in self.ops and device_type == self.device_type and self.when.holds(attrs)


CHANNELS_FIRST = has("data_format", b"NCHW", b"NCDHW", b"CHANNELS_FIRST")
DILATED = ~has("dilations", (1, 1, 1, 1), (1, 1, 1, 1, 1))
INTEGERS = has("T", "int32")
VECTORS = has("data_format", b"NCHW_VECT_C")
"""Channels in vectors of four. On a GPU, qint8 always has this format and no other type has it."""
MISMATCHED = Condition(VECTORS.attrs | {"T"}, lambda attrs: VECTORS.holds(attrs) != (attrs.get("T") == "qint8"))
ONEDNN = has("T", "float32") & Condition(frozenset(), lambda _: bool(_pywrap_util_port.IsMklEnabled()))
"""oneDNN is used (by default on recent x86 CPUs) and runs some ops itself. Which other dtypes it runs differs between CPUs."""

_CONV_GRADIENTS = ("Conv2DBackpropFilter", "Conv2DBackpropInput", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2")
_DEPTHWISE_GRADIENTS = ("DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput")
_CONV = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", *_CONV_GRADIENTS, *_DEPTHWISE_GRADIENTS)
_AVERAGES = ("AvgPool", "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad")
_MAXIMA_2D = ("MaxPoolGrad", "MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPoolGradV2", "MaxPoolV2")
_MAXIMA_3D = ("MaxPool3DGrad", "MaxPool3DGradGrad")
_NORM_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
_VECTORISED = ("DepthToSpace", "SpaceToDepth", "MaxPool", "MaxPoolV2")
_SCATTERS = [
    f"{k}{u}" for k in ("ResourceScatterNd", "ScatterNd", "TensorScatter") for u in ("Add", "Sub", "Min", "Max", "Update")
]
_POLICED = ("GatherNd", "ScatterNd", "ScatterNdNonAliasingAdd", *_SCATTERS)

_LAST_ONLY = "runs with channels last only (NHWC)"

UNRUNNABLE = (
    Unrunnable(frozenset({*_CONV, *_AVERAGES, "MaxPool3D"}), "CPU", CHANNELS_FIRST & ~ONEDNN, _LAST_ONLY),
    Unrunnable(frozenset({"MaxPool"}), "CPU", CHANNELS_FIRST & ~(ONEDNN & ~has("padding", b"EXPLICIT")), _LAST_ONLY),
    # oneDNN runs the gradient of a MaxPool only with that MaxPool on the same device, which one node cannot guarantee.
    Unrunnable(frozenset({"Conv", *_MAXIMA_2D, *_MAXIMA_3D}), "CPU", CHANNELS_FIRST, _LAST_ONLY),
    Unrunnable(
        frozenset(_NORM_GRADIENTS),
        "CPU",
        CHANNELS_FIRST & has("is_training", False) & ~(ONEDNN & has("data_format", b"NCHW")),
        "runs with channels last only (NHWC) outside training",
    ),
    Unrunnable(
        frozenset({"Conv3D", "DepthwiseConv2dNative", *_CONV_GRADIENTS}), "CPU", DILATED & ~ONEDNN, "runs without dilation only"
    ),
    Unrunnable(frozenset({"MaxPool", "MaxPoolV2"}), "CPU", VECTORS, "does not know channels in vectors (NCHW_VECT_C)"),
    Unrunnable(
        frozenset(_VECTORISED), "GPU", MISMATCHED, "takes qint8 with channels in vectors (NCHW_VECT_C), and nothing else so"
    ),
    Unrunnable(
        frozenset({"Conv", "Conv2D", "Conv2DBackpropInput"}),
        "GPU",
        INTEGERS & CHANNELS_FIRST,
        "runs integers with channels last only (NHWC)",
    ),
    Unrunnable(frozenset({"Conv2DBackpropInput"}), "GPU", INTEGERS & DILATED, "runs integers without dilation only"),
    Unrunnable(
        frozenset(_POLICED),
        "GPU",
        has("bad_indices_policy", b"ERROR") & ~INTEGERS,  # their int32 kernels run on the host
        "cannot raise for an index out of range, as bad_indices_policy asks",
    ),
    Unrunnable(
        frozenset({"EmptyTensorList", "TensorListConcatLists", "TensorListPushBack", "TensorListReserve"}),
        "GPU",
        has("element_dtype", "string"),
        "holds a list whose strings no copy takes to or from a GPU",
    ),
    Unrunnable(
        frozenset({"OptionalFromValue"}),
        "GPU",
        Condition(frozenset({"Toutput_types"}), lambda attrs: "string" in (attrs.get("Toutput_types") or ())),  # type: ignore[operator]
        "holds strings, which TensorFlow keeps on the host",
    ),
)
"""The entries for CPUs were found by running each kernel, those for GPUs in the source and the documentation of the kernels."""
