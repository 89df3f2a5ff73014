"""Resource handles and variables: where they are, what they hold, and new handles to storage."""

from __future__ import annotations

import functools
import re
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.resource_handle_pb2 import ResourceHandleProto
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.python.eager import core
from tensorflow.python.ops import handle_data_util, resource_variable_ops

from placer.common.device_spec import parse

ResourceVariable = resource_variable_ops.BaseResourceVariable
PlainVariable = resource_variable_ops.ResourceVariable
UninitializedVariable = resource_variable_ops.UninitializedVariable


def location(value: Any) -> str:
    """The device that holds an eager tensor's bytes or the state behind a handle; "" where that is unknown."""
    if not hasattr(value, "backing_device"):
        return ""
    is_handle = isinstance(value, tf.__internal__.EagerTensor) and value.dtype == tf.resource
    return str(value.device if is_handle else value.backing_device)


def held_specs(handle: Any) -> list[tf.TensorSpec]:
    """The types of the values behind a variable's handle; empty for any other tensor."""
    data = handle_data_util.get_handle_data(handle)
    if data is None or not data.is_set:
        return []
    return [tf.TensorSpec(part.shape, part.dtype) for part in data.shape_and_type]


def copy_handle_data(source: Any, target: Any) -> None:
    """Copies to `target` the types of the values behind the resource or variant `source`."""
    handle_data_util.copy_handle_data(source, target)


def has_value(handle: Any) -> bool:
    """Whether a variable has a value; True too where that cannot be asked, inside a function or for replicas."""
    if tf.is_symbolic_tensor(handle) or is_parallel(handle):
        return True
    with tf.init_scope():
        return not tf.executing_eagerly() or bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def variable_of(handle: Any) -> Any:
    """The tf.Variable whose handle this is; None if there is none or if it was deleted."""
    parent = getattr(handle, "_parent_trackable", None)
    variable = None if parent is None else parent()
    return variable if isinstance(variable, ResourceVariable) and variable._handle is handle else None


def new_handle(variable: Any, device: str) -> Any:
    """A handle like the variable's, to new storage on `device` that has no value yet."""
    name = f"{variable.name.removesuffix(':0')}/"
    with tf.device(device):
        handle = resource_variable_ops._variable_handle_from_shape_and_dtype(variable.shape, variable.dtype, None, name, False)
    vars(handle).update(vars(variable._handle))
    return handle


def weak_handle(handle: Any) -> Any:
    """A handle to the same storage that does not keep the storage alive; None where TensorFlow does not print its name."""
    pattern = r'<ResourceHandle\(name="(.*)", device="[^"]*", container="(\w*)", type=.*'
    printed = re.fullmatch(pattern, printed_content(handle), re.DOTALL)
    if printed is None:
        return None
    described = ResourceHandleProto.FromString(_serialized_handle())
    described.name, described.container = printed.groups()
    described.device = handle.device
    tensor = TensorProto(dtype=tf.resource.as_datatype_enum, tensor_shape={}, resource_handle_val=[described])
    with tf.device("CPU:0"):
        return tf.raw_ops.ParseTensor(serialized=tensor.SerializeToString(), out_type=tf.resource)


@functools.cache
def _serialized_handle() -> bytes:
    """A ResourceHandleProto of a variable. It has the number by which this process knows the type of variables."""
    with tf.device("CPU:0"):
        handle = tf.raw_ops.VarHandleOp(shared_name="placer", dtype=tf.float32, shape=[])
        content = TensorProto.FromString(tf.raw_ops.SerializeTensor(tensor=handle).numpy()).tensor_content
    length_bytes = next(k for k, byte in enumerate(content, 1) if byte < 0x80)  # a varint
    return bytes(content[length_bytes:])


LostTensorError = core._NotOkStatusException
"""What printing a tensor raises if the tensor was on a worker that died, or was started again."""


def printed_content(tensor: Any) -> str:
    """How TensorFlow prints the content of an eager resource or variant; "" for a variant in a GPU's memory.

    Two tensors have equal text only if they are copies of one handle. Of a tensor with several elements, only the first ones
    are printed.

    Raises:
        LostTensorError: no worker has it any more.
    """
    if tensor.dtype == tf.variant and parse(location(tensor)).type != "CPU":
        return ""
    return repr(tensor).partition("value=")[2].removesuffix(">")


def is_parallel(tensor: Any) -> bool:
    """Whether a tensor is a DTensor or a packed tensor of several replicas."""
    if not isinstance(tensor, tf.__internal__.EagerTensor):
        return False
    return bool(getattr(tensor, "is_packed", False)) or "DTensor" in type(tensor).__name__ or tensor.device.endswith("CUSTOM:0")


def strategy_of(variable: Any) -> Any:
    """The distribution strategy under which a variable was made, all of it or the part of one replica; None if under none."""
    return getattr(variable, "_distribute_strategy", None)
