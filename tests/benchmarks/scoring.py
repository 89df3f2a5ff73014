"""Scores of predicted times against measured ones: errors and rank correlation."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

NOISE = 0.029
"""Standard deviation of the logarithm of a measured step time. Equal placements that were recorded under two names differ by 2.8%
in the median; the logarithms of two times that vary normally by this much do so."""
MIN_RANKED_SPREAD = 1.3
"""Placements of a workload are ranked only if the slowest takes at least this many times the quickest."""


def scores(pairs: dict[str, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """The score over all pairs of measured and predicted times, and that of each workload."""
    all_times = (
        [np.concatenate([np.array(pair[k], np.float64) for pair in pairs.values()]) for k in (0, 1)]
        if pairs
        else [np.empty(0)] * 2
    )
    return {
        "all": asdict(Score.of(*all_times)),
        "workloads": {name: asdict(Score.of(np.array(m), np.array(p))) for name, (m, p) in pairs.items()},
    }


@dataclass(frozen=True)
class Score:
    """How well predicted times match measured ones."""

    placements: int
    spread: float
    """The longest measured time divided by the shortest."""
    rank_correlation: float
    """Spearman's, of expected ranks with `NOISE`."""
    median_error: float
    """The median of |predicted / measured - 1|."""
    error_90: float
    """Its 90th percentile."""

    @classmethod
    def of(cls, measured: Any, predicted: Any) -> Score:
        if not len(measured):
            return cls(0, 1.0, 0.0, 0.0, 0.0)
        median, high = np.percentile(np.abs(predicted / measured - 1), (50, 90))
        return cls(
            len(measured),
            float(measured.max() / measured.min()),
            rank_correlation(measured, predicted, NOISE),
            float(median),
            float(high),
        )


def rank_correlation(one: Any, other: Any, noise: float = 0.0) -> float:
    """Spearman's rank correlation; 0 if all values of one of the two are equal.

    Args:
        one, other: values in the same order; with noise, none below 0.
        noise: of both, see `expected_ranks`.
    """
    ranks = [expected_ranks(np.asarray(values, np.float64), noise) for values in (one, other)]
    if min(rank.std() for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def expected_ranks(values: Any, noise: float) -> Any:
    """The rank of each value. Equal values share their mean rank, and with noise, nearly equal ones nearly do.

    With noise, each rank is the expected one if the logarithms of all values vary normally and independently: half plus the sum,
    over all values, of the probability that the value is less (N. M. Laird and T. A. Louis, Empirical Bayes ranking methods,
    Journal of Educational Statistics 14(1), 1989, doi:10.3102/10769986014001029). So no order counts that a further measurement
    would reverse half of the time, and it counts neither for a prediction nor against it.

    Args:
        values: [n].
        noise: standard deviation of the logarithm of each value; 0 for exact values.
    """
    if noise:
        logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
        distances = (logs[:, None] - logs[None, :]) / (2 * noise)  # in units of the difference's deviation, times root 2
        return 0.5 + (0.5 + 0.5 * np.vectorize(math.erf, otypes=[np.float64])(distances)).sum(axis=1)
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def report(scores: dict[str, Any]) -> str:
    """The scores as a table with a line for each workload, then one for all."""
    head = f"{'':26}{'n':>4}{'spread':>8}" + "".join(f"{model:>12}{'median':>8}{'90%':>8}" for model in scores)
    lines = [head]
    first = next(iter(scores.values()))
    for name in [*first["workloads"], "all"]:
        rows = [scored["all"] if name == "all" else scored["workloads"][name] for scored in scores.values()]
        cells = "".join(
            f"{_rank(row):>12}{row['median_error']:>8.0%}{row['error_90']:>8.0%}" if row["placements"] else 28 * " "
            for row in rows
        )
        lines.append(f"{name:26}{rows[0]['placements']:>4}{rows[0]['spread']:>8.2f}{cells}")
    lines.append(
        "under each model's name: Spearman's rank correlation with what was measured; beside it, errors of the predicted times"
    )
    return "\n".join(lines)


def _rank(row: dict[str, Any]) -> str:
    return f"{row['rank_correlation']:.3f}" if row["spread"] >= MIN_RANKED_SPREAD else "-"
