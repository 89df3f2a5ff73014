"""Tests of whether solvers differ: Wilcoxon's with Holm's correction, Friedman's with Nemenyi's, and bootstrap intervals.

The procedure is that of J. Demšar, Statistical comparisons of classifiers over multiple data sets, Journal of Machine Learning
Research 7, 2006. SciPy computes the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import ModuleType
from typing import Literal, TypeAlias

import numpy as np

from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.problem.arrays import Floats
from placer.research.arena.records import Record, contestant, labels
from placer.research.arena.scores import fits

Over: TypeAlias = Literal["problems", "seeds"]
LEVEL = 0.05
"""Differences are significant if they are less probable than this by chance."""
RESAMPLES = 9_999
BLOCK: Mapping[Over, tuple[str, str]] = {
    "problems": ("problem", "problems"),
    "seeds": ("pair of a problem and a seed", "pairs of a problem and a seed"),
}
"""The words for one block and for several."""


def blocks_text(count: int, over: Over) -> str:
    """So many blocks, such as "1 problem" or "3 problems"."""
    return f"{count} {BLOCK[over][count != 1]}"


@dataclass(frozen=True)
class Blocks:
    """The values that solvers are compared by. A block has one value for each of K solvers."""

    labels: tuple[str, ...]
    """[K], see `placer.research.arena.records.labels`."""
    values_ns: Floats
    """[B, K]: the objective; inf where no answer meets all limits. Some answer does in every block."""
    over: Over
    excluded: int = 0
    """The number of blocks that do not count: a solver has no run in them, or no run has an answer that meets all limits."""

    @property
    def untestable(self) -> str:
        """Why there is nothing to test, as a sentence; empty if there is something."""
        if len(self.labels) < 2:
            return (
                f"There is nothing to test: there {'is one solver' if self.labels else 'are no runs'}, and a test compares two."
            )
        if not len(self.values_ns):
            return (
                f"There is nothing to test: no {BLOCK[self.over][0]} has a run of every solver and an answer within all limits."
            )
        return ""

    @classmethod
    def of(cls, records: Sequence[Record], over: Over = "problems") -> Blocks:
        """The blocks of records.

        Args:
            records: runs.
            over: "problems" makes one block of each problem, with the median over seeds. "seeds" makes one block of each problem
                and seed; a solver that ran once on a problem has the same value in all its blocks.

        Only the blocks are kept in which every solver has a run and at least one an answer that meets all limits.

        Raises OptionError if `over` is neither.
        """
        if over not in {"problems", "seeds"}:
            raise OptionError(f"over={over!r} must be 'problems' or 'seeds'.")
        named = labels(records)
        by_problem: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
        for run in records:
            by_solver = by_problem.setdefault((run["problem_hash"], run["objective"]), {})
            by_solver.setdefault(named[contestant(run)], {})[run["seed"]] = run["objective_ns"] if fits(run) else np.inf
        names = tuple(dict.fromkeys(named.values()))
        rows: list[list[float]] = []
        considered = 0
        for by_solver in by_problem.values():
            values = [by_solver.get(name, {}) for name in names]
            seeds = dict.fromkeys(seed for of_seed in values for seed in of_seed)
            considered += 1 if over == "problems" else len(seeds)
            if over == "problems" and all(values):
                rows.append([_median(list(of_seed.values())) for of_seed in values])
            elif over == "seeds":
                of_seeds = [dict.fromkeys(seeds, *v.values()) if len(v) == 1 else v for v in values]
                rows += [[v[seed] for v in of_seeds] for seed in seeds if all(seed in v for v in of_seeds)]
        table = np.array(rows, float).reshape(len(rows), len(names))
        kept = table[np.isfinite(table).any(axis=1)]
        return cls(names, kept, over, considered - len(kept))


@dataclass(frozen=True)
class PairedTest:
    """Wilcoxon's signed-rank test of two solvers."""

    solver: str
    other: str
    wins: int
    """Blocks in which the solver has the lower value. A missing answer is higher than any other and equal to another such."""
    ties: int
    losses: int
    ratio: float
    """The geometric mean of the solver's value over the other's, where both have answers; NaN if they never do."""
    low: float
    high: float
    """A 95% confidence interval of `ratio`; NaN with less than two such blocks."""
    p: float
    """The probability of differences this large if neither solver is better; two-sided."""
    p_holm: float
    """`p` with Holm's correction for the number of tests."""


@dataclass(frozen=True)
class RankTest:
    """Friedman's test of all solvers, and Nemenyi's test of each two."""

    mean_rank: Mapping[str, float]
    """By label, the lowest first. In each block the lowest value has rank 1; equal values share the mean of their ranks. NaN
    without blocks."""
    blocks: int
    chi_squared: float
    """Friedman's statistic; NaN with less than three solvers or less than two blocks."""
    p: float
    """The probability of mean ranks this far apart if no solver is better; NaN where `chi_squared` is."""
    critical_difference: float
    """Nemenyi: two mean ranks differ significantly if they are at least this far apart."""


