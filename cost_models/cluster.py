"""Clusters: the process that calls and its workers, described as one machine in a TOML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any

from cost_models.documents import parse_toml
from cost_models.machines import Link, Machine, MachineError, host_of
from cost_models.network import Network, known_network
from cost_models.toml_lines import line_of
from cost_models.toml_records import RecordError, record_of

JOB = "worker"
"""TensorFlow's name for the job whose tasks are the workers."""
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process on another host that runs ops: the server that `placer worker` starts there."""

    address: str
    """Where it listens: "host1:2222"."""
    machine: str
    """The devices of its host: a shipped machine's name, or a TOML file's path, from the folder of the cluster's file on."""

    def __post_init__(self) -> None:
        if reason := misread_address(self.address):
            raise RecordError(reason, "address")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: where its workers listen, and the machine that its processes are together."""

    addresses: tuple[str, ...]
    """By task."""
    machine: Machine


@dataclass(frozen=True, slots=True)
class _File:
    """The keys of a cluster's file."""

    client: str
    """The devices of the process that calls: as `Worker.machine`."""
    workers: Any
    network: Any = None
    name: str = "cluster"


def misread_address(address: str) -> str:
    """Why a text is no address of a worker; "" if it is one."""
    matched = _ADDRESS.fullmatch(address)
    if matched is None or not 0 < int(matched[2]) < 65536:
        return f'address {address!r} must be a host and a port, such as "host1:2222"'
    return ""


def is_cluster(text: str) -> bool:
    """Whether the TOML text of a machine describes a cluster."""
    return re.search(r"^\s*(client\s*=|workers\s*=|\[\[?\s*(workers|network)\s*\])", text, re.MULTILINE) is not None


def parse_cluster(text: str, source: str, load: Callable[[str], Machine]) -> Cluster:
    """The cluster that TOML text describes.

    Args:
        text: the TOML text.
        source: a name for the text in error messages.
        load: gives the machine of a process by its name or path in the text; MachineError if there is none.

    Raises:
        MachineError: the text is not TOML, or its description is invalid. The message names the line and the key.
    """
    try:
        table = parse_toml(text, source)
    except ValueError as error:
        raise MachineError(str(error).removesuffix(".")) from error
    reader = _Reader(text, source, load)
    top = reader.record(_File, table)
    rows = top.workers
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise reader.error("workers must be tables, each under its own [[workers]]", key="workers")
    if not isinstance(top.network, dict | None):
        raise reader.error("network must be a table, under [network]", key="network")
    workers = [reader.record(Worker, row, "workers", k) for k, row in enumerate(rows)]
    addresses = [worker.address for worker in workers]
    for k, address in enumerate(addresses):
        if address in addresses[:k]:
            message = f"workers[{k}]: address {address!r} is that of workers[{addresses.index(address)}], too"
            raise reader.error(message, "workers", k, "address")
    client = reader.machine(top.client, "", 0, "client")
    machines = [reader.machine(worker.machine, "workers", k, "machine") for k, worker in enumerate(workers)]
    given = {**known_network(addresses), **(top.network or {})}
    network = reader.record(Network, given, "network")
    return Cluster(tuple(addresses), joined(top.name, client, machines, network, given))


def joined(name: str, client: Machine, workers: Sequence[Machine], network: Network, known: Mapping[str, Any]) -> Machine:
    """One machine of the process that calls and its workers.

    Args:
        name: of the machine.
        client: of the process that calls. What a call takes beside its ops is as there.
        workers: by task.
        network: the links between hosts.
        known: by field of `network`, the values that are not assumed.
    """
    parts = {"": client, **{f"{JOB}:{k}/": machine for k, machine in enumerate(workers)}}
    call_ns = round(1e3 * network.call_us)
    devices = [
        replace(device, name=task + device.name, call_ns=device.call_ns + (call_ns if task else 0))
        for task, machine in parts.items()
        for device in machine.devices
    ]
    links = [replace(link, src=task + link.src, dst=task + link.dst) for task, machine in parts.items() for link in machine.links]
    hosts = [device.name for device in devices if device.name == host_of(device.name)]
    links += [Link(src, dst, round(1e3 * network.latency_us), network.bytes_per_s) for src, dst in permutations(hosts, 2)]
    assumed = [f"{f.name} = {getattr(network, f.name):g}" for f in fields(network) if f.name not in known]
    return replace(
        client,
        name=name,
        devices=tuple(devices),
        links=tuple(links),
        provenance="; ".join(
            f"{task.removesuffix('/') or 'this process'}: {m.provenance or m.name}" for task, m in parts.items()
        ),
        reserve_bytes={task + device: nbytes for task, m in parts.items() for device, nbytes in m.reserve_bytes.items()},
        others_bytes={task + device: nbytes for task, m in parts.items() for device, nbytes in m.others_bytes.items()},
        from_data_sheets=any(machine.from_data_sheets for machine in parts.values()),
        assumed=f"the links between hosts: {', '.join(assumed)}" if assumed else "",
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """The text of a cluster's file, for errors that name the line."""

    text: str
    source: str
    load: Callable[[str], Machine]

    def record(self, record: type[Any], row: Mapping[str, Any], table: str = "", index: int = 0) -> Any:
        """A table as a dataclass."""
        where = f"{table}[{index}]" if table == "workers" else table or "the file"
        try:
            return record_of(record, row, where)
        except RecordError as error:
            raise self.error(str(error), table, index, error.key) from error

    def machine(self, named: str, table: str, index: int, key: str) -> Machine:
        """The machine that a key names."""
        try:
            return self.load(named)
        except MachineError as error:
            raise self.error(f"{key}: {error}", table, index, key) from error

    def error(self, message: str, table: str = "", index: int = 0, key: str = "") -> MachineError:
        """An error about a key of a table."""
        return MachineError(f"{self.source}, line {line_of(self.text, table, index, key)}: {message}")
