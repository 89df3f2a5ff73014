"""A machine in words: its devices, the links between them, and where their constants come from."""

from __future__ import annotations

from collections import defaultdict

from cost_models.machines import Device, Link, Machine
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns


def describe(machine: Machine) -> str:
    """What plans for this machine are priced by."""
    devices = [
        [
            d.name,
            format_bytes(d.memory_bytes),
            f"{d.flops.get('float32', d.flops['default']) / 1e9:,.0f}",
            f"{format_bytes(d.memory_bytes_per_s)}/s",
            format_ns(d.dispatch_ns),
            d.model,
        ]
        for d in machine.devices
    ]
    links = [[f"{k.src} -> {k.dst}", format_ns(k.latency_ns), format_ns(k.interval_ns), _rate(k)] for k in machine.links]
    blocks = [table(["device", "memory", "float32 GFLOP/s", "memory traffic", "dispatch", "model"], devices, left=["model"]), ""]
    if links:
        blocks += [table(["copies", "latency", "interval", "rate"], links, left=["rate"]), ""]
    more = [f"{format_ns(d.call_ns)} more on {d.name}" for d in machine.devices if d.call_ns]
    more += [f"{format_ns(machine.split_ns)} more for each further device"] if machine.split_ns else []
    more += [f"{format_ns(machine.argument_ns)} more for each argument or variable"] if machine.argument_ns else []
    more += [f"{format_ns(machine.passed_ns)} for each argument beside that"] if machine.passed_ns else []
    more += [f"up to {format_ns(machine.waiting_ns)} more where its ops take long"] if machine.waiting_ns else []
    blocks += [", ".join([f"a call takes {format_ns(machine.call_overhead_ns)} beside its ops", *more])]
    alike: dict[str, list[str]] = defaultdict(list)
    for device in machine.devices:
        alike[_ops(device)].append(device.name)
    blocks += [f"an op on {', '.join(names)} takes {told}" for told, names in alike.items()]
    if len(machine.devices) > 1:
        blocks += [f"handing over in host memory takes {format_ns(machine.host_hop_ns)}"]
    blocks += [f"priced as  {machine.provenance}"]
    return "\n".join(blocks)


def _rate(link: Link) -> str:
    unpinned = f", {format_bytes(link.unpinned_bytes_per_s)}/s of unpinned memory" if link.unpinned_bytes_per_s else ""
    return f"{format_bytes(link.bytes_per_s)}/s{unpinned}"


def _ops(device: Device) -> str:
    """What an op takes beside its dispatch and work."""
    told = [f"{format_ns(device.host_op_ns)} where it starts no kernel"]
    told += [f"a kernel {format_ns(device.min_kernel_ns)} at least"] if device.min_kernel_ns else []
    told += [f"{format_ns(device.cold_ns)} more as the first of its type"] if device.cold_ns else []
    told += [f"{format_ns(device.wake_ns)} more on all cores after a pause"] if device.wake_ns else []
    side_by_side = device.threads or device.cores
    if device.kind != "CPU" or side_by_side == 1:
        return ", ".join(told)
    one_core = f"products within {format_bytes(device.core_cache_bytes)} on one core"
    one_core += f" of {device.threads_per_core} threads" if device.threads_per_core > 1 else ""
    return ", ".join(told) + f"; up to {side_by_side} run side by side, {one_core}"
