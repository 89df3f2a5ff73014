"""Connects this process to the workers of a cluster, whose devices then are devices of TensorFlow here."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tensorflow as tf

from placer.common.device_spec import parse
from placer.errors import DeviceError
from placer.tf._private.worker_status import devices_of_workers
from placer.tf.devices import process_devices

ANSWER_S = 20.0
"""How long workers have to answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that has answered."""

    address: str
    devices: Mapping[str, tuple[str, int]]
    """By name within the task: the model, and the bytes of memory that TensorFlow may take."""
    incarnation: int
    """A number that its server drew when it started."""


_connected: list[tuple[str, int]] = []
"""Address and incarnation of the workers that this process is connected to, by task."""


def ask(addresses: Mapping[str, str]) -> dict[str, Worker]:
    """Asks workers for their devices, without connecting to them.

    Args:
        addresses: host and port by task.

    Raises:
        DeviceError: a worker does not answer within `ANSWER_S`.
    """
    return {
        task: Worker(
            addresses[task],
            {parse(d.name).short.rpartition("/")[2]: (_model(d.physical_device_desc), d.memory_limit) for d in devices},
            devices[0].incarnation,
        )
        for task, devices in devices_of_workers(addresses, ANSWER_S).items()
    }


def connect(workers: Iterable[Worker]) -> None:
    """Connects to workers, unless this process is connected to them already; those of an earlier call are left.

    Tensors and variables on workers that are left are lost. So are those on a worker that was started again.

    Args:
        workers: by task.

    Raises:
        DeviceError: this process is a task of a cluster itself.
    """
    if not process_devices():
        raise DeviceError("this process is a task of a cluster itself, so it cannot be the client of another one.")
    wanted = [(worker.address, worker.incarnation) for worker in workers]
    if wanted == _connected:
        return
    addresses = [address for address, _ in wanted]
    spec = tf.train.ClusterSpec({"worker": addresses, "localhost": [_own_address(addresses)]})
    tf.config.experimental_connect_to_cluster(spec, protocol="grpc", make_master_device_default=False)
    _connected[:] = wanted


def _model(description: str) -> str:
    """The model in TensorFlow's description of a device, such as "device: 0, name: NVIDIA L4, pci bus id: ..."; "" if none."""
    return next((part.removeprefix("name: ") for part in description.split(", ") if part.startswith("name: ")), "")


def _own_address(addresses: Iterable[str]) -> str:
    """A free port of this host, under the address by which the workers' hosts reach it.

    TensorFlow would give "localhost" to the workers, which is right only for those of this host.
    """
    own = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as reached:
            own.add(str(reached.getsockname()[0]))
    ip = next((ip for ip in sorted(own) if not ip.startswith("127.") and ip != "::1"), min(own))
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as free:
        free.bind((ip, 0))
        own_port = free.getsockname()[1]
    return f"[{ip}]:{own_port}" if ":" in ip else f"{ip}:{own_port}"
