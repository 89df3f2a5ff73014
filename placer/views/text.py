"""A placement in words: the summary of a plan, and the story of one op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.plan.parts import Baseline, OpPlan
from placer.plan.placement import Placement
from placer.views.plain import story

BASELINE_NAMES = {"tf_default": "TensorFlow's default", "all_cpu": "all on CPU", "all_gpu": "all on GPU"}
NOTES_SHOWN = 8


def summary(placement: Placement) -> str:
    """Per device ops, time and peak memory; transfers; objective, status, bound, gap; the baselines; the notes."""
    p = placement
    bound = f"lower bound {format_ns(p.lower_bound_ns)}, gap {p.gap:.1%}" if p.lower_bound_ns > 0 else "no lower bound"
    blocks = [
        f"{p.graph.name}: {len(p.ops)} ops on {p.machine} ({', '.join(p.devices)})",
        table(
            ["device", "ops", "time", "peak memory", "kept", "limit"],
            [
                [
                    name,
                    str(t.ops),
                    format_ns(t.time_ns),
                    format_bytes(t.peak_bytes),
                    format_bytes(t.persistent_bytes),
                    format_bytes(t.limit_bytes) if t.limit_bytes >= 0 else "none",
                ]
                for name, t in p.totals.items()
            ],
        ),
        f"transfers  {len(p.transfers)}, {format_bytes(p.copied_bytes)} per step, {format_ns(p.transfer_ns)}",
        f"objective  {p.objective} {format_ns(p.objective_ns)}, {p.status.value}, {bound}",
        f"solver     {p.solver}, {p.solver_seconds:.2f} s, {p.stop_reason}",
        f"costs      {sources(p)}",
        "",
        table(
            ["against", "step time", "total cost", ""],
            [
                ["this plan", format_ns(p.step_time_ns), format_ns(p.total_cost_ns), ""],
                *(
                    [
                        BASELINE_NAMES.get(name, name),
                        format_ns(b.step_time_ns),
                        format_ns(b.total_cost_ns),
                        against(p, b),
                    ]
                    for name, b in p.baselines.items()
                ),
            ],
        ),
    ]
    if p.notes:
        blocks += ["", *(f"note: {note}" for note in p.notes[:NOTES_SHOWN])]
        blocks += [f"… and {len(p.notes) - NOTES_SHOWN} more notes"] if len(p.notes) > NOTES_SHOWN else []
    return "\n".join(blocks)


def explain(placement: Placement, *, op: str) -> str:
    """One op: its device, why, its cost on each device, what comes in and goes out."""
    told = story(placement, op)
    reason, runs = told["reason"], "" if told["count"] == 1 else f", {told['count']:g} runs per step"
    sources = {device: source_of(placement.ops[told["name"]], told["op_type"], device) for device in told["cost_sources"]}
    each = len(set(sources.values())) > 1
    prices = ", ".join(
        f"{format_ns(ns)} on {device}{f' ({sources[device]})' if each else ''}" for device, ns in told["time_ns"].items()
    )
    for_all = f" ({next(iter(sources.values()))})" if any(sources.values()) and not each else ""
    lines = [f"{told['name']} ({told['op_type']}{runs}) is on {told['device']}", f"  why   {reason['kind']}: {reason['text']}"]
    others = [r for r in told["unit_reasons"] if r["text"] not in reason["text"]]
    lines += [f"        {other['kind']}: {other['text']} ({other['op']})" for other in others]
    lines += [f"  cost  {prices}{for_all}"]
    lines += [f"        not on a {kind}: {why}" for kind, why in told["refusals"].items()]
    if told["default_device"] not in ("", told["device"]):
        lines += [f"  else  TensorFlow itself would run it on {told['default_device']}"]
    if told["together_with"]:
        lines += [f"  with  {_some(told['together_with'])}: {told['together_because']}"]
    lines += [f"  in    {_tensor(tensor)}" for tensor in told["inputs"]]
    lines += [f"  out   {_tensor(tensor)}" for tensor in told["outputs"]]
    return "\n".join(lines)


def _tensor(told: Mapping[str, Any]) -> str:
    """A tensor's name, type, size and device, and its copies."""
    made = "a constant, kept on each device that reads it" if told["constant"] else f"made on {told['device']}"
    copies = [
        f"; copied to {copy['dst']}{' (host memory)' if copy['dst_memory'] == 'host' else ''} in {format_ns(copy['time_ns'])}"
        for copy in told["copies"]
    ]
    return f"{told['name']} {told['type']}, {format_bytes(told['nbytes'])}, {made}{''.join(copies)}"


def sources(placement: Placement) -> str:
    """How many ops' costs come from where."""
    counts = Counter(plan.cost_source for plan in placement.ops.values() if plan.cost_source)
    return ", ".join(f"{count} {source}" for source, count in counts.most_common()) or "none"


def source_of(plan: OpPlan, op_type: str, device: str) -> str:
    """Where an op's price on a device comes from, and what of it is that of the first op of its type."""
    told, cold_ns = plan.cost_sources.get(device, ""), plan.cold_ns.get(device, 0)
    return f"{told}, {format_ns(cold_ns)} of it as the first {op_type} of a step" if cold_ns else told


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def against(placement: Placement, baseline: Baseline) -> str:
    """How a baseline compares by the objective, and what it could not do."""
    if not baseline.feasible:
        return baseline.note
    other_ns = baseline.total_cost_ns if placement.objective == "total_cost" else baseline.step_time_ns
    here_ns = placement.objective_ns
    ratio = "the same" if other_ns == here_ns else f"{other_ns / here_ns:.2f} times this plan" if here_ns else ""
    return ", ".join(filter(None, (ratio, baseline.note)))
