"""The words for a plan's figures, said the same way in every view: baselines, sources of costs, how much faster, the gap."""

from __future__ import annotations

from collections import Counter

from placer.common.units import format_ns, ratio
from placer.graph.assumptions import assumed_in_short, values_at
from placer.plan.parts import BASELINE_NAMES, AtEnd, Baseline, OpPlan
from placer.plan.placement import Placement
from placer.solvers.base import Status

COST_SOURCES = {
    "measured": "measured",
    "harvested": "measured within whole steps",
    "analytic": "from a formula",
    "analytic-fallback": "from bytes only (no formula)",
    "user": "given by you",
    "": "without cost",
}
"""By `OpCost.source`; "" for ops that have no work, such as constants and arguments."""
OBJECTIVE_NAMES = {"step_time": "step time", "total_cost": "total cost"}


def headline(placement: Placement) -> str:
    """How much faster than TensorFlow's default the plan is, as measured or predicted; what a prediction assumes.

    If another placement is best at an end of what the graph leaves open, that is said, too.
    """
    if placement.verdict is not None and (measured := placement.verdict.headline):
        return measured
    said = ", ".join(filter(None, (_predicted(placement), assumed_in_short(placement.graph))))
    return "; ".join((said, *(at_end(placement, each) for each in placement.at_ends if each.best)))


def at_end(placement: Placement, each: AtEnd) -> str:
    """The plan's step where what the graph leaves open is low or high, and the placement that is best there if it is another."""
    values, plan_ns = values_at(placement.graph, each.end), format_ns(each.step_time_ns)
    if not each.best:
        return f"with {values}, the plan takes {plan_ns}"
    best = BASELINE_NAMES.get(each.best, "another placement")
    return f"with {values}, {best} is best: {format_ns(each.best_step_time_ns)} instead of {plan_ns}"


def _predicted(placement: Placement) -> str:
    default, step_ns = placement.baselines.get("tf_default"), placement.step_time_ns
    if default is None:
        return f"predicted {format_ns(step_ns)} per step"
    if not default.feasible:
        return f"predicted {format_ns(step_ns)} per step; TensorFlow's default is not possible: {default.note}"
    change = ratio(default.step_time_ns, step_ns, "faster than", "slower than", "as fast as")
    instead = "" if change == "as fast as" else f" instead of {format_ns(default.step_time_ns)}"
    return f"predicted {change} TensorFlow's default: {format_ns(step_ns)} per step{instead}"


def predicted_step(placement: Placement) -> str:
    """The predicted step time with its interval."""
    low_ns, high_ns = placement.interval_ns
    return f"{format_ns(placement.step_time_ns)} ({format_ns(low_ns)} to {format_ns(high_ns)})"


def against(placement: Placement, baseline: Baseline) -> str:
    """How the plan compares with a baseline by its objective, and what the baseline could not do."""
    if not baseline.feasible:
        return f"not possible: {baseline.note}"
    if placement.objective == "total_cost":
        change = ratio(baseline.total_cost_ns, placement.objective_ns, "lower", "higher", "the same")
        text = f"the plan's total cost is {change}"
    else:
        text = f"the plan is {ratio(baseline.step_time_ns, placement.objective_ns, 'faster', 'slower', 'as fast')}"
    return "; ".join(filter(None, (text, baseline.note)))


def ops_on_machine(placement: Placement) -> str:
    """How many ops the plan has, and how many of them are constants, which are not counted for a device."""
    constants = sum(op.role == "constant" for op in placement.graph)
    return f"{len(placement.ops)} ops on {placement.machine}" + (f", {constants} of them constants" if constants else "")


def optimality(placement: Placement) -> str:
    """The objective's value, whether it is proved to be optimal, and how much a better plan could save."""
    p = placement
    value = f"{OBJECTIVE_NAMES[p.objective]} {format_ns(p.objective_ns)}, {p.status.value}"
    if assumed := assumed_in_short(p.graph):
        value += f" {assumed}"
    if p.status is Status.OPTIMAL:
        return f"{value}: proved, no plan is better"
    if p.lower_bound_ns <= 0:
        return f"{value}; no lower bound is known"
    return f"{value}; lower bound {format_ns(p.lower_bound_ns)}: a better plan saves at most {p.gap:.1%} (the gap)"


def solver_words(placement: Placement) -> str:
    """Which solver ran and why that one, for how long, and why it stopped."""
    p = placement
    chosen = f" (chosen because {p.chosen_because})" if p.chosen_because else ""
    return f"{p.solver}{chosen}, {p.solver_seconds:.2f} s; {p.stop_reason}"


def cost_sources(placement: Placement) -> str:
    """How many ops have a cost from each source. The numbers add up to the number of ops."""
    counts = Counter(plan.cost_source for plan in placement.ops.values())
    known = [source for source, _ in counts.most_common() if source] + [""] * ("" in counts)
    return ", ".join(f"{counts[source]} {source_words(source)}" for source in known) or "none"


def source_words(source: str) -> str:
    """A source of a cost in words; the name itself if a cost model of another package gives it."""
    return COST_SOURCES.get(source, source)


def cost_source(plan: OpPlan, op_type: str, device: str) -> str:
    """The source of an op's cost on a device, with the part that it has as the first op of its type; "" if it has none."""
    source, cold_ns = plan.cost_sources.get(device, ""), plan.cold_ns.get(device, 0)
    words = source_words(source) if source else ""
    return f"{words}, {format_ns(cold_ns)} of it as the first {op_type} of a step" if cold_ns else words
