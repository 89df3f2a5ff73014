"""Machines: devices, what they can do, the links between them, and their TOML form."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

KINDS = ("CPU", "GPU")
MAX_NS, MAX_BYTES, MAX_CORES, RATES = 10**12, 2**60, 10**6, (1e6, 1e24)
"""What no machine exceeds, so that the sums of a plan stay integers of 64 bits. Rates are per second."""


THREADS_PER_CORE, CORE_CACHE_BYTES = 2, 2**21
"""Of most servers."""


class MachineError(ValueError):
    """A machine's description cannot be used. Says where, which key, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device as TensorFlow names it ("CPU:0", "GPU:1"), with the constants that price it."""

    name: str
    kind: str
    """The device type whose kernels it runs: "CPU" or "GPU"."""
    model: str
    memory_bytes: int
    asynchronous: bool
    """True where the host only enqueues (a GPU stream): dispatch and compute overlap."""
    dispatch_ns: int
    """Host time to start one op."""
    min_kernel_ns: int
    """Time no kernel goes under."""
    flops: Mapping[str, float]
    """Matrix operations per second that large products reach, by dtype; "default" for other dtypes and other arithmetic."""
    memory_bytes_per_s: float
    cores: int = 1
    """Cores of a CPU, multiprocessors of a GPU."""
    threads_per_core: int = THREADS_PER_CORE
    """Of a CPU, whose `cores` are as many hardware threads: how many of them share what computes products."""
    core_cache_bytes: int = CORE_CACHE_BYTES
    """Of a CPU, each core's own last cache."""
    threads: int = 0
    """Ops that a CPU runs side by side to any use; 0 for as many as it has cores."""
    host_op_ns: int = 500
    """Host time for an op that starts no kernel here: a reshape, a shape, a loop's Merge, an int32 op kept in host memory."""
    call_ns: int = 0
    """What a call takes more where any of its ops are here, fetching a result from here included."""
    wake_ns: int = 0
    """What an op on all cores of a CPU takes more where the others had nothing to do and fell asleep."""
    cold_ns: int = 0
    """What the first op of each type takes more of the host, in a step and behind a copy: its code is in no cache yet."""

    def __post_init__(self) -> None:
        _demand(bool(re.fullmatch(r"[A-Z]+:\d+", self.name)), f'device name {self.name!r} must look like "GPU:0"')
        _demand(self.kind in KINDS, f"{self.name}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        _demand("default" in self.flops, f'{self.name}: flops needs a "default" beside {", ".join(self.flops) or "nothing"}')
        _within(f"{self.name}: memory_bytes", self.memory_bytes, 1, MAX_BYTES)
        _within(f"{self.name}: cores", self.cores, 1, MAX_CORES)
        _within(f"{self.name}: threads", self.threads, 0, MAX_CORES)
        _within(f"{self.name}: threads_per_core", self.threads_per_core, 1, MAX_CORES)
        _within(f"{self.name}: core_cache_bytes", self.core_cache_bytes, 0, MAX_BYTES)
        rates = {f"flops.{dtype}": rate for dtype, rate in self.flops.items()}
        for key, rate in {"memory_bytes_per_s": self.memory_bytes_per_s, **rates}.items():
            _within(f"{self.name}: {key}", rate, *RATES)
        for key in ("dispatch_ns", "min_kernel_ns", "host_op_ns", "call_ns", "wake_ns", "cold_ns"):
            _within(f"{self.name}: {key}", getattr(self, key), 0, MAX_NS)


@dataclass(frozen=True, slots=True)
class Link:
    """A directed path between two devices' memories."""

    src: str
    dst: str
    latency_ns: int
    """Time the smallest copy takes inside a function, waiting included."""
    bytes_per_s: float
    unpinned_bytes_per_s: float = 0.0
    """Of what sits in a host's ordinary memory, as arguments and variables do; 0 where that makes no difference."""
    interval_ns: int = 0
    """Least time from one copy to the next, however small (the gap g of the LogP model of Culler et al. 1993)."""

    def __post_init__(self) -> None:
        where = f"link {self.src} -> {self.dst}"
        _demand(self.src != self.dst, f"{where}: a link joins two devices")
        _within(f"{where}: latency_ns", self.latency_ns, 0, MAX_NS)
        _within(f"{where}: interval_ns", self.interval_ns, 0, MAX_NS)
        _within(f"{where}: bytes_per_s", self.bytes_per_s, *RATES)
        if self.unpinned_bytes_per_s:
            _within(f"{where}: unpinned_bytes_per_s", self.unpinned_bytes_per_s, *RATES)


@dataclass(frozen=True)
class Machine:
    """Devices in TensorFlow's order, CPU:0 first, and a link for each ordered pair that differs in memory.

    Raises:
        MachineError: a name, a number or a link that makes no sense, or a GPU without links to and from CPU:0.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    call_overhead_ns: int
    """Fixed time of one function call, all of it on CPU:0 and a result fetched."""
    host_hop_ns: int
    """Handing a tensor that is already in host memory to another device of the same host."""
    provenance: str = ""
    reserve_bytes: Mapping[str, int] = field(default_factory=dict)
    """By device: memory that is not for tensors (the driver's context, libraries' workspaces)."""
    split_ns: int = 0
    """What a call takes more for each further device that its ops are on."""
    argument_ns: int = 0
    """What it takes more for each tensor or variable that it is given, by its caller or because the function refers to it."""
    passed_ns: int = 0
    """What it takes beside that for each tensor that its caller passes, which Python looks at."""
    waiting_ns: int = 0
    """What it takes more where its ops take a millisecond or longer, so that its caller sleeps; a share of that where less."""

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        known = f"there are {', '.join(names) or 'none'}"
        _demand(names[:1] == ["CPU:0"], f"the first device must be CPU:0; {known}")
        _demand(len(set(names)) == len(names), f"device names must differ; {known}")
        pairs = [(link.src, link.dst) for link in self.links]
        for src, dst in pairs:
            for name in (src, dst):
                _demand(name in names, f"link {src} -> {dst}: no device {name!r}; {known}")
            _demand(pairs.count((src, dst)) == 1, f"link {src} -> {dst} is given twice")
        for device in self.devices:
            for pair in ((device.name, "CPU:0"), ("CPU:0", device.name)):
                present = device.kind == "CPU" or pair in pairs
                _demand(present, f"link {' -> '.join(pair)} is missing; every {device.kind} needs one to and from CPU:0")
        for key in ("call_overhead_ns", "host_hop_ns", "split_ns", "argument_ns", "passed_ns", "waiting_ns"):
            _within(key, getattr(self, key), 0, MAX_NS)
        for name, reserved in self.reserve_bytes.items():
            total = self.device(name).memory_bytes
            _demand(0 <= reserved < total, f"reserve_bytes of {name} must be within its memory of {total}, is {reserved}")

    def device(self, name: str) -> Device:
        """The device of that name; MachineError where there is none."""
        for device in self.devices:
            if device.name == name:
                return device
        raise MachineError(f"machine {self.name!r} has no device {name!r}; it has {', '.join(d.name for d in self.devices)}")

    def link(self, src: str, dst: str) -> Link | None:
        """The direct link from `src` to `dst`, None where there is none."""
        return next((link for link in self.links if link.src == src and link.dst == dst), None)

    def to_toml(self) -> str:
        """TOML that `parse_machine` reads back as an equal machine."""
        lines = _toml_scalars(self)
        if self.reserve_bytes:
            lines += ["", "[reserve_bytes]", *(f"{_quote(k)} = {v}" for k, v in self.reserve_bytes.items())]
        for device in self.devices:
            lines += ["", "[[devices]]", *_toml_scalars(device)]
            lines += [f"flops = {{ {', '.join(f'{_quote(k)} = {_toml_value(v)}' for k, v in device.flops.items())} }}"]
        for link in self.links:
            lines += ["", "[[links]]", *_toml_scalars(link)]
        return "\n".join(lines) + "\n"


def shipped_machines() -> tuple[str, ...]:
    """Names of the machines that come with the package, sorted."""
    names = (entry.name for entry in resources.files("cost_models").joinpath("profiles").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """A shipped machine by name ("h100"), or one from a TOML file.

    A string counts as a path where it ends in ".toml" or holds a separator.

    Raises:
        MachineError: no such machine or file, or a description that cannot be used.
    """
    if isinstance(name_or_path, str) and not name_or_path.endswith(".toml") and not re.search(r"[/\\]", name_or_path):
        if name_or_path not in shipped_machines():
            raise MachineError(
                f"no machine {name_or_path!r} is shipped; there are {', '.join(shipped_machines())}, or give a TOML file's path"
            )
        source = f"{name_or_path}.toml"
        return parse_machine(resources.files("cost_models").joinpath("profiles", source).read_text("utf-8"), source)
    path = Path(name_or_path)
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise MachineError(f"{path}: cannot be read as a machine's TOML file: {error}") from error
    return parse_machine(text, str(path))


def parse_machine(text: str, source: str = "<string>") -> Machine:
    """A machine from TOML text; `source` is what errors call it.

    Keys are the fields of `Machine`, with one [[devices]] table per `Device` and one [[links]] table per `Link`.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"{source}: not valid TOML: {error}") from error
    table["devices"] = _rows(Device, table, "devices", source)
    table["links"] = _rows(Link, table, "links", source)
    return _build(Machine, table, source)


