"""What in a plan refers to something that the plan does not have. A plan from a file must have no such contradiction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.plan.placement import Placement


def contradictions(placement: Placement) -> Iterator[str]:
    """Each contradiction of a plan, as text. Those of its graph are not included."""
    p, devices = placement, set(placement.devices)
    if len(devices) != len(p.devices) or p.devices[:1] != ("CPU:0",):
        yield f"its devices are {', '.join(p.devices) or 'none'}"
    for what, by_device in (("totals", p.totals), ("memory", p.memory)):
        if by_device.keys() != devices:
            yield f"it has {what} of {', '.join(by_device) or 'no device'}, and the devices {', '.join(p.devices)}"
    for device, held in p.memory.items():
        if len(held) != len(p.ops):
            yield f"the memory of {device} is given at {len(held)} ops, of {len(p.ops)}"
    members = Counter(op.unit for op in p.ops.values())
    if members != {k: unit.ops for k, unit in enumerate(p.units)}:
        yield "its units do not have the numbers of ops that they state"
        return
    for name, op in p.ops.items():
        if op.device not in p.units[op.unit].time_ns:
            yield f"{name!r} is on {op.device}, where its unit may not be"
        if not (op.time_ns.keys() <= devices and op.cost_sources.keys() <= op.time_ns.keys() and op.cold_ns.keys() <= devices):
            yield f"{name!r} has a cost on a device that is not there"
        if op.default and op.default not in devices:
            yield f"TensorFlow puts {name!r} on {op.default}, which is not there"
        if op.end_ns < op.start_ns:
            yield f"{name!r} ends before it starts"
    for k, unit in enumerate(p.units):
        if not (unit.time_ns.keys() == unit.transfer_ns.keys() <= devices):
            yield f"unit {k} has a cost on a device that is not there"
        for reason in unit.reasons:
            if reason.op not in p.ops:
                yield f"the reason of unit {k} is of {reason.op!r}, which is not there"
    if len({(op.unit, op.device) for op in p.ops.values()}) > len(p.units):
        yield "ops of one unit are on several devices"
    for transfer in p.transfers:
        maker = p.graph.graph.nodes.get(transfer.producer)
        first = -1 if transfer.tensor.startswith("^") else 0
        if maker is None or not first <= transfer.output < len(maker["op"].signature.outputs):
            yield f"{transfer.tensor!r} is copied, which is not there"
        if not {transfer.src, transfer.dst} <= devices or not math.isfinite(transfer.count):
            yield f"{transfer.tensor!r} is copied {transfer.count} times from {transfer.src} to {transfer.dst}"
        if transfer.end_ns < transfer.start_ns:
            yield f"the copy of {transfer.tensor!r} ends before it starts"
    for name, device in (p.assigned or {}).items():
        if name not in p.ops or device not in devices:
            yield f"{name!r} is assigned to {device}, and one is not there"
