"""Tensors that go from one device to another: nodes that keep each op where the plan has it.

Grappler merges an op with the ops that feed it, whatever their devices, but not across a node that it must keep.
"""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from placer.common.device_spec import parse
from placer.tf.rewrite.frame_nodes import FrameNodes
from placer.tf.trace.kernels import KernelIndex, KernelSupport


class Crossings:
    """Adds the nodes at which tensors of a frame cross to other devices.

    Args:
        frame_nodes: of the frame; the new nodes are added to them.
    """

    def __init__(self, frame_nodes: FrameNodes) -> None:
        self._frame_nodes = frame_nodes
        self._constant_copies: dict[tuple[str, str], str] = {}
        """By constant and device: the copy of the constant on that device."""
        self._crossed: dict[tuple[str, int, str, bool], tuple[str, int]] = {}
        """By node, output, device of the reader and whether the reader takes it in host memory: the output to read."""

    def at(self, source: str, index: int, device: str, dtype: tf.DType, reader: NodeDef, position: int) -> tuple[str, int]:
        """The node and output that a reader takes for an output of another node.

        A constant is copied to the reader's device if it can be; any other tensor crosses through a kept node.

        Args:
            source, index, dtype: the output and its type.
            device: the reader's; "" for one that takes the output where it is.
            reader, position: the node that reads it, and as which input.
        """
        from_device = self._frame_nodes.devices.get(source)
        if not device or from_device == device:
            return source, index
        on_host = takes_on_host(reader, position)
        if (constant := self._constant_at(source, device, on_host)) is not None:
            return constant, index
        if not from_device or dtype in (tf.resource, tf.variant):
            return source, index
        key = source, index, device, on_host
        if key not in self._crossed:
            self._crossed[key] = self._cross(source, index, from_device, device, dtype, on_host)
        return self._crossed[key]

    def into_loop(
        self, source: str, index: int, device: str, dtype: tf.DType, name: str, *, on_host: bool = False
    ) -> tuple[str, int]:
        """The node and output that a loop takes as the first value of a variable.

        TensorFlow keeps a loop variable on the device of its first value, so that has to be on the planned device.

        Args:
            source, index, dtype: the output that is passed, and its type.
            device: the planned device of the loop variable; "" if the output may stay where it is.
            name: what a node that is added for it is called, without the device.
            on_host: whether the loop takes it in host memory, see `takes_on_host`.
        """
        if not device or self._frame_nodes.devices.get(source) == device:
            return source, index
        if (constant := self._constant_at(source, device, on_host)) is not None:
            return constant, index
        return self._frame_nodes.add_identity(source, index, device, dtype, f"{name}_on_{_token(device)}"), 0

    def predicate_of_branch(self, source: str, index: int, device: str, dtype: tf.DType, path: str) -> str:
        """A kept node that passes on the predicate of the branch `path`, which is on `device`.

        Where Grappler finds a constant predicate, it removes what only the branch that is not taken needs, but nothing that leads
        to a kept node. The rest of a loop on several devices can then wait forever for a removed node.
        """
        at = self._frame_nodes.devices.get(source) or device
        if not self._stays_in_memory(source, index, at, dtype):
            at = str(tf.DeviceSpec.from_string(at).replace(device_type="CPU", device_index=0).to_string())
        return self._frame_nodes.add_identity(source, index, at, dtype, f"{path}/undecided", keep=True)

    def argument_of_switch(self, source: str, device: str, dtype: tf.DType, path: str) -> str:
        """The node that the Switch `path`, planned for `device`, reads for the argument `source`.

        TensorFlow runs a Switch on the device of its value: for an argument, that is wherever the caller has it. A kept node
        brings the value to the planned device first.
        """
        if dtype in (tf.resource, tf.variant):
            return source
        return self._frame_nodes.add_identity(source, 0, device, dtype, f"{path}/received", keep=True)

    def _constant_at(self, source: str, device: str, on_host: bool) -> str | None:
        """The copy on `device` of the constant `source`; None for another op, or where its memory there is not the reader's."""
        constant = self._frame_nodes.copied.get(source)
        if constant is None or constant.op != "Const":
            return None
        if _makes_on_host(KernelIndex.shared().lookup(constant), device) != on_host:
            return None
        copy = self._constant_copies.get((source, device))
        if copy is None:
            copy = self._constant_copies[source, device] = self._frame_nodes.free_name(f"{source}/on_{_token(device)}")
            node = NodeDef()
            node.CopyFrom(constant)
            node.name, node.device = copy, device
            self._frame_nodes.nodes.append(node)
        return copy

    def _cross(self, source: str, index: int, from_device: str, device: str, dtype: tf.DType, on_host: bool) -> tuple[str, int]:
        """Adds a kept node between `source` and its readers on another device, where one can be.

        It is on the readers' device if possible: the result of a CPU's op is in pinned memory, which copies need for their speed,
        only if it is sent right away.
        """
        if _makes_on_host(_identity_support(dtype), device) == on_host:
            at = device
        elif self._stays_in_memory(source, index, from_device, dtype):
            at = from_device
        else:
            return source, index
        name = f"{source}/crossing{index}_to_{_token(device)}"
        return self._frame_nodes.add_identity(source, index, at, dtype, name, keep=True), 0

    def _stays_in_memory(self, source: str, index: int, device: str, dtype: tf.DType) -> bool:
        """Whether an Identity on the producer's device would leave the tensor in its memory, the host's or the device's."""
        kind = _kind(device)
        producer = self._frame_nodes.copied.get(source)
        if kind == "CPU" or producer is None:
            return True
        producer_support, identity_support = KernelIndex.shared().lookup(producer), _identity_support(dtype)
        if kind not in producer_support.kernels or kind not in identity_support.kernels:
            return False
        return (index in producer_support.kernels[kind].host_outputs) == (0 in identity_support.kernels[kind].host_outputs)


def takes_on_host(node: NodeDef, position: int) -> bool:
    """Whether an op that is not on a CPU takes this input in host memory."""
    kernel = KernelIndex.shared().lookup(node).kernels.get(_kind(node.device))
    return kernel is not None and position in kernel.host_inputs


def _makes_on_host(support: KernelSupport, device: str) -> bool | None:
    """Whether an op's only result would be in host memory on a device that is no CPU; None without a kernel for the device."""
    kernel = support.kernels.get(_kind(device))
    return None if kernel is None else 0 in kernel.host_outputs


def _identity_support(dtype: tf.DType) -> KernelSupport:
    return KernelIndex.shared().lookup_type("Identity", {"T": dtype.name})


@functools.cache
def _kind(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).device_type)


@functools.cache
def _token(device: str) -> str:
    """A device as a part of a name: "GPU_0", "worker_1_GPU_0"."""
    return parse(device).short.replace("/", "_").replace(":", "_")