_Row = TypeVar("_Row", Device, Link, Machine)


def _rows(row: type[_Row], table: dict[str, Any], key: str, source: str) -> tuple[_Row, ...]:
    rows = table.get(key, [])
    if not (isinstance(rows, list) and all(isinstance(r, dict) for r in rows)):
        raise MachineError(f"{source}: {key} must be tables, each under its own [[{key}]]")
    return tuple(_build(row, r, f"{source}: {key}[{i}]") for i, r in enumerate(rows))


def _build(row: type[_Row], table: dict[str, Any], where: str) -> _Row:
    """The dataclass from a table whose keys and value types its fields declare."""
    declared = {f.name: f for f in fields(row)}
    if unknown := [key for key in table if key not in declared]:
        raise MachineError(f"{where}: unknown key {unknown[0]!r}; allowed are {', '.join(declared)}")
    required = [n for n, f in declared.items() if f.default is MISSING and f.default_factory is MISSING]
    if missing := [n for n in required if n not in table]:
        raise MachineError(f"{where}: key {missing[0]!r} is missing; required are {', '.join(required)}")
    values = {key: _typed(declared[key].type, value, f"{where}: {key}") for key, value in table.items()}
    try:
        return row(**values)
    except MachineError as error:
        raise MachineError(f"{where}: {error}") from error


