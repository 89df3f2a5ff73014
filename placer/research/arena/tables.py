"""Records as tables, in plain text or markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placer.common.tables import table
from placer.common.units import format_bytes, format_ns
from placer.research.arena.records import Record, labels
from placer.research.arena.scores import ProblemScores, Score, scored

NEAR_BEST_TOL = 0.01
"""A summary counts the answers within this share of the best."""


def per_problem(records: Sequence[Record], others: Sequence[Record] = (), *, markdown: bool = False) -> str:
    """For each problem a heading and a table; then the bounds and answers that contradict each other, if any do."""
    blocks = []
    for problem in scored(records, others):
        blocks.append(("### " if markdown else "") + _heading(problem))
        blocks.append(_problem_table(problem, markdown=markdown))
        blocks += [f"WRONG: {text}." for text in problem.contradictions]
    return "\n\n".join(blocks) if markdown else "\n".join(blocks)


def _heading(problem: ProblemScores) -> str:
    r = problem.record
    devices = r["devices"].split()
    limits = [f"{d} {format_bytes(r[f'limit_bytes.{d}'])}" for d in devices if f"limit_bytes.{d}" in r]
    score = problem.scores[0]
    known = [
        f"best {format_ns(score.best_ns)}" if np.isfinite(score.best_ns) else "no answer meets the limits",
        f"bound {format_ns(score.bound_ns)}" if score.bound_ns else "no bound",
    ]
    return (
        f"{problem.problem}: {r['ops']} ops in {r['units']} units on {', '.join(devices)}"
        f"{'; limits ' + ', '.join(limits) if limits else ''}; {r['objective']}: {', '.join(known)}"
    )


def _problem_table(problem: ProblemScores, *, markdown: bool) -> str:
    devices = problem.record["devices"].split()
    seeds = max(len(score.runs) for score in problem.scores) > 1
    head = ["solver", "status", problem.record["objective"].replace("_", " ")]
    head += ["best", "quartiles", "worst"] if seeds else []
    head += ["gap", "times best"]
    other = "total_cost" if problem.record["objective"] == "step_time" else "step_time"
    head += [other.replace("_", " "), *(f"peak {device}" for device in devices), "fit" if seeds else "", "seconds", ""]
    head = [cell for k, cell in enumerate(head) if cell or k == len(head) - 1]
    rows = []
    for score in problem.scores:
        run = score.best_run
        row = [score.label, _status(score)]
        row += [_ns(score.median_ns)]
        if seeds:
            spread = f"{_ns(score.quantile_ns(0.25))} to {_ns(score.quantile_ns(0.75))}" if score.answered else "–"
            row += [_ns(score.quantile_ns(0)), spread, _ns(score.quantile_ns(1))]
        row += [f"{score.gap:.2%}" if score.answered and score.bound_ns else "–"]
        row += [f"{score.ratio:.3f}" if score.answered else "–"]
        row += [_ns(run[f"{other}_ns"]) if score.answered else "–"]
        row += [format_bytes(run[f"peak_bytes.{device}"]) if score.answered else "–" for device in devices]
        row += [f"{len(score.values_ns)}/{len(score.runs)}"] if seeds else []
        note = "" if score.answered else " ".join(str(run["note"]).split())  # on one line
        row += [f"{score.seconds:.2f}" if np.isfinite(score.seconds) else "–", note]
        rows.append(row)
    return (_markdown if markdown else table)(head, rows)


def _status(score: Score) -> str:
    run = score.best_run
    return str(run.get("status", "") if run["outcome"] == "answered" else run["outcome"])


def over_problems(records: Sequence[Record], others: Sequence[Record] = (), *, markdown: bool = False) -> str:
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
    write: Callable[[Sequence[str], Sequence[Sequence[str]]], str] = _markdown if markdown else table
    return write(head, [cells for _, cells in lines])


def _ns(ns: float) -> str:
    return format_ns(ns) if np.isfinite(ns) else "–"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column aligned left and the others right; an unnamed last column is aligned left too."""
    rule = ["---", *("---" if not name else "---:" for name in head[1:])]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in [head, rule, *rows])
