"""A machine as text: its devices, the links between them, and the constants that price ops, copies and calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from cost_models.machines import Device, Link, Machine
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns


def describe(machine: Machine) -> str:
    """The constants of a machine in tables, and where they come from. Constants that are 0 are left out."""
    blocks = [_devices(machine.devices), _links(machine.links), _ops(machine.devices)]
    blocks += ["\n".join(_products(machine.devices)), _call(machine)]
    if len(machine.devices) > 1:
        blocks += [f"handing over a tensor in host memory takes {format_ns(machine.host_hop_ns)}"]
    blocks += [machine.used_by_others, f"assumed  {machine.assumed}" if machine.assumed else ""]
    return "\n\n".join(filter(None, [*blocks, f"priced as  {machine.provenance}"]))


def _devices(devices: Sequence[Device]) -> str:
    rows = [
        [
            d.name,
            format_bytes(d.memory_bytes),
            f"{d.flops.get('float32', d.flops['default']) / 1e9:,.0f}",
            f"{format_bytes(d.memory_bytes_per_s)}/s",
            d.model,
        ]
        for d in devices
    ]
    return table(["device", "memory", "float32 GFLOP/s", "memory traffic", "model"], rows, left=["model"])


def _links(links: Sequence[Link]) -> str:
    rows = [[f"{k.src} -> {k.dst}", format_ns(k.latency_ns), format_ns(k.interval_ns), _rate(k)] for k in links]
    return table(["copies", "latency", "interval", "rate"], rows, left=["rate"]) if rows else ""


def _rate(link: Link) -> str:
    unpinned = f", {format_bytes(link.unpinned_bytes_per_s)}/s from unpinned memory" if link.unpinned_bytes_per_s else ""
    return f"{format_bytes(link.bytes_per_s)}/s{unpinned}"


def _ops(devices: Sequence[Device]) -> str:
    """The times beside an op's work."""
    head = ["ops on", "start", "start without kernel", "shortest kernel", "first of its type", "all cores asleep"]
    rows = [
        [
            d.name,
            format_ns(d.dispatch_ns),
            format_ns(d.host_op_ns),
            format_ns(d.min_kernel_ns) if d.min_kernel_ns else "",
            f"+ {format_ns(d.cold_ns)}" if d.cold_ns else "",
            f"+ {format_ns(d.wake_ns)}" if d.wake_ns else "",
        ]
        for d in devices
    ]
    used = [k for k in range(len(head)) if any(row[k] for row in rows)]
    return table([head[k] for k in used], [[row[k] for k in used] for row in rows])


def _products(devices: Sequence[Device]) -> Iterator[str]:
    """A line for each CPU with several threads: the products that it makes on one core."""
    for d in devices:
        if d.kind == "CPU" and d.cores > 1:
            threads = f" of {d.threads_per_core} threads" if d.threads_per_core > 1 else ""
            yield f"{d.name} makes matrix products of up to {format_bytes(d.core_cache_bytes)} of data on one core{threads}"


def _call(machine: Machine) -> str:
    """The time of a call beside its ops, a line for each part."""
    parts = [(format_ns(machine.call_overhead_ns), "in any case")]
    devices_by_ns: dict[int, list[str]] = defaultdict(list)
    for device in machine.devices:
        devices_by_ns[device.call_ns].append(device.name)
    devices_by_ns.pop(0, None)
    only_one = ", the largest of these alone" if len(devices_by_ns) > 1 else ""
    parts += [(f"+ {format_ns(ns)}", f"with an op on {' or '.join(names)}{only_one}") for ns, names in devices_by_ns.items()]
    more = {
        "for each device with ops, after the first": machine.split_ns,
        "for each tensor or variable that the function uses": machine.argument_ns,
        "for each tensor that the caller passes, beside that": machine.passed_ns,
        "if its ops take 1 ms or longer, because the caller sleeps; a share of it if they take less": machine.waiting_ns,
    }
    parts += [(f"+ {format_ns(ns)}", when) for when, ns in more.items() if ns]
    width = max(len(time) for time, _ in parts)
    return "\n".join(["a call takes, beside its ops", *(f"  {time:>{width}}  {when}" for time, when in parts)])