def paired_tests(blocks: Blocks, reference: str | None = None) -> list[PairedTest]:
    """Wilcoxon's test of each two solvers, or of one solver against each other.

    The differences are those of logarithms, so a problem with a long step counts no more than others. Zero differences are
    divided between both signs. S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6, 1979. The intervals are bias-corrected and accelerated bootstrap intervals over blocks: B. Efron, Better
    bootstrap confidence intervals, Journal of the American Statistical Association 82, 1987.

    Args:
        blocks: see `Blocks.of`.
        reference: the label of the one solver; None for all pairs.

    Raises OptionError if SciPy is not installed, or if there is no solver of this label.
    """
    stats = _scipy_stats()
    if reference is not None and reference not in blocks.labels:
        suggestion = did_you_mean(reference, blocks.labels)
        raise OptionError(f"no solver {reference!r} was compared{suggestion} There are {', '.join(blocks.labels)}.")
    if reference is None:
        pairs = list(combinations(range(len(blocks.labels)), 2))
    else:
        chosen = blocks.labels.index(reference)
        pairs = [(chosen, other) for other in range(len(blocks.labels)) if other != chosen]
    logs = [_log_ratio(blocks.values_ns[:, a], blocks.values_ns[:, b]) for a, b in pairs]
    p = [_wilcoxon_p(stats, difference) for difference in logs]
    tests = []
    for (a, b), difference, own_p, p_holm in zip(pairs, logs, p, holm(p), strict=True):
        finite = difference[np.isfinite(difference)]
        low, high = _interval(stats, finite)
        wins, ties, losses = (int((np.sign(difference) == sign).sum()) for sign in (-1, 0, 1))
        ratio = float(np.exp(finite.mean())) if len(finite) else np.nan
        tests.append(PairedTest(blocks.labels[a], blocks.labels[b], wins, ties, losses, ratio, low, high, own_p, p_holm))
    return tests


def rank_test(blocks: Blocks) -> RankTest:
    """Friedman's test over the blocks, and the critical difference of Nemenyi's test.

    The critical difference of K solvers over B blocks is q sqrt(K (K + 1) / 6 B), where q is the quantile of the studentized
    range divided by sqrt(2) (Demšar 2006).

    Raises OptionError if SciPy is not installed.
    """
    stats = _scipy_stats()
    count, solvers = blocks.values_ns.shape
    mean = stats.rankdata(blocks.values_ns, axis=1).mean(axis=0) if count else np.full(solvers, np.nan)
    chi_squared = p = np.nan
    if solvers > 2 and count > 1:
        equal = (blocks.values_ns == blocks.values_ns[:, :1]).all()
        chi_squared, p = (0.0, 1.0) if equal else stats.friedmanchisquare(*blocks.values_ns.T)
    q = stats.studentized_range.ppf(1 - LEVEL, solvers, np.inf) / np.sqrt(2) if solvers > 1 else np.nan
    distance = float(q * np.sqrt(solvers * (solvers + 1) / (6 * count))) if count else np.inf
    ranks = {blocks.labels[k]: float(mean[k]) for k in np.argsort(mean, kind="stable").tolist()}
    return RankTest(ranks, count, float(chi_squared), float(p), distance)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected probabilities: the k-th least of m is multiplied by m - k + 1; none is less than one before it."""
    order = np.argsort(p, kind="stable")
    corrected = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1)))
    result = np.empty(len(p))
    result[order] = corrected
    listed: list[float] = result.tolist()
    return listed


def _median(values: list[float]) -> float:
    """The median of the answers; inf if there is none."""
    answered = [value for value in values if np.isfinite(value)]
    return float(np.median(answered)) if answered else np.inf


def _log_ratio(first: Floats, second: Floats) -> Floats:
    """log(first / second), 0 where they are equal, also where both are 0 or inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.log(first) - np.log(second)
    ratio[first == second] = 0.0
    return ratio


def _wilcoxon_p(stats: ModuleType, difference: Floats) -> float:
    """Wilcoxon's probability; infinite differences are larger than all others."""
    if not len(difference):
        return 1.0
    largest = 2 * np.abs(difference[np.isfinite(difference)]).max(initial=1.0)
    return float(stats.wilcoxon(np.clip(difference, -largest, largest), zero_method="zsplit").pvalue)


def _interval(stats: ModuleType, logs: Floats) -> tuple[float, float]:
    """A bootstrap interval of exp(mean)."""
    if len(logs) < 2:
        return np.nan, np.nan
    if np.ptp(logs) == 0:
        return float(np.exp(logs[0])), float(np.exp(logs[0]))
    interval = stats.bootstrap((logs,), np.mean, confidence_level=1 - LEVEL, n_resamples=RESAMPLES, rng=0).confidence_interval
    return float(np.exp(interval.low)), float(np.exp(interval.high))


def _scipy_stats() -> ModuleType:
    try:
        from scipy import stats
    except ImportError as error:
        raise OptionError("tests need SciPy, which is not installed: pip install 'placer[research]'.") from error
    module: ModuleType = stats
    return module
