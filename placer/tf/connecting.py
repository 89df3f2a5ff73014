"""Connects this process to the workers of a cluster, whose devices then are devices of TensorFlow here."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import tensorflow as tf

from placer.common.device_spec import parse
from placer.errors import DeviceError
from placer.tf._private.worker_status import devices_of_workers
from placer.tf.devices import process_devices

ANSWER_S = 20.0
"""How long workers have to answer, in seconds."""


def connect(addresses: Mapping[str, str]) -> None:
    """Connects to workers that answer; those of an earlier call are left. Tensors and variables on these are lost.

    Args:
        addresses: host and port by task, "worker:0" first.

    Raises:
        DeviceError: this process is a task of a cluster itself.
    """
    if not process_devices():
        raise DeviceError("this process is a task of a cluster itself, so it cannot be the client of another one.")
    spec = tf.train.ClusterSpec({"worker": [*addresses.values()], "localhost": [_own_address(tuple(addresses.values()))]})
    tf.config.experimental_connect_to_cluster(spec, protocol="grpc", make_master_device_default=False)


def devices_by_task(addresses: Mapping[str, str]) -> dict[str, dict[str, tuple[str, int]]]:
    """The devices of workers: by task, then by short name, the model and the bytes of memory that TensorFlow may take.

    Args:
        addresses: as of `connect`.

    Raises:
        DeviceError: a worker does not answer within `ANSWER_S`.
    """
    found = devices_of_workers(addresses, ANSWER_S)
    return {
        task: {parse(d.name).short.rpartition("/")[2]: (_model(d.physical_device_desc), d.memory_limit) for d in devices}
        for task, devices in found.items()
    }


def _model(description: str) -> str:
    """The model in TensorFlow's description of a device, such as "device: 0, name: NVIDIA L4, pci bus id: ..."; "" if none."""
    return next((part.removeprefix("name: ") for part in description.split(", ") if part.startswith("name: ")), "")


def _own_address(addresses: Sequence[str]) -> str:
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
        port = free.getsockname()[1]
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
