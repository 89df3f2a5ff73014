"""Images: resizing, colours, decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import Difference, OpType
from cost_models.ops.recipes import indices_below, random_boxes, shape_in, shape_out
from cost_models.ops.table import register
from cost_models.ops.work import Work, elements, nbytes

_SUMS = frozenset({Difference.SUM_ORDER})
_DECODED_NS, _DECODED_NS_PER_ELEMENT = 2e6, 5.0
"""An image of unknown size: some milliseconds on one core."""
_CROP_FACTOR = 3
"""On five hosts cropping and resizing took 2.8 to 5.2 times as long as this formula gives for a resize, 3.4 in the median."""
_MEAN_NS_PER_ELEMENT = 0.8
"""One core computes the means of an image's channels."""
_GPU_CROP_NS, _GPU_MEAN_NS = 0.011, 0.017
"""A GPU's time for an element that is cropped, and for one of a mean, beside those of a resize."""


def _resize(op: OpSignature) -> Work:
    count = max(elements(op.inputs[:1]), elements(op.outputs))
    return Work(flops=8.0 * count, nbytes=nbytes(op.inputs[:1]) + nbytes(op.outputs))


def _crop(op: OpSignature) -> Work:
    work = _resize(op)
    return replace(work, flops=_CROP_FACTOR * work.flops, gpu_serial_ns=_GPU_CROP_NS * elements(op.outputs))


def _contrast(op: OpSignature) -> Work:
    count = elements(op.inputs[:1])
    return replace(_resize(op), cpu_serial_ns=_MEAN_NS_PER_ELEMENT * count, gpu_serial_ns=_GPU_MEAN_NS * count)


def _decode(op: OpSignature) -> Work:
    return Work(kernels=0, cpu_serial_ns=max(_DECODED_NS, _DECODED_NS_PER_ELEMENT * elements(op.outputs)))


def _new_size(op: OpSignature) -> Mapping[int, Any]:
    return {1: shape_out(op)[1:3]}


def _boxes(op: OpSignature) -> Mapping[int, Any]:
    return {1: random_boxes(shape_in(op, 1)), 2: indices_below(shape_in(op, 0)[0], op.inputs[2]), 3: shape_out(op)[1:3]}


register("ResizeBilinear ResizeNearestNeighbor ResizeBicubic ResizeArea", OpType(work=_resize, recipe=_new_size))
register("ResizeNearestNeighborGrad", OpType(work=_resize, differs=_SUMS, recipe=_new_size))
register("ResizeBilinearGrad", OpType(work=_resize, differs=_SUMS))
register(
    """ResizeBicubicGrad ScaleAndTranslate ImageProjectiveTransformV2 ImageProjectiveTransformV3 RGBToHSV HSVToRGB AdjustHue
    AdjustSaturation DrawBoundingBoxes""",
    OpType(work=_resize),
)
register("CropAndResize", OpType(work=_crop, awaited=True, recipe=_boxes))
register("CropAndResizeGradImage CropAndResizeGradBoxes", OpType(work=_crop, differs=_SUMS))
register("AdjustContrastv2", OpType(work=_contrast, differs=_SUMS))
register(
    "DecodeJpeg DecodePng DecodeBmp DecodeGif DecodeImage DecodeAndCropJpeg DecodeWebP EncodeJpeg EncodePng",
    OpType(work=_decode),
)
