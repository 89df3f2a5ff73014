"""A placement as text: the summary of a plan, and the explanation of one op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.plan.placement import Placement
from placer.views.facts import op_facts
from placer.views.words import BASELINE_NAMES, against, cost_source, cost_sources, headline, optimality

MAX_NOTES_SHOWN = 8
MAX_MEMBERS_SHOWN = 4


def summary(placement: Placement) -> str:
    """The predicted speed; per device ops, time and memory; transfers; objective and bound; costs; baselines; notes."""
    p = placement
    devices = [
        [
            name,
            str(t.ops),
            format_ns(t.time_ns),
            format_bytes(t.peak_bytes),
            format_bytes(t.persistent_bytes),
            format_bytes(t.limit_bytes) if t.limit_bytes >= 0 else "none",
        ]
        for name, t in p.totals.items()
    ]
    placements = [
        ["this plan", format_ns(p.step_time_ns), format_ns(p.total_cost_ns), ""],
        *(
            [BASELINE_NAMES.get(name, name), format_ns(b.step_time_ns), format_ns(b.total_cost_ns), against(p, b)]
            for name, b in p.baselines.items()
        ),
    ]
    blocks = [
        f"{p.graph.name}: {headline(p)}",
        f"{len(p.ops)} ops on {p.machine}",
        "",
        table(["device", "ops", "time", "peak memory", "kept", "limit"], devices),
        "",
        f"transfers  {len(p.transfers)} per step, {format_bytes(p.copied_bytes)}, {format_ns(p.transfer_ns)}",
        f"objective  {optimality(p)}",
        f"solver     {p.solver}, {p.solver_seconds:.2f} s; {p.stop_reason}",
        f"costs      {cost_sources(p)}",
        "",
        table(["placement", "step time", "total cost", ""], placements),
    ]
    if p.notes:
        blocks += ["", *(f"note: {note}" for note in p.notes[:MAX_NOTES_SHOWN])]
        blocks += [f"… and {len(p.notes) - MAX_NOTES_SHOWN} more notes"] if len(p.notes) > MAX_NOTES_SHOWN else []
    return "\n".join(blocks)


def explain(placement: Placement, *, op: str) -> str:
    """One op: its device, why, its cost on each device, its inputs and outputs."""
    facts = op_facts(placement, op)
    plan, op_type, reason = placement.ops[facts["name"]], facts["op_type"], facts["reason"]
    runs = "" if facts["count"] == 1 else f", {facts['count']:g} runs per step"
    lines = [f"{facts['name']} ({op_type}{runs}) is on {facts['device']}", f"  why   {reason['kind']}: {reason['text']}"]
    others = [r for r in facts["unit_reasons"] if r["text"] not in reason["text"]]
    lines += [f"        {other['kind']}: {other['text']} ({other['op']})" for other in others]
    sources = {device: cost_source(plan, op_type, device) for device in facts["cost_sources"]}
    lines += [f"  cost  {_costs(facts['time_ns'], sources)}"]
    lines += [f"        not on a {kind}: {why}" for kind, why in facts["refusals"].items()]
    if facts["default_device"] not in ("", facts["device"]):
        lines += [f"  else  TensorFlow itself would run it on {facts['default_device']}"]
    if facts["together_with"]:
        lines += [f"  with  {_some(facts['together_with'])}: {facts['together_because']}"]
    lines += [f"  in    {_tensor(tensor)}" for tensor in facts["inputs"]]
    lines += [f"  out   {_tensor(tensor)}" for tensor in facts["outputs"]]
    return "\n".join(lines)


def _costs(time_ns: Mapping[str, int], sources: Mapping[str, str]) -> str:
    """The cost by device, each with its source, or with the source at the end if all have the same one."""
    each = len(set(sources.values())) > 1
    costs = [f"{format_ns(ns)} on {device}{f' ({sources[device]})' if each else ''}" for device, ns in time_ns.items()]
    return ", ".join(costs) + (f" ({next(iter(sources.values()))})" if any(sources.values()) and not each else "")


def _tensor(facts: Mapping[str, Any]) -> str:
    """A tensor's name, type, size and device, and its copies."""
    made = "a constant, kept on each device that reads it" if facts["constant"] else f"made on {facts['device']}"
    copies = [
        f"; copied to {copy['dst']}{' (host memory)' if copy['dst_memory'] == 'host' else ''} in {format_ns(copy['time_ns'])}"
        for copy in facts["copies"]
    ]
    return f"{facts['name']} {facts['type']}, {format_bytes(facts['nbytes'])}, {made}{''.join(copies)}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MAX_MEMBERS_SHOWN
    return ", ".join(names[:MAX_MEMBERS_SHOWN]) + (f" and {more} more" if more > 0 else "")
