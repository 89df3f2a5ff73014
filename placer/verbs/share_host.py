"""The part of a machine that one of several replicas has: its own device, and the host, which all replicas share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device, Machine
from placer.errors import DeviceError
from placer.problem.machine_devices import limits

HOST = "CPU:0"
"""The device that replicas share."""


def machine_of_replica(machine: Machine, devices: tuple[str, ...]) -> Machine:
    """The device of the first replica and the host. Each of the replicas has its part of the rates of the links to the host.

    Args:
        machine: the devices of all replicas.
        devices: of the replicas, short.

    Raises:
        DeviceError: the machine does not have them.
    """
    names = [device.name for device in machine.devices]
    if missing := [device for device in devices if device not in names]:
        raise DeviceError(f"the replicas run on {', '.join(missing)}, which {machine.name!r} does not have")
    count, kept = len(devices), machine.only({HOST, devices[0]})
    links = (
        replace(
            link,
            bytes_per_s=link.bytes_per_s / count,
            unpinned_bytes_per_s=link.unpinned_bytes_per_s / count,
            interval_ns=link.interval_ns * count,
        )
        for link in kept.links
    )
    return replace(kept, links=tuple(links))


def limits_of_replica(machine: Machine, devices: tuple[str, ...], asked: Mapping[str, str | int]) -> dict[str, int]:
    """The bytes that a replica may hold, by device: its part of the host, and on its own device the least that any replica may.

    Args:
        machine, devices: as for `machine_of_replica`.
        asked: the limits of the user, see `placer.problem.machine_devices.limits`.
    """
    limit_of = limits(machine, asked)
    own = [limit_of[device] for device in devices if limit_of[device] >= 0 and device != HOST]
    shared = {HOST: limit_of[HOST] // len(devices)} if limit_of[HOST] >= 0 else {}
    return shared | ({devices[0]: min(own)} if own and devices[0] != HOST else {})


@dataclass(frozen=True)
class SharedHostCosts:
    """A cost model for replicas that run at the same time: the host takes turns, so each of its ops takes `replicas` times."""

    model: CostModel
    replicas: int

    @property
    def name(self) -> str:
        return self.model.name

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        cost = self.model.op_cost(signature, device)
        if device.name != HOST:
            return cost
        return replace(
            cost,
            time_ns=self.replicas * cost.time_ns,
            dispatch_ns=self.replicas * cost.dispatch_ns,
            compute_ns=self.replicas * cost.compute_ns,
        )
