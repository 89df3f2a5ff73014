"""The words for a plan's figures, said the same way in every view: baselines, sources of costs, how much faster, the gap."""

from __future__ import annotations

from collections import Counter

from placer.common.units import format_ns, three_digits
from placer.graph.assumptions import assumed_in_short, values_at
from placer.plan.parts import BASELINE_NAMES, AtEnd, Baseline, OpPlan
from placer.plan.placement import Placement
from placer.plan.verdict import DEFAULT, TUNED, Verdict
from placer.solvers.base import Status

COST_SOURCES = {
    "measured": "measured",
    "harvested": "measured within whole steps",
    "fitted": "fitted to measurements",
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
    if placement.verdict is not None and (measured := verdict_headline(placement.verdict)):
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


def verdict_headline(verdict: Verdict) -> str:
    """The time of the candidate that is used, against TensorFlow's default; "" if one of them was not timed."""
    used, default = verdict.of(verdict.used), verdict.of(DEFAULT)
    if used is None or default is None or not used.median_ns or not default.median_ns:
        return ""
    time = f"{format_ns(used.median_ns)} per step"
    if verdict.used == DEFAULT:
        others = len(verdict.candidates) - 1
        none = "the other candidate is not" if others == 1 else f"none of {others} others is"
        return f"measured: {none} clearly faster than {DEFAULT}, which is used: {time}"
    change = ratio(default.median_ns, used.median_ns, "faster than", "slower than", "as fast as")
    return f"measured {change} {DEFAULT}: {time} instead of {format_ns(default.median_ns)} ({verdict.used} is used)"


VERDICT_HEAD = ("candidate", "measured", "predicted", "calls", "")
"""The head of a table of `verdict_rows`."""


def verdict_rows(verdict: Verdict) -> list[list[str]]:
    """A row of text for each candidate of a race: its name, measured and predicted time, calls, and what became of it."""
    return [
        [
            candidate.name,
            format_ns(candidate.median_ns) if candidate.median_ns else "",
            format_ns(candidate.predicted_ns) if candidate.predicted_ns else "",
            str(candidate.calls),
            "used" if candidate.name == verdict.used else candidate.outcome,
        ]
        for candidate in verdict.candidates
    ]


def end_of_race(verdict: Verdict) -> str:
    """Why a race ended, and what it cost; how long a tuning took."""
    if verdict.end == TUNED:
        return f"tuned in {three_digits(verdict.cost_s)} s, with {verdict.calls} timed calls"
    return f"the race ended after {verdict.calls} calls: {verdict.end}; it cost {verdict.cost_s:.2g} s"


def _predicted(placement: Placement) -> str:
    default, step_ns = placement.baselines.get("tf_default"), placement.step_time_ns
    if default is None:
        return f"predicted {format_ns(step_ns)} per step"
    if not default.feasible:
        return f"predicted {format_ns(step_ns)} per step; TensorFlow's default is not possible: {default.note}"
    change = ratio(default.step_time_ns, step_ns, "faster than", "slower than", "as fast as")
    instead = "" if change == "as fast as" else f" instead of {format_ns(default.step_time_ns)}"
    return f"predicted {change} TensorFlow's default: {format_ns(step_ns)} per step{instead}"


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


def ratio(baseline_ns: int, plan_ns: int, better: str, worse: str, same: str) -> str:
    """The ratio of two times and a word for its direction, such as "2.15x faster"; `same` if it rounds to 1.00."""
    low, high = sorted((baseline_ns, plan_ns))
    if high < 1.005 * low or not high:
        return same
    word = better if plan_ns < baseline_ns else worse
    return f"{three_digits(high / low)}x {word}" if low else word


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
