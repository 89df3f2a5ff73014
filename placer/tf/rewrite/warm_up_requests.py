"""Requests that a SavedModel comes with, for TensorFlow Serving's warm-up: examples of the sizes that signatures leave open."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from placer.tf.rewrite.exporting import call_types

FILE = Path("assets.extra", "tf_serving_warmup_requests")
"""Where TensorFlow Serving looks for them: a TFRecord file of its PredictionLog messages."""
_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "placer.warm_up_requests"
_FIELDS: dict[str, list[tuple[str, int, str, bool]]] = {
    "ModelSpec": [("signature_name", 3, "", False)],
    "Input": [("key", 1, "", False), ("value", 2, tensor_pb2.TensorProto.DESCRIPTOR.full_name, False)],
    "PredictRequest": [("model_spec", 1, f"{_PACKAGE}.ModelSpec", False), ("inputs", 2, f"{_PACKAGE}.Input", True)],
    "PredictLog": [("request", 1, f"{_PACKAGE}.PredictRequest", False)],
    "PredictionLog": [("predict_log", 6, f"{_PACKAGE}.PredictLog", False)],
}
"""The fields that are read of TensorFlow Serving's messages: name, number, message ("" for text), and whether it is repeated."""


def open_sizes(folder: Path, signatures: dict[str, Any]) -> dict[str, dict[str, tuple[int, ...]]]:
    """By signature and input: the shape that the first request has, for inputs whose type leaves a size open.

    A file that cannot be read counts as none: the model can be used without it.

    Args:
        folder: of the SavedModel.
        signatures: its ConcreteFunctions, by name.
    """
    if not (folder / FILE).exists():
        return {}
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    try:
        for record in tf.data.TFRecordDataset(str(folder / FILE)):
            request = _prediction_log().FromString(record.numpy()).predict_log.request
            name = request.model_spec.signature_name or "serving_default"
            if name in signatures and name not in shapes:
                _, types = call_types(signatures[name])
                given = {each.key: tuple(dim.size for dim in each.value.tensor_shape.dim) for each in request.inputs}
                shapes[name] = {
                    key: shape
                    for key, shape in given.items()
                    if key in types and not types[key].shape.is_fully_defined() and types[key].shape.is_compatible_with(shape)
                }
    except (DecodeError, tf.errors.OpError):
        return {}
    return shapes


@functools.cache
def _prediction_log() -> Any:
    """The class of TensorFlow Serving's message PredictionLog, with the fields that are read."""
    file = descriptor_pb2.FileDescriptorProto(name="placer/warm_up_requests.proto", package=_PACKAGE, syntax="proto3")
    file.dependency.append(tensor_pb2.DESCRIPTOR.name)
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, number, kind, is_repeated in fields:
            field = described.field.add(name=name, number=number, type=_Field.TYPE_MESSAGE if kind else _Field.TYPE_STRING)
            field.label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
            if kind:
                field.type_name = f".{kind}"
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.PredictionLog"))
