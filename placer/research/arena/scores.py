"""Statistics of records: best bounds, gaps, ratios, quantiles over seeds, performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.common.gap import relative_gap
from placer.research.arena.records import Record, contestant, labels


@dataclass(frozen=True)
class Score:
    """One solver on one problem, over its seeds."""

    label: str
    runs: Sequence[Record]
    values_ns: Sequence[float]
    """The objectives of the answers that meet all limits, ascending."""
    bound_ns: int
    """The best bound of all runs."""
    best_ns: float
    """The best answer of all runs; inf if there is none."""

    @property
    def answered(self) -> bool:
        """Whether any answer meets all limits."""
        return bool(self.values_ns)

    @property
    def median_ns(self) -> float:
        """The median; inf if no answer meets all limits."""
        return float(np.median(self.values_ns)) if self.values_ns else np.inf

    def quantile_ns(self, share: float) -> float:
        """A quantile, interpolated linearly; inf if no answer meets all limits."""
        return float(np.quantile(self.values_ns, share)) if self.values_ns else np.inf

    @property
    def gap(self) -> float:
        """(median - bound) / median, with the best bound of all runs; NaN if no answer meets all limits."""
        return relative_gap(self.median_ns, self.bound_ns) if self.answered else np.nan

    @property
    def ratio(self) -> float:
        """The median divided by the best answer of all runs; inf if no answer meets all limits."""
        if not self.answered:
            return np.inf
        return self.median_ns / self.best_ns if self.best_ns else 1.0 if self.median_ns == 0 else np.inf

    @property
    def best_run(self) -> Record:
        """The run with the best answer that meets all limits, the first of equals; the first run if there is none."""
        fitting = [run for run in self.runs if fits(run)]
        return min(fitting, key=lambda run: run["objective_ns"]) if fitting else self.runs[0]

    @property
    def seconds(self) -> float:
        """The median of the planning times; NaN if there are none."""
        spent = [run["seconds"] for run in self.runs if "seconds" in run]
        return float(np.median(spent)) if spent else np.nan


@dataclass(frozen=True)
class ProblemScores:
    """The scores of all solvers on one problem, the best first."""

    problem: str
    record: Record
    """One of its records, for the fields that describe the problem."""
    scores: Sequence[Score]
    contradictions: Sequence[str]
    """In words, bounds above the answer of another run: one of the two is wrong."""


def fits(run: Mapping[str, Any]) -> bool:
    """Whether a run gave an answer that meets all limits."""
    return run["outcome"] == "answered" and bool(run["feasible"]) and "objective_ns" in run


def scored(records: Sequence[Record], others: Sequence[Record] = ()) -> list[ProblemScores]:
    """The scores of all solvers on each problem, in the order of the records.

    Args:
        records: runs.
        others: further runs, which count in the best bound and the best answer of a problem only.
    """
    named = labels(records)
    by_problem: dict[tuple[str, str], list[Record]] = {}
    for run in records:
        by_problem.setdefault((run["problem_hash"], run["objective"]), []).append(run)
    problems = []
    for identity, runs in by_problem.items():
        all_runs = runs + [run for run in others if (run["problem_hash"], run["objective"]) == identity]
        answers = [run for run in all_runs if fits(run)]
        best = min(answers, key=lambda run: run["objective_ns"], default=None)
        bounding = [run for run in all_runs if run["outcome"] == "answered"]
        bound = max((run["lower_bound_ns"] for run in bounding), default=0)
        by_contestant: dict[tuple[Any, ...], list[Record]] = {}
        for run in runs:
            by_contestant.setdefault(contestant(run), []).append(run)
        best_ns = best["objective_ns"] if best else np.inf
        scores = [
            Score(named[identity], own, sorted(run["objective_ns"] for run in own if fits(run)), bound, best_ns)
            for identity, own in by_contestant.items()
        ]
        scores.sort(key=lambda score: score.median_ns)
        contradictions = [
            f"{run['solver']} proves a bound of {run['lower_bound_ns']} ns, and {best['solver']} found {best_ns} ns"
            for run in bounding
            if best and run["lower_bound_ns"] > best_ns
        ]
        contradictions += [
            f"{run['solver']} says INFEASIBLE, and {best['solver']} found an answer that meets all limits"
            for run in bounding
            if best and run["status"] == "INFEASIBLE"
        ]
        problems.append(ProblemScores(runs[0]["problem"], runs[0], scores, list(dict.fromkeys(contradictions))))
    return problems


def performance_profiles(records: Sequence[Record], others: Sequence[Record] = ()) -> dict[str, list[tuple[float, float]]]:
    """By label, the steps (factor, share) of a profile: the share of problems with an answer within that factor of the best.

    E. D. Dolan, J. J. Moré, Benchmarking optimization software with performance profiles, Mathematical Programming 91, 2002.
    The median over seeds counts. Problems that no run answered are left out.
    """
    problems = [scores for scores in scored(records, others) if any(score.answered for score in scores.scores)]
    ratios: dict[str, list[float]] = {label: [] for label in labels(records).values()}
    for problem in problems:
        for score in problem.scores:
            if score.answered:
                ratios[score.label].append(score.ratio)
    return {label: [(ratio, k / len(problems)) for k, ratio in enumerate(sorted(own), 1)] for label, own in ratios.items()}
