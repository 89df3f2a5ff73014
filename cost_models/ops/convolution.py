"""Convolutions and their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops.dense import PRODUCT, SIDES_MULTIPLE
from cost_models.ops.optype import OpType
from cost_models.ops.recipes import output_shape_at
from cost_models.ops.table import register
from cost_models.ops.work import GPU_COPY_BYTES_PER_NS, Formula, Work, nbytes, positive_integers, sides

_EFFICIENCY, _DEPTHWISE_EFFICIENCY = 0.45, 0.03
"""Shares of a GPU's matrix rate that large convolutions reach. A CPU reaches twice that."""
_CALL_NS, _FILTER_CALL_NS = 60_000.0, 120_000.0
"""Least time of oneDNN's convolutions on a CPU, and of their gradients by the filter, measured on two cores and on sixteen."""


@dataclass(frozen=True, slots=True)
class _Roles:
    """Which tensor of an op is which: an index into its inputs, or -1 for its output."""

    image: int
    weights: int
    result: int

    def of(self, op: OpSignature) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        """Image, weights and result of the forward convolution."""
        return self._spec(op, self.image), self._spec(op, self.weights), self._spec(op, self.result)

    @property
    def is_gradient(self) -> bool:
        return self.result >= 0

    @staticmethod
    def _spec(op: OpSignature, index: int) -> TensorSpec:
        return next(iter(op.outputs[:1] if index < 0 else op.inputs[index : index + 1]), TensorSpec("float32", None))


_FORWARD, _OF_IMAGE, _OF_FILTER = _Roles(0, 1, -1), _Roles(-1, 1, 2), _Roles(0, -1, 2)


def channels_first_bytes(op: OpSignature, *, fused: bool) -> int:
    """Bytes that a forward convolution's kernel allocates on a GPU in addition if it works with channels first.

    If TensorFlow also makes one op of the convolution, its bias and its activation, image and result are copied in either layout
    (`LaunchFusedConv2DOp`).
    """
    more = _workspace(op, _FORWARD, channels_first=True) - _workspace(op, _FORWARD)
    return more + (2 * (op.inputs[0].nbytes + op.outputs[0].nbytes) if fused else 0)


def _workspace(op: OpSignature, roles: _Roles, *, channels_first: bool = False) -> int:
    """Bytes that a convolution's kernel allocates on a GPU while it runs.

    These are the filter in the library's layout, a padded copy of the image, and a gradient in another layout. Image, filter and
    result are copied once more if matrix units cannot read them. They cannot if the channels are first, which they are for
    gradients, or if the number of channels is no multiple of four.
    """
    images = tuple(spec for spec in (*op.inputs, *op.outputs) if len(spec.shape or ()) >= 4)
    image, weights, result = roles.of(op)
    if len(images) != 3 or any(len(spec.shape or ()) < 4 for spec in (image, weights, result)):
        return 0
    taps = sides((weights,), 0)
    channels = max(1, taps[-2])
    missing = -channels % SIDES_MULTIPLE
    workspace = weights.nbytes + _padded_bytes(op, image, taps)
    if roles.is_gradient:
        workspace += nbytes(op.outputs[:1])
    if roles.is_gradient or channels_first or missing:
        workspace += nbytes(images) + missing * image.nbytes // channels
    return workspace


def _convolution(roles: _Roles, efficiency: float = _EFFICIENCY, depthwise: bool = False) -> Formula:
    """2·(outputs of the forward convolution)·(filter taps and input channels), the same for both gradients."""

    def formula(op: OpSignature) -> Work:
        image, weights, result = roles.of(op)
        taps = sides((weights,), 0)
        depth = math.prod(taps[:-2] if depthwise else taps[:-1])
        missing = -max(1, taps[-2] if len(taps) > 1 else 1) % SIDES_MULTIPLE
        copied = _padded_bytes(op, image, taps) + (image.nbytes if missing else 0)
        return Work(
            flops=2.0 * result.elements * depth,
            nbytes=nbytes((image, weights, result)),
            is_product=True,
            efficiency=efficiency,
            cpu_efficiency=min(1.0, 2 * efficiency),
            cpu_serial_ns=_FILTER_CALL_NS if roles is _OF_FILTER else _CALL_NS,
            gpu_serial_ns=2 * copied / GPU_COPY_BYTES_PER_NS,
            workspace_bytes=_workspace(op, roles),
        )

    return formula


def _padded_bytes(op: OpSignature, image: TensorSpec, taps: tuple[int, ...]) -> int:
    """Bytes of the copy that is made of an image whose two ends need unequal padding; 0 if no copy is made."""
    strides, shape = positive_integers(op, "strides"), image.shape or ()
    if op.attr("padding") != "SAME" or not len(strides) == len(shape) == len(taps) or None in shape:
        return 0
    channels_last = str(op.attr("data_format", "NHWC")).endswith("C")
    first = 1 if channels_last else 2
    padded = [int(side or 0) for side in shape]
    for axis, window in enumerate(taps[:-2], first):
        side, stride = padded[axis], strides[axis]
        padded[axis] += max(0, (-(-side // stride) - 1) * stride + window - side) % 2
    copied = math.prod(padded) * image.nbytes // max(1, image.elements)
    return copied if copied > image.nbytes else 0


register("Conv", OpType(work=_convolution(_FORWARD), differs=PRODUCT))
register("Conv2D Conv3D _FusedConv2D", OpType(work=_convolution(_FORWARD), start_factor=3.6, differs=PRODUCT))
register("DepthwiseConv2dNative", OpType(work=_convolution(_FORWARD, _DEPTHWISE_EFFICIENCY, depthwise=True), differs=PRODUCT))

_GRADIENT = OpType(differs=PRODUCT, wants_channels_first=True)
_IMAGE_GRADIENT, _FILTER_GRADIENT = (replace(_GRADIENT, recipe=output_shape_at(position)) for position in (0, 1))

register(
    "Conv2DBackpropInput Conv3DBackpropInputV2",
    replace(_IMAGE_GRADIENT, work=_convolution(_OF_IMAGE), start_factor=7.0),
)
register(
    "Conv2DBackpropFilter Conv3DBackpropFilterV2",
    replace(_FILTER_GRADIENT, work=_convolution(_OF_FILTER), start_factor=4.2),
)
register(
    "DepthwiseConv2dNativeBackpropInput",
    replace(_IMAGE_GRADIENT, work=_convolution(_OF_IMAGE, _DEPTHWISE_EFFICIENCY, depthwise=True)),
)
register(
    "DepthwiseConv2dNativeBackpropFilter",
    replace(_FILTER_GRADIENT, work=_convolution(_OF_FILTER, _DEPTHWISE_EFFICIENCY, depthwise=True)),
)
register("Conv3DBackpropInput Conv3DBackpropFilter", _GRADIENT)
register("Conv2DBackpropInputV2 Conv2DBackpropFilterV2", replace(_GRADIENT, differs=frozenset()))
