"""The devices of a machine as a part of a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from cost_models.machines import Machine, host_of, task_of
from placer.common.device_spec import parse
from placer.common.units import parse_bytes
from placer.errors import DeviceError
from placer.problem.parts import Devices

UNHIDDEN_PERCENT = 25
"""`Devices.unhidden_percent` of machines: a training step of 40 layers with 71 copies between two H200s took 17.2 ms, and 11.6 ms
were predicted."""


def devices_of(machine: Machine, memory_limits: Mapping[str, str | int], *, arguments: int, captures: int) -> Devices:
    """The devices of a machine, and what a call with so many arguments and captures takes beside its ops."""
    devices = machine.devices
    return Devices(
        names=tuple(d.name for d in devices),
        kinds=tuple(d.kind for d in devices),
        tasks=tuple(task_of(d.name) for d in devices),
        memory_limit_bytes=np.array(list(limits(machine, memory_limits).values()), np.int64),
        asynchronous=np.array([d.asynchronous for d in devices], np.bool_),
        threads=np.array([1 if d.asynchronous else d.cores for d in devices], np.int64),
        shares_cores=np.array([d.kind == "CPU" and machine.link(host_of(d.name), d.name) is None for d in devices], np.bool_),
        call_ns=np.array([d.call_ns for d in devices], np.int64),
        wake_ns=np.array([d.wake_ns for d in devices], np.int64),
        call_overhead_ns=machine.call_overhead_ns + machine.argument_ns * (arguments + captures) + machine.passed_ns * arguments,
        split_ns=machine.split_ns,
        waiting_ns=machine.waiting_ns,
        unhidden_percent=UNHIDDEN_PERCENT,
    )


def limits(machine: Machine, asked: Mapping[str, str | int]) -> dict[str, int]:
    """The bytes that each device may hold, by device; -1 for no limit.

    Args:
        machine: its memory without its reserves, and without what others hold, is the limit of a device that none is given for.
        asked: limits by device spec, "GPU" for each GPU; bytes as of `placer.common.units.parse_bytes`.

    Raises:
        OptionError: a limit does not parse.
        DeviceError: a limit names a device that is not there.
    """
    taken = Counter(machine.reserve_bytes) + Counter(machine.others_bytes)
    limit_of = {d.name: d.memory_bytes - taken[d.name] if d.memory_bytes > 0 else -1 for d in machine.devices}
    specs = {name: parse(name) for name in asked}
    for name, spec in sorted(specs.items(), key=lambda entry: entry[1].index is not None):  # one device's own limit holds
        matched = [device for device in limit_of if spec.matches(device)]
        if not matched:
            raise DeviceError(
                f"a memory limit names {name!r}, which {machine.name!r} does not have; it has {', '.join(limit_of)}."
            )
        limit_of.update(dict.fromkeys(matched, parse_bytes(asked[name])))
    return limit_of
