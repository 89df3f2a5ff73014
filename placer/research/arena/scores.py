"""What records say of solvers: best bounds, gaps, ratios, statistics over seeds, performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from placer.research.arena.records import Record, contestant, labels


@dataclass(frozen=True)
class Score:
    """One solver on one problem, over its seeds. Values are of the objective, in ns, of the answers that fit; none: empty."""

    label: str
    runs: Sequence[Record]
    values_ns: Sequence[float]
    """Ascending."""
    bound_ns: int
    """The best that any run proved."""
    best_ns: float
    """The least that any run found; inf where none did."""

    @property
    def answered(self) -> bool:
        """Whether any answer fits."""
        return bool(self.values_ns)

    @property
    def median_ns(self) -> float:
        """Inf where nothing fits."""
        return float(np.median(self.values_ns)) if self.values_ns else np.inf

    def quantile_ns(self, share: float) -> float:
        """Linear between the values."""
        return float(np.quantile(self.values_ns, share)) if self.values_ns else np.inf

    @property
    def gap(self) -> float:
        """(median - bound) / median, by the best bound of all runs."""
        return gap_of(self.median_ns, self.bound_ns)

    @property
    def ratio(self) -> float:
        """The median over the best answer of all runs; inf where nothing fits."""
        if not self.answered:
            return np.inf
        return self.median_ns / self.best_ns if self.best_ns else 1.0 if self.median_ns == 0 else np.inf

    @property
    def best_run(self) -> Record:
        """The answer that fits and is best, the first of equals; the first run where none does."""
        fitting = [run for run in self.runs if fits(run)]
        return min(fitting, key=lambda run: run["objective_ns"]) if fitting else self.runs[0]

    @property
    def seconds(self) -> float:
        """The median of the seconds spent planning; NaN where nothing was."""
        spent = [run["seconds"] for run in self.runs if "seconds" in run]
        return float(np.median(spent)) if spent else np.nan


@dataclass(frozen=True)
class ProblemScores:
    """All solvers on one problem, the best first."""

    problem: str
    record: Record
    """Any of its records, for what it says of the problem."""
    scores: Sequence[Score]
    contradictions: Sequence[str]
    """Bounds above what another run found, in words: one of the two is wrong."""


def fits(run: Mapping[str, Any]) -> bool:
    """Whether a run gave an answer that meets all limits."""
    return run["outcome"] == "answered" and bool(run["feasible"]) and "objective_ns" in run


def gap_of(value_ns: float, bound_ns: float) -> float:
    """(value - bound) / value, 0 for a value of 0; NaN for none."""
    if not np.isfinite(value_ns):
        return np.nan
    return max(0.0, (value_ns - bound_ns) / value_ns) if value_ns else 0.0


def scored(records: Sequence[Record], others: Sequence[Record] = ()) -> list[ProblemScores]:
    """The scores of all solvers, a problem after the other in the order of the records.

    Args:
        others: further runs, which count for a problem's best bound and best answer alone.
    """
    named = labels(records)
    by_problem: dict[tuple[str, str], list[Record]] = {}
    for run in records:
        by_problem.setdefault((run["problem_hash"], run["objective"]), []).append(run)
    found = []
    for identity, runs in by_problem.items():
        known = runs + [run for run in others if (run["problem_hash"], run["objective"]) == identity]
        answers = [run for run in known if fits(run)]
        best = min(answers, key=lambda run: run["objective_ns"], default=None)
        bounding = [run for run in known if run["outcome"] == "answered"]
        bound = max((run["lower_bound_ns"] for run in bounding), default=0)
        by_contestant: dict[tuple[Any, ...], list[Record]] = {}
        for run in runs:
            by_contestant.setdefault(contestant(run), []).append(run)
        best_ns = best["objective_ns"] if best else np.inf
        scores = [
            Score(named[who], its, sorted(run["objective_ns"] for run in its if fits(run)), bound, best_ns)
            for who, its in by_contestant.items()
        ]
        scores.sort(key=lambda score: score.median_ns)
        wrong = [
            f"{run['solver']} proves a bound of {run['lower_bound_ns']} ns, and {best['solver']} found {best_ns} ns"
            for run in bounding
            if best and run["lower_bound_ns"] > best_ns
        ]
        wrong += [
            f"{run['solver']} says that nothing fits, and {best['solver']} found something that does"
            for run in bounding
            if best and run["status"] == "INFEASIBLE"
        ]
        found.append(ProblemScores(runs[0]["problem"], runs[0], scores, list(dict.fromkeys(wrong))))
    return found


def performance_profiles(records: Sequence[Record], others: Sequence[Record] = ()) -> dict[str, list[tuple[float, float]]]:
    """By solver: steps (factor, share), the share of problems on which it is within that factor of the best answer.

    E. D. Dolan, J. J. Moré, Benchmarking optimization software with performance profiles, Mathematical Programming 91, 2002.
    Where a solver has several seeds its median counts. Problems that no run answered are left out.
    """
    problems = [scores for scores in scored(records, others) if any(score.answered for score in scores.scores)]
    ratios: dict[str, list[float]] = {label: [] for label in labels(records).values()}
    for problem in problems:
        for score in problem.scores:
            if score.answered:
                ratios[score.label].append(score.ratio)
    return {label: [(ratio, (k + 1) / len(problems)) for k, ratio in enumerate(sorted(found))] for label, found in ratios.items()}
