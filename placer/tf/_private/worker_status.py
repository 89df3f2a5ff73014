"""What the workers of a cluster say of themselves: the devices of TensorFlow's servers, before any of them is connected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework.device_attributes_pb2 import DeviceAttributes

from placer.errors import DeviceError

_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_NO_PROXY = (("grpc.enable_http_proxy", 0),)
"""As TensorFlow's own channels between tasks."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a worker did not answer."""

    why: str
    late: bool
    """Whether the time was up, as when a worker hangs. False if no program listens there, or another one than a worker."""


def answers(addresses: Mapping[str, str], timeout_s: float, *, wait: bool) -> dict[str, list[DeviceAttributes] | NoAnswer]:
    """The devices that each worker has. All are asked at once.

    Args:
        addresses: host and port by task, such as "worker:0".
        timeout_s: how long to wait for all answers, in seconds.
        wait: whether to wait also for a worker that does not listen yet.
    """
    channels = {task: grpc.insecure_channel(address, _NO_PROXY) for task, address in addresses.items()}
    try:
        asked = {
            task: channel.unary_unary(_GET_STATUS).future(b"", timeout=timeout_s, wait_for_ready=wait)
            for task, channel in channels.items()
        }
        return {task: _devices(answer, timeout_s) for task, answer in asked.items()}
    finally:
        for channel in channels.values():
            channel.close()


def devices_of_workers(addresses: Mapping[str, str], timeout_s: float) -> dict[str, list[DeviceAttributes]]:
    """The devices that each worker has. One that is starting has until `timeout_s` to answer.

    Args:
        addresses, timeout_s: as for `answers`.

    Raises:
        DeviceError: a worker does not answer in time, or something else does.
    """
    found = {}
    for task, answer in answers(addresses, timeout_s, wait=True).items():
        if isinstance(answer, NoAnswer):
            raise DeviceError(
                f"{task} at {addresses[task]} does not answer as a worker ({answer.why}). Way out: start one on that host, with "
                "placer worker, and see that a firewall lets this process reach its port."
            )
        found[task] = answer
    return found


def _devices(answer: Any, timeout_s: float) -> list[DeviceAttributes] | NoAnswer:
    try:
        content = answer.result()
    except grpc.RpcError as error:
        late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return NoAnswer(f"no answer within {timeout_s:g} s" if late else f"{error.code().name}: {error.details()}", late)
    # TensorFlow ships no class for GetStatusResponse. Its only field, number 1, is a list of messages: bytes on the wire.
    try:
        devices = [DeviceAttributes.FromString(device) for device in tf.train.BytesList.FromString(content).value]
    except DecodeError:
        return NoAnswer("its answer is not that of a server of TensorFlow", late=False)
    return devices or NoAnswer("it has no devices", late=False)
