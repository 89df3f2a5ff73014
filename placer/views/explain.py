"""One op in words: its device, why, its cost on each device, its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placer.common.escaping import one_line
from placer.common.units import format_bytes, format_ns
from placer.graph.assumptions import depends_on_open
from placer.plan.placement import Placement
from placer.views.shared.facts import op_facts
from placer.views.shared.words import at_end, cost_source

MAX_MEMBERS_SHOWN = 4


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
    if depends_on_open(placement.graph, facts["name"]):
        lines += [f"  open  {at_end(placement, each)}" for each in placement.at_ends if each.best]
    if facts["together_with"]:
        lines += [f"  with  {_some(facts['together_with'])}: {facts['together_because']}"]
    lines += [f"  if    {_predicate(placement, tensor)}" for tensor in facts["predicates"]]
    lines += [f"  in    {_tensor(tensor)}" for tensor in facts["inputs"]]
    decided = "whether another round runs" if facts["role"] == "loop" else "which branch runs"
    decides = f"; says {decided}" if facts["decides"] else ""
    lines += [f"  out   {_tensor(tensor)}{decides}" for tensor in facts["outputs"]]
    return "\n".join(map(one_line, lines))


def _costs(time_ns: Mapping[str, int], sources: Mapping[str, str]) -> str:
    """The cost by device, each with its source, or with the source at the end if all have the same one."""
    each = len(set(sources.values())) > 1
    costs = [f"{format_ns(ns)} on {device}{f' ({sources[device]})' if each else ''}" for device, ns in time_ns.items()]
    return ", ".join(costs) + (f" ({next(iter(sources.values()))})" if any(sources.values()) and not each else "")


def _tensor(facts: Mapping[str, Any]) -> str:
    """A tensor's name, type, size and device, and its copies."""
    origin = "a constant, kept on each device that reads it" if facts["constant"] else f"made on {facts['device']}"
    copies = [
        f"; copied to {copy['dst']}{' (host memory)' if copy['dst_memory'] == 'host' else ''} in {format_ns(copy['time_ns'])}"
        for copy in facts["copies"]
    ]
    return f"{facts['name']} {facts['type']}{_size(facts['size'])}, {format_bytes(facts['nbytes'])}, {origin}{''.join(copies)}"


def _predicate(placement: Placement, facts: Mapping[str, Any]) -> str:
    """The predicate of the loop or branch that an op belongs to."""
    name = facts["name"].rpartition(":")[0]
    what = "another round runs" if placement.graph.op(name).role == "loop" else "its branch runs"
    return f"{what}: {_tensor(facts)}"


def _size(facts: Mapping[str, Any]) -> str:
    """The source of a size that is not exact, and its bound."""
    if facts["source"] == "exact":
        return ""
    bound = facts["bound"]
    known = bound is not None and None not in bound
    return f" ({'' if facts['source'] == 'bound' else facts['source'] + ', '}{f'at most {list(bound)}' if known else 'no bound'})"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MAX_MEMBERS_SHOWN
    return ", ".join(names[:MAX_MEMBERS_SHOWN]) + (f" and {more} more" if more > 0 else "")
