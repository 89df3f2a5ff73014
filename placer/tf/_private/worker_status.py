"""What the workers of a cluster say of themselves: the devices of TensorFlow's servers, before any of them is connected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import tensorflow as tf
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes

from placer.errors import DeviceError

_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_NO_PROXY = (("grpc.enable_http_proxy", 0),)
"""As TensorFlow's own channels between tasks."""


def devices_of_workers(addresses: Mapping[str, str], timeout_s: float) -> dict[str, list[DeviceAttributes]]:
    """The devices that each worker has. All are asked at once; one that is starting has until `timeout_s` to answer.

    Args:
        addresses: host and port by task, such as "worker:0".
        timeout_s: how long to wait for all answers, in seconds.

    Raises:
        DeviceError: a worker does not answer in time, or something else does.
    """
    channels = {task: grpc.insecure_channel(address, _NO_PROXY) for task, address in addresses.items()}
    try:
        asked = {
            task: channel.unary_unary(_GET_STATUS).future(b"", timeout=timeout_s, wait_for_ready=True)
            for task, channel in channels.items()
        }
        return {task: _devices(task, addresses[task], answer, timeout_s) for task, answer in asked.items()}
    finally:
        for channel in channels.values():
            channel.close()


def _devices(task: str, address: str, answer: Any, timeout_s: float) -> list[DeviceAttributes]:
    try:
        content = answer.result()
    except grpc.RpcError as error:
        late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        why = f"no answer within {timeout_s:g} s" if late else f"{error.code().name}: {error.details()}"
        raise DeviceError(
            f"{task} at {address} does not answer as a worker ({why}). Way out: start one on that host, with "
            f"tf.distribute.Server, and see that a firewall lets this process reach its port."
        ) from error
    # TensorFlow ships no class for GetStatusResponse. Its only field, number 1, is a list of messages: bytes on the wire.
    return [DeviceAttributes.FromString(device) for device in tf.train.BytesList.FromString(content).value]
