"""Records as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.common.units import format_bytes, format_ns
from placer.research.arena.records import Record, labels
from placer.research.arena.scores import ProblemScores, Score, scored
from placer.research.arena.statistics import LEVEL, Blocks, blocks_text, paired_tests, rank_test
from placer.research.arena.table_styles import TableStyle, heading, sentence, write_table

NEAR_BEST_TOL = 0.01
"""A summary counts the answers within this share of the best."""


def per_problem(records: Sequence[Record], others: Sequence[Record] = (), style: TableStyle = "text") -> str:
    """For each problem a heading and a table; then the bounds and answers that contradict each other, if any do."""
    blocks = []
    for problem in scored(records, others):
        blocks.append(heading(_described(problem), style))
        blocks.append(_problem_table(problem, style))
        blocks += [sentence(f"WRONG: {text}.", style) for text in problem.contradictions]
    return ("\n" if style == "text" else "\n\n").join(blocks)


def _described(problem: ProblemScores) -> str:
    r = problem.record
    devices = r["devices"].split()
    limits = [f"{d} {format_bytes(r[f'limit_bytes.{d}'])}" for d in devices if f"limit_bytes.{d}" in r]
    score = problem.scores[0]
    value = _format(problem)
    known = [
        f"best {value(score.best_ns)}" if np.isfinite(score.best_ns) else "no answer meets the limits",
        f"bound {value(score.bound_ns)}" if score.bound_ns else "no bound",
    ]
    return (
        f"{problem.problem}: {r['ops']} ops in {r['units']} units on {', '.join(devices)}"
        f"{'; limits ' + ', '.join(limits) if limits else ''}; {r['objective']}: {', '.join(known)}"
    )


def _problem_table(problem: ProblemScores, style: TableStyle) -> str:
    answers = [score.best_run for score in problem.scores if score.answered]
    devices = [device for device in problem.record["devices"].split() if any(f"peak_bytes.{device}" in run for run in answers)]
    seeds = max(len(score.runs) for score in problem.scores) > 1
    head = ["solver", "status", problem.record["objective"].replace("_", " ")]
    head += ["best", "quartiles", "worst"] if seeds else []
    head += ["gap", "times best"]
    value, others = _format(problem), _OTHER_VALUES.get(problem.record["objective"], ())
    head += [
        *(other.replace("_", " ") for other in others),
        *(f"peak {device}" for device in devices),
        "fit" if seeds else "",
        "seconds",
        "",
    ]
    head = [cell for k, cell in enumerate(head) if cell or k == len(head) - 1]
    rows = []
    for score in problem.scores:
        run = score.best_run
        row = [score.label, _status(score)]
        row += [value(score.median_ns)]
        if seeds:
            spread = f"{value(score.quantile_ns(0.25))} to {value(score.quantile_ns(0.75))}" if score.answered else "–"
            row += [value(score.quantile_ns(0)), spread, value(score.quantile_ns(1))]
        row += [f"{score.gap:.2%}" if score.answered and score.bound_ns else "–"]
        row += [f"{score.ratio:.3f}" if score.answered else "–"]
        row += [_ns(run.get(f"{other}_ns", np.inf)) if score.answered else "–" for other in others]
        row += [format_bytes(run[f"peak_bytes.{device}"]) if score.answered else "–" for device in devices]
        row += [f"{len(score.values_ns)}/{len(score.runs)}"] if seeds else []
        note = "" if score.answered else " ".join(str(run["note"]).split())  # on one line
        row += [f"{score.seconds:.2f}" if np.isfinite(score.seconds) else "–", note]
        rows.append(row)
    return write_table(head, rows, style)


def _status(score: Score) -> str:
    run = score.best_run
    return str(run.get("status", "") if run["outcome"] == "answered" else run["outcome"])


def over_problems(records: Sequence[Record], others: Sequence[Record] = (), style: TableStyle = "text") -> str:
    """One line for each solver, first the one whose answers are most often near the best."""
    problems = scored(records, others)
    by_label: dict[str, list[Score]] = {label: [] for label in labels(records).values()}
    for problem in problems:
        for score in problem.scores:
            by_label[score.label].append(score)
    head = ["solver", "answered", "best", f"within {NEAR_BEST_TOL:.0%}", "times best", "worst", "gap", "seconds", ""]
    lines = []
    for label, scores in by_label.items():
        answered = [score for score in scores if score.answered]
        ratios = np.array([score.ratio for score in answered])
        finite = ratios[np.isfinite(ratios)]
        gaps = [score.gap for score in answered if score.bound_ns]
        spent = [score.seconds for score in answered]
        outcomes = [_status(score) for score in scores if not score.answered]
        near_best = int((ratios <= 1 + NEAR_BEST_TOL).sum())
        cells = [
            label,
            f"{len(answered)}/{len(scores)}",
            str(int((ratios <= 1).sum())),
            str(near_best),
            f"{np.exp(np.log(finite).mean()):.3f}" if len(finite) else "–",
            f"{ratios.max():.3f}" if len(ratios) else "–",
            f"{np.median(gaps):.2%}" if gaps else "–",
            f"{np.median(spent):.2f}" if spent else "–",
            ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes)),
        ]
        lines.append(((-near_best, -len(answered), float(np.log(finite).mean()) if len(finite) else np.inf), cells))
    lines.sort(key=lambda line: line[0])
    return write_table(head, [cells for _, cells in lines], style)


def of_tests(blocks: Blocks, reference: str | None = None, style: TableStyle = "text") -> str:
    """Mean ranks with Friedman's and Nemenyi's tests, then a row for each of `paired_tests`; or why there is nothing to test.

    Raises OptionError if SciPy is not installed, or if there is no solver `reference`.
    """
    ranks, pairs = rank_test(blocks), paired_tests(blocks, reference)
    if blocks.untestable:
        return sentence(blocks.untestable, style)
    left_out = f"Without {blocks_text(blocks.excluded, blocks.over)}: a solver has no run there, or no answer meets all limits."
    friedman = f"Friedman: p = {_p(ranks.p)}" if np.isfinite(ranks.p) else "Friedman: needs three solvers and two blocks"
    apart = f"Nemenyi: mean ranks differ significantly from {ranks.critical_difference:.2f} on"
    level = f"{1 - LEVEL:.0%}"
    intervals = [f"{pair.low:.3f} to {pair.high:.3f}" if np.isfinite(pair.low) else "–" for pair in pairs]
    rows = [
        [
            f"{pair.solver} / {pair.other}",
            *(str(count) for count in (pair.wins, pair.ties, pair.losses)),
            f"{pair.ratio:.3f}" if np.isfinite(pair.ratio) else "–",
            interval,
            _p(pair.p),
            _p(pair.p_holm),
            "differ" if pair.p_holm < LEVEL else "",
        ]
        for pair, interval in zip(pairs, intervals, strict=True)
    ]
    parts = [
        heading(f"Mean ranks over {blocks_text(ranks.blocks, blocks.over)}", style),
        write_table(["solver", "mean rank"], [[name, f"{rank:.2f}"] for name, rank in ranks.mean_rank.items()], style),
        sentence(f"{friedman}. {apart} ({level}).", style),
        *([sentence(left_out, style)] if blocks.excluded else []),
        heading("Wilcoxon's signed-rank test of two solvers", style),
        write_table(["solvers", "wins", "ties", "losses", "ratio", f"{level} interval", "p", "p (Holm)", ""], rows, style),
    ]
    return ("\n" if style == "text" else "\n\n").join(parts)


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


_OTHER_VALUES = {"step_time": ("total_cost",), "total_cost": ("step_time",), "max_load": ("latency",), "latency": ("max_load",)}
"""By objective: further values that records have."""


def _format(problem: ProblemScores) -> Callable[[float], str]:
    """Formats a value of the objective; a cost has no unit."""
    return (lambda cost: f"{cost:,.0f}" if np.isfinite(cost) else "–") if problem.record["objective"] == "cost" else _ns


def _ns(ns: float) -> str:
    return format_ns(ns) if np.isfinite(ns) else "–"
