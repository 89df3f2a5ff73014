"""A machine in words: its devices, the links between them, and where their constants come from."""

from __future__ import annotations

from cost_models.machines import Machine
from placer.tables import table
from placer.units import format_bytes, format_ns


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
    links = [[f"{k.src} -> {k.dst}", format_ns(k.latency_ns), f"{format_bytes(k.bytes_per_s)}/s"] for k in machine.links]
    blocks = [table(["device", "memory", "float32 GFLOP/s", "memory traffic", "dispatch", "model"], devices, left=["model"]), ""]
    if links:
        blocks += [table(["copies", "latency", "rate"], links), ""]
    more = [f"{format_ns(d.call_ns)} more on {d.name}" for d in machine.devices if d.call_ns]
    more += [f"{format_ns(machine.split_ns)} more for each further device"] if machine.split_ns else []
    more += [f"{format_ns(machine.argument_ns)} more for each argument or variable"] if machine.argument_ns else []
    more += [f"{format_ns(machine.passed_ns)} for each argument beside that"] if machine.passed_ns else []
    more += [f"{format_ns(d.cold_ns)} more for the first op of each type on {d.name}" for d in machine.devices if d.cold_ns]
    more += [f"up to {format_ns(machine.waiting_ns)} more where its ops take long"] if machine.waiting_ns else []
    blocks += [", ".join([f"a call takes {format_ns(machine.call_overhead_ns)} beside its ops", *more])]
    blocks += [f"priced as  {machine.provenance}"]
    return "\n".join(blocks)
