"""Connects to the workers of a cluster, which then is a machine to place functions on."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cost_models.calibrations import with_calibration
from cost_models.cluster import JOB, joined, misread_address
from cost_models.machine_files import load_cluster
from cost_models.machines import Machine, MachineError, task_of
from cost_models.network import Network, known_network
from placer.errors import DeviceError, OptionError, PlanError

if TYPE_CHECKING:
    from placer.tf.connecting import Worker


def cluster(description: str | os.PathLike[str] | None = None, *, workers: Sequence[str] = ()) -> Machine:
    """Connects this process to workers. Functions that are placed on the cluster then run on their devices, too.

    A worker is a server of TensorFlow on another host, a `tf.distribute.Server`. It runs whatever anyone sends to its port: use
    workers in a private network only.

    A second call for other workers connects to those instead. Tensors and variables on the first ones are lost then.

    Args:
        description: a TOML file with the workers' addresses and machines, see docs/cluster.md; or
        workers: addresses alone, such as ["host1:2222", "host2:2222"]. Then the workers say which devices they have. Their hosts
            are taken to be like this one, and the links between hosts to be those of 10 Gbit Ethernet.

    Returns:
        The cluster as a machine: the option ``devices`` of a placed function.

    Raises:
        OptionError: neither or both are given, or an address is none or is given twice.
        PlanError: the file cannot be read, or its description is invalid.
        DeviceError: a worker does not answer within 20 s, or a device of the description is not there.
        WorkerError: a worker fails while this process connects.
    """
    from placer.tf.connecting import ask, connect

    if (description is None) == (not workers):
        raise OptionError('give one of the two: a file, placer.cluster("cluster.toml"), or addresses, workers=["host1:2222"].')
    if description is None:
        found = ask(_by_task(_checked(workers)))
        connect(found.values())
        return _machine_of(found.values())
    if not isinstance(description, str | os.PathLike):
        raise OptionError(f'{description!r} is no path of a cluster\'s file; give addresses as workers=["host1:2222"].')
    try:
        described = load_cluster(description)
    except MachineError as error:
        raise PlanError(f"{error}.") from error
    found = ask(_by_task(described.addresses))
    _check_devices(described.machine, found)
    connect(found.values())
    return described.machine


def _by_task(addresses: Sequence[str]) -> dict[str, str]:
    return {f"{JOB}:{k}": address for k, address in enumerate(addresses)}


def _checked(workers: Sequence[str]) -> Sequence[str]:
    """The addresses. Raises OptionError if one is none or is given twice."""
    if not isinstance(workers, list | tuple) or not all(isinstance(address, str) for address in workers):
        raise OptionError(f'workers={workers!r} is no list of addresses: give one such as ["host1:2222", "host2:2222"].')
    for k, address in enumerate(workers):
        if reason := misread_address(address):
            raise OptionError(f"workers[{k}]: {reason}.")
        if address in workers[:k]:
            raise OptionError(f"workers[{k}]: address {address!r} is that of workers[{workers.index(address)}], too.")
    return workers


def _check_devices(machine: Machine, workers: Mapping[str, Worker]) -> None:
    """Raises DeviceError if this process or a worker lacks a device of the machine."""
    from placer.tf.devices import process_devices

    present: dict[str, Collection[str]] = {"": process_devices(), **{task: worker.devices for task, worker in workers.items()}}
    for device in machine.devices:
        task, name = task_of(device.name), device.name.rpartition("/")[2]
        if name not in present[task]:
            who = f"{task} at {workers[task].address}" if task else "this process"
            raise DeviceError(
                f"{who} has no {name}, which {machine.name!r} gives it; it has {', '.join(present[task])}. Way out: describe the "
                "devices that are there."
            )


def machine_of_worker(addresses: Sequence[str]) -> Machine:
    """The machine that each of some workers is, all alike, on a host like this one. The first that answers is asked.

    Args:
        addresses: of the workers: hosts and ports.

    Raises:
        DeviceError: no worker answers.
    """
    from placer.tf.connecting import ask_one
    from placer.tf.devices import local_machine

    return replace(_machine_like(local_machine(), ask_one(_by_task(addresses))), assumed=_ASSUMED)


def _machine_of(workers: Collection[Worker]) -> Machine:
    """The machine of this process and of workers, on hosts like this one."""
    from placer.tf.devices import local_machine

    client = local_machine()
    known = known_network(worker.address for worker in workers)
    machine = joined("cluster", client, [_machine_like(client, worker) for worker in workers], Network(**known), known)
    return replace(machine, assumed="; ".join([_ASSUMED, *([machine.assumed] if machine.assumed else [])]))


_ASSUMED = "the hosts of workers are like this one"


def _machine_like(client: Machine, worker: Worker) -> Machine:
    """The machine of a worker whose host is like that of a client."""
    from placer.tf.devices import machine_of, processor

    host = client.device("CPU:0")
    machine = machine_of(
        cpus=sum(name.startswith("CPU") for name in worker.devices),
        gpus=[described for name, described in worker.devices.items() if name.startswith("GPU")],
        cores=host.cores,
        host_bytes=host.memory_bytes,
        host_model=processor(),
        threads_per_core=host.threads_per_core,
        core_cache_bytes=host.core_cache_bytes,
    )
    return with_calibration(machine)
