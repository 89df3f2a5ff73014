"""Checks the choices of a pairwise problem, in plain loops that share no code with the solver."""

from __future__ import annotations

from dataclasses import dataclass

from placer.problem.arrays import Ints
from placer.research.pairwise.problem import FORBIDDEN, PairwiseProblem


@dataclass(frozen=True, slots=True)
class PairwiseReport:
    """The result of an independent check."""

    violations: tuple[str, ...]
    """In words; empty if the choices are allowed and fit."""
    cost: int
    """The sum of the costs that are not forbidden."""
    peak_usage: int

    @property
    def ok(self) -> bool:
        """Whether there are no violations."""
        return not self.violations


def validate_pairwise(problem: PairwiseProblem, choice: Ints, cost: int | None = None) -> PairwiseReport:
    """Checks the choices [N], the memory limit and, if ``cost`` is given, the cost.

    If the choices have another shape, or a node does not have its choice, the cost and the peak of the report are 0.
    """
    chosen, start = choice.tolist(), problem.choice_start.tolist()
    if len(chosen) != problem.nodes:
        return PairwiseReport((f"{len(chosen)} nodes have a choice where the problem has {problem.nodes} nodes",), 0, 0)
    unknown = [n for n, c in enumerate(chosen) if not 0 <= c < start[n + 1] - start[n]]
    if unknown:
        violated = tuple(f"node {n} takes choice {chosen[n]} of {start[n + 1] - start[n]}" for n in unknown)
        return PairwiseReport(violated, 0, 0)

    violations, total = [], 0
    for n, c in enumerate(chosen):
        price = int(problem.choice_cost[start[n] + c])
        if price >= FORBIDDEN:
            violations.append(f"node {n} takes its choice {c}, which is forbidden")
        else:
            total += price
    for e, (a, b) in enumerate(problem.edge_nodes.tolist()):
        columns = start[b + 1] - start[b]
        price = int(problem.edge_cost[int(problem.edge_start[e]) + chosen[a] * columns + chosen[b]])
        if price >= FORBIDDEN:
            violations.append(f"edge {e} forbids choice {chosen[a]} of node {a} with choice {chosen[b]} of node {b}")
        else:
            total += price
    if cost is not None and cost != total:
        violations.append(f"the cost is said to be {cost} and is {total}")

    events = []
    for n, (begin, end) in enumerate(problem.node_interval.tolist()):
        if begin < end:
            held = int(problem.choice_usage[start[n] + chosen[n]])
            events += [(begin, 1, held), (end, 0, -held)]  # at the same time, ends come before begins
    peak = held = 0
    for _, _, change in sorted(events):
        held += change
        peak = max(peak, held)
    if peak > problem.usage_limit:
        violations.append(f"{peak} is in use at the peak, {peak - problem.usage_limit} over the limit of {problem.usage_limit}")
    return PairwiseReport(tuple(violations), total, peak)