def _typed(declared: Any, value: Any, where: str) -> Any:
    """The value if it is of the declared type (a string, as annotations are postponed); whole numbers pass as float."""
    if declared == "float":
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) if abs(value) <= sys.float_info.max else value
        raise MachineError(f"{where} must be a number, not {value!r}")
    if declared in ("int", "str", "bool"):
        if type(value).__name__ == declared:
            return value
        what = {"int": "a whole number", "str": "a string", "bool": "true or false"}[declared]
        raise MachineError(f"{where} must be {what}, not {value!r}")
    if declared.startswith("Mapping"):
        if not isinstance(value, dict):
            raise MachineError(f"{where} must be a table, not {value!r}")
        item = "float" if declared.endswith("float]") else "int"
        return {key: _typed(item, v, f"{where}.{key}") for key, v in value.items()}
    return value


def _within(what: str, value: float, least: float, most: float) -> None:
    _demand(least <= value <= most, f"{what} must be from {least:,} to {most:,}, is {value}")


def _demand(holds: bool, complaint: str) -> None:
    if not holds:
        raise MachineError(complaint)


def _toml_scalars(row: Any) -> list[str]:
    values = ((f.name, getattr(row, f.name)) for f in fields(row))
    return [f"{name} = {_toml_value(value)}" for name, value in values if isinstance(value, (bool, int, float, str))]


def _toml_value(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
