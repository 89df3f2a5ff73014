"""Machines of which a function may use a part of each GPU, while other programs use the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device, Machine


def shared_machine(machine: Machine, share: float) -> Machine:
    """The machine with this share of each GPU's memory. The reserve stays as it is. What others hold is first in their share."""
    if share == 1:
        return machine
    reserve_of = machine.reserve_bytes
    devices = []
    others = {}
    for each in machine.devices:
        if each.kind == "GPU" and each.memory_bytes > 0:
            part = max(1 + reserve_of.get(each.name, 0), round(share * each.memory_bytes))
            others[each.name] = max(0, machine.others_bytes.get(each.name, 0) - (each.memory_bytes - part))
            devices.append(replace(each, memory_bytes=part))
        else:
            devices.append(each)
    return replace(machine, devices=tuple(devices), others_bytes=others)


def shared_costs(model: CostModel, share: float) -> CostModel:
    """The cost model for this share of each GPU's time."""
    return model if share == 1 else _SharedCosts(model, share)


@dataclass(frozen=True)
class _SharedCosts:
    """Ops compute longer on GPUs. The host starts them in the same time."""

    model: CostModel
    share: float

    @property
    def name(self) -> str:
        return self.model.name

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        cost = self.model.op_cost(signature, device)
        if device.kind != "GPU":
            return cost
        compute_ns = round(cost.compute_ns / self.share)
        return replace(cost, compute_ns=compute_ns, time_ns=max(cost.time_ns, compute_ns))
