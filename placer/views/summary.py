"""The summary of a plan as text."""

from __future__ import annotations

from placer.common.escaping import printable
from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.graph.assumptions import known_in_short
from placer.plan.parts import BASELINE_NAMES
from placer.plan.placement import Placement
from placer.plan.verdict import VERDICT_HEAD
from placer.views.shared.words import (
    against,
    at_end,
    cost_sources,
    headline,
    ops_on_machine,
    optimality,
    predicted_step,
    solver_words,
)

MAX_NOTES_SHOWN = 8


def summary(placement: Placement) -> str:
    """The measured or predicted speed; ops, time and memory of each device; the predicted step; transfers; objective; costs;
    baselines; notes.

    If the graph leaves sizes or rounds open, also the step where these are low and where they are high, what a run had, and what
    the user gave.
    If calls raced, also the verdict.
    """
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
        ops_on_machine(p),
        "",
        table(["device", "ops", "time", "peak memory", "kept", "limit"], devices),
        "",
        f"predicted  {predicted_step(p)} per step",
        f"transfers  {len(p.transfers)} per step, {format_bytes(p.copied_bytes)}, {format_ns(p.transfer_ns)}",
        f"objective  {optimality(p)}",
        f"solver     {solver_words(p)}",
        f"costs      {cost_sources(p)}",
        *(f"{'at ' + each.end:<10} {at_end(p, each)}" for each in p.at_ends),
        *(f"{source:<10} {known}" for source in ("seen", "given") if (known := known_in_short(p.graph, source))),
        "",
        table(["placement", "step time", "total cost", ""], placements),
    ]
    if p.verdict is not None:
        blocks += ["", table(VERDICT_HEAD, p.verdict.rows), p.verdict.cost]
    if p.notes:
        blocks += ["", *(f"note: {note}" for note in p.notes[:MAX_NOTES_SHOWN])]
        blocks += [f"… and {len(p.notes) - MAX_NOTES_SHOWN} more notes"] if len(p.notes) > MAX_NOTES_SHOWN else []
    return printable("\n".join(blocks))
