"""Machines: their devices, the links between these, and the constants that price ops, copies and calls.

`placer calibrate` measures the constants. Each is measured net of the others: what one of them includes, no other one does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from html import escape
from itertools import permutations

from cost_models.documents import parse_toml
from cost_models.toml_records import record_of, records_of, toml_pairs, toml_scalars

KINDS = ("CPU", "GPU")
MAX_NS, MAX_BYTES, MAX_CORES = 10**12, 2**60, 10**6
MIN_RATE_PER_S, MAX_RATE_PER_S = 1e6, 1e24
"""Limits on the constants of a machine. Within them, all sums over a plan fit into 64-bit integers."""

DEFAULT_THREADS_PER_CORE, DEFAULT_CORE_CACHE_BYTES = 2, 2**21
"""Values of most servers."""


class MachineError(ValueError):
    """A machine's description is invalid. The message names the place, the key and the allowed values."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a machine and the constants that price its ops. Times are in ns, sizes in bytes, rates per second.

    Raises:
        MachineError: a name or kind that is not allowed, or a number out of range.
    """

    name: str
    """TensorFlow's short name, "GPU:1"; in a cluster, that of another task's device starts with the task: "worker:0/GPU:1"."""
    kind: str
    """The device type whose kernels it runs: "CPU" or "GPU"."""
    model: str
    """Name of the hardware. Measurements of ops are stored by this name."""
    memory_bytes: int
    """Size of its memory."""
    asynchronous: bool
    """True if the host only queues an op and goes on, as with a GPU's stream: then dispatch and computation overlap.

    False if the host thread that starts an op also computes it, as on a CPU.
    """
    dispatch_ns: int
    """Host time to start one op."""
    min_kernel_ns: int
    """Shortest computing time of one kernel, however little it computes."""
    flops: Mapping[str, float]
    """Operations per second in large matrix products, by dtype of the factors.

    "default" is the rate of all other arithmetic, and of products in a dtype that is not listed.
    """
    memory_bytes_per_s: float
    """Bytes that large ops read and write per second in the device's memory."""
    cores: int = 1
    """Hardware threads of a CPU, each of which runs an op; multiprocessors of a GPU."""
    threads_per_core: int = DEFAULT_THREADS_PER_CORE
    """CPU only: how many of the hardware threads in `cores` share one core's arithmetic units.

    A matrix product on one core reaches ``threads_per_core / cores`` of the rate in `flops`.
    """
    core_cache_bytes: int = DEFAULT_CORE_CACHE_BYTES
    """CPU only: size of one core's private cache (level 2). A matrix product whose matrices fit there runs on one core."""
    host_op_ns: int = 500
    """Host time of an op that starts no kernel on this device: a reshape, a shape, a loop's Merge, an int32 op in host memory."""
    call_ns: int = 0
    """Extra time of a call with an op on this device, fetching a result from the device included, against one on CPU:0 alone.

    The execution model adds the largest `call_ns` of the devices in use, once a call.
    """
    wake_ns: int = 0
    """CPU only: extra time of an op that uses all cores, if the threads of the other cores fell asleep before it.

    The execution model adds it where no such op ended just before.
    """
    cold_ns: int = 0
    """Extra host time of the first op of each type in a step, because the op's code is in no cache yet."""

    def __post_init__(self) -> None:
        named = re.fullmatch(r"([a-z]\w*:\d+/)?[A-Z]+:\d+", self.name, re.ASCII)
        _require(bool(named), f'device name {self.name!r} must look like "GPU:0" or "worker:1/GPU:0"')
        _require(self.kind in KINDS, f"{self.name}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        listed = ", ".join(self.flops) or "nothing"
        _require("default" in self.flops, f'{self.name}: flops needs a "default" rate; it lists {listed}')
        _require_within(f"{self.name}: memory_bytes", self.memory_bytes, 1, MAX_BYTES)
        _require_within(f"{self.name}: cores", self.cores, 1, MAX_CORES)
        _require_within(f"{self.name}: threads_per_core", self.threads_per_core, 1, MAX_CORES)
        _require_within(f"{self.name}: core_cache_bytes", self.core_cache_bytes, 0, MAX_BYTES)
        rates = {f"flops.{dtype}": rate for dtype, rate in self.flops.items()}
        for key, rate in {"memory_bytes_per_s": self.memory_bytes_per_s, **rates}.items():
            _require_within(f"{self.name}: {key}", rate, MIN_RATE_PER_S, MAX_RATE_PER_S)
        for key in ("dispatch_ns", "min_kernel_ns", "host_op_ns", "call_ns", "wake_ns", "cold_ns"):
            _require_within(f"{self.name}: {key}", getattr(self, key), 0, MAX_NS)


@dataclass(frozen=True, slots=True)
class Link:
    """A directed path from one device's memory to another's. A copy of n bytes takes ``latency_ns + 1e9 * n / bytes_per_s``.

    Raises:
        MachineError: a link from a device to itself, or a number out of range.
    """

    src: str
    """Name of the device that is copied from."""
    dst: str
    """Name of the device that is copied to."""
    latency_ns: int
    """Time of a copy of a few bytes inside a function, until the op that waits for it starts."""
    bytes_per_s: float
    """Rate of tensors that ops make: TensorFlow puts those that leave a host for a GPU into pinned memory."""
    unpinned_bytes_per_s: float = 0.0
    """Rate of tensors in a host's ordinary memory, as arguments and variables are; 0 if it is the same as `bytes_per_s`."""
    interval_ns: int = 0
    """Least time from the start of one copy to the start of the next, however small (gap g in Culler et al., LogP, 1993)."""

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
        _require(self.src != self.dst, f"{where}: a link joins two devices")
        _require_within(f"{where}: latency_ns", self.latency_ns, 0, MAX_NS)
        _require_within(f"{where}: interval_ns", self.interval_ns, 0, MAX_NS)
        _require_within(f"{where}: bytes_per_s", self.bytes_per_s, MIN_RATE_PER_S, MAX_RATE_PER_S)
        if self.unpinned_bytes_per_s:
            _require_within(f"{where}: unpinned_bytes_per_s", self.unpinned_bytes_per_s, MIN_RATE_PER_S, MAX_RATE_PER_S)


def task_of(device: str) -> str:
    """The task in a device's name: "worker:1" of "worker:1/GPU:0", "" of "GPU:0"."""
    return device.rpartition("/")[0]


def host_of(device: str) -> str:
    """The CPU whose memory is host memory for a device: "worker:1/CPU:0" for "worker:1/GPU:0"."""
    task = task_of(device)
    return f"{task}/CPU:0" if task else "CPU:0"


@dataclass(frozen=True)
class Machine:
    """Devices in TensorFlow's order, CPU:0 first, with the links between them and the constants that price a call.

    A cluster is one machine. The devices of the process that calls come first, then those of each worker.

    A call takes the time of its ops and copies and, beside that, `call_overhead_ns` plus the constants below that apply to it.

    Raises:
        MachineError: an unknown or repeated name, a number out of range, or a link that is missing: each GPU needs links to and
            from the CPU:0 of its task, and the CPU:0 of each task needs links to and from those of all other tasks.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    """At most one for each ordered pair of devices. Between devices without a link, copies go through their hosts."""
    call_overhead_ns: int
    """Fixed time of a call with all its ops on CPU:0, no argument, and one result that is fetched."""
    host_hop_ns: int
    """Time to hand a tensor in host memory from an op of one device to an op of another device of the same host."""
    provenance: str = ""
    """How the constants were obtained, in words."""
    reserve_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each device's memory that plans leave free for the driver's context and libraries' workspaces, by device name."""
    split_ns: int = 0
    """Extra time of a call for each device in use after the first."""
    argument_ns: int = 0
    """Extra time of a call for each tensor or variable that the function uses: its arguments and what it captures."""
    passed_ns: int = 0
    """Extra time of a call, beside `argument_ns`, for each tensor that the caller passes, because Python inspects it."""
    waiting_ns: int = 0
    """Extra time of a call whose ops take 1 ms or longer: the caller falls asleep while it waits, and must be woken.

    A call whose ops take t ns, less than that, pays the share ``t / 1e6`` of it.
    """
    from_data_sheets: bool = False
    """Whether its rates are from data sheets and nothing of it was measured. Every plan for it says so."""
    others_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each device's memory that other programs held when the machine was read, by device name."""
    used_by_others: str = ""
    """What other programs used of its GPUs when it was read, in words. Every plan for it says so."""
    assumed: str = ""
    """What is assumed of it, in words: neither measured nor from data sheets. Every plan for it says so."""

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        known = f"the devices are {', '.join(names) or 'none'}"
        _require(names[:1] == ["CPU:0"], f"the first device must be CPU:0; {known}")
        _require(len(set(names)) == len(names), f"device names must differ; {known}")
        pairs = [(link.src, link.dst) for link in self.links]
        for src, dst in pairs:
            for name in (src, dst):
                _require(name in names, f"link {src} -> {dst}: no device is called {name!r}; {known}")
            _require(pairs.count((src, dst)) == 1, f"link {src} -> {dst} is given twice")
        hosts = [name for name in names if name == host_of(name)]
        for device in self.devices:
            host = host_of(device.name)
            _require(host in names, f"{device.name}: there is no {host}; {known}")
            for pair in ((device.name, host), (host, device.name)):
                present = device.kind == "CPU" or pair in pairs
                _require(present, f"link {' -> '.join(pair)} is missing; every {device.kind} needs one to and from {host}")
        for pair in permutations(hosts, 2):
            _require(pair in pairs, f"link {' -> '.join(pair)} is missing; the CPU:0 of each task needs one to each other task's")
        for key in ("call_overhead_ns", "host_hop_ns", "split_ns", "argument_ns", "passed_ns", "waiting_ns"):
            _require_within(key, getattr(self, key), 0, MAX_NS)
        for name, reserved in self.reserve_bytes.items():
            total = self.device(name).memory_bytes
            _require(0 <= reserved < total, f"reserve_bytes of {name} is {reserved}; it must be from 0 to {total - 1}")
        for name, held in self.others_bytes.items():
            most = self.device(name).memory_bytes - 1 - self.reserve_bytes.get(name, 0)
            _require(0 <= held <= most, f"others_bytes of {name} is {held}; with the reserve it must be from 0 to {most}")

    def device(self, name: str) -> Device:
        """The device of that name.

        Raises:
            MachineError: no device has that name.
        """
        for device in self.devices:
            if device.name == name:
                return device
        raise MachineError(f"machine {self.name!r} has no device {name!r}; it has {', '.join(d.name for d in self.devices)}")

    def without(self, *tasks: str) -> Machine:
        """A cluster without some of its workers, such as "worker:1". The others keep their names.

        Raises:
            MachineError: there is no such worker.
        """
        known = dict.fromkeys(task for device in self.devices if (task := task_of(device.name)))
        for task in tasks:
            _require(task in known, f"machine {self.name!r} has no worker {task!r}; it has {', '.join(known) or 'none'}")
        return self.only({device.name for device in self.devices if task_of(device.name) not in tasks})

    def only(self, names: Set[str]) -> Machine:
        """The machine with only the devices of these names, and the links between them."""
        return replace(
            self,
            devices=tuple(device for device in self.devices if device.name in names),
            links=tuple(link for link in self.links if {link.src, link.dst} <= names),
            reserve_bytes={name: size for name, size in self.reserve_bytes.items() if name in names},
            others_bytes={name: size for name, size in self.others_bytes.items() if name in names},
        )

    def link(self, src: str, dst: str) -> Link | None:
        """The direct link from device `src` to device `dst`, None if there is none."""
        return next((link for link in self.links if link.src == src and link.dst == dst), None)

    def _repr_html_(self) -> str:
        """For a notebook: a row for each device, and where the constants come from."""
        head = ("device", "memory", "float32 GFLOP/s", "memory GB/s", "model")
        rows = [
            (
                d.name,
                f"{d.memory_bytes / 2**30:.3g} GiB",
                f"{d.flops.get('float32', d.flops['default']) / 1e9:,.0f}",
                f"{d.memory_bytes_per_s / 1e9:,.0f}",
                d.model,
            )
            for d in self.devices
        ]
        lines = "".join(f"<tr>{''.join(f'<td>{_as_html(cell)}</td>' for cell in row)}</tr>" for row in rows)
        heads = "".join(f"<th>{name}</th>" for name in head)
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
        return f"<div><b>{_as_html(self.name)}</b></div>{table}<div>priced as {_as_html(self.provenance)}</div>"

    def to_toml(self) -> str:
        """The machine as TOML text, which `parse_machine` reads back as an equal machine."""
        lines = toml_scalars(self)
        for key in ("reserve_bytes", "others_bytes"):
            if nbytes := getattr(self, key):
                lines += ["", f"[{key}]", *toml_pairs(nbytes)]
        for device in self.devices:
            lines += ["", "[[devices]]", *toml_scalars(device), f"flops = {{ {', '.join(toml_pairs(device.flops))} }}"]
        for link in self.links:
            lines += ["", "[[links]]", *toml_scalars(link)]
        return "\n".join(lines) + "\n"


def parse_machine(text: str, source: str = "<string>") -> Machine:
    """A machine from TOML text.

    The keys are the fields of `Machine`, with a [[devices]] table for each `Device` and a [[links]] table for each `Link`.

    Args:
        text: the TOML text.
        source: a name for the text in error messages.

    Raises:
        MachineError: the text is not TOML, or its description is invalid.
    """
    try:
        table = parse_toml(text, source)
        table["devices"] = records_of(Device, table, "devices", source)
        table["links"] = records_of(Link, table, "links", source)
        return record_of(Machine, table, source)
    except ValueError as error:
        raise MachineError(str(error).removesuffix(".")) from error


def _as_html(text: str) -> str:
    """The text as HTML, without characters that cannot be seen."""
    return escape("".join(filter(str.isprintable, text)))


def _require_within(what: str, value: float, least: float, most: float) -> None:
    _require(least <= value <= most, f"{what} is {value}; it must be from {least:,} to {most:,}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise MachineError(message)
