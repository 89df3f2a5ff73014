"""Makes the tables of docs/data/arena.md: plans of the shipped graphs when memory limits bind, and all solvers on them.

Run: python -m tests.benchmarks.bench_arena [--objectives total_cost step_time] [--seconds 10] [--results FILE] [--write]

The limit of each accelerator is half-way between its least peak and its peak without limits (``memory_share=0.5``). With
--write the tables replace those of the page.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import placer
from placer.common.units import format_bytes, format_ns
from placer.graph.shipped import shipped_graphs
from placer.research.arena.scores import ProblemScores, Score

PAGE = Path(__file__).parents[2] / "docs" / "data" / "arena.md"
SHARE = 0.5
OBJECTIVES = {"total_cost": ("total cost", ["auto"]), "step_time": ("step time", None)}
"""By objective: the name of its table, and the solvers that run."""
OURS = ("auto", "step_time", "min_cut", "lagrangian", "cp_sat")
"""Registered solvers that are not heuristics."""


def cost_table(comparison: placer.Comparison) -> list[str]:
    """For each graph the total cost of the plan by `auto`, and its gap."""
    lines = [
        "| graph | ops | GPU may hold | total cost | bound | gap | status | seconds |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for problem in comparison.scores():
        score, record = score_of(problem, "auto"), problem.record
        cells = [
            problem.problem.removeprefix("shipped:"),
            str(record["ops"]),
            format_bytes(record["limit_bytes.GPU:0"]),
            format_ns(score.median_ns),
            format_ns(score.bound_ns),
            f"{score.gap:.2%}",
            score.best_run["status"],
            f"{score.seconds:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def step_table(comparison: placer.Comparison) -> list[str]:
    """For each graph the step time of the plan by `step_time`, its bound, and the best of all heuristics."""
    lines = [
        "| graph | step time | bound | gap | seconds | best heuristic | of ours | all on CPU |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for problem in comparison.scores():
        ours = score_of(problem, "step_time")
        others = [score for score in problem.scores if score.answered and score.label not in OURS]
        cells = [
            problem.problem.removeprefix("shipped:"),
            format_ns(ours.median_ns),
            format_ns(ours.bound_ns),
            f"{ours.gap:.1%}",
            f"{ours.seconds:.1f}",
            f"`{others[0].label}`",
            f"{others[0].median_ns / ours.median_ns:.3f}",
            f"{score_of(problem, 'all_cpu').median_ns / ours.median_ns:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def score_of(problem: ProblemScores, name: str) -> Score:
    """The score of a solver."""
    return next(score for score in problem.scores if score.label == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--results", type=Path, help="add each record there; recorded runs are not repeated")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    targets = [f"shipped:{name}" for name in shipped_graphs()]
    tables = {}
    for objective in asked.objectives:
        name, solvers = OBJECTIVES[objective]
        comparison = placer.arena(
            targets,
            solvers,
            objective=objective,
            memory_share=SHARE,
            time_limits_s=[asked.seconds],
            results=asked.results,
            jobs=1,
        )
        contradictions = [text for problem in comparison.scores() for text in problem.contradictions]
        if contradictions:
            raise SystemExit("\n".join(contradictions))
        tables[name] = "\n".join((cost_table if objective == "total_cost" else step_table)(comparison))
        print(tables[name], flush=True)
        if objective == "step_time":
            tables["all"] = comparison.summary("markdown")
            print(tables["all"], flush=True)
    if asked.write:
        page = PAGE.read_text()
        for name, table in tables.items():
            page, count = re.subn(rf"(<!-- {name} -->\n).*?(?=\n\n|\Z)", lambda m, t=table: m[1] + t, page, flags=re.DOTALL)  # type: ignore[misc]
            assert count == 1
        PAGE.write_text(page.rstrip() + "\n")


if __name__ == "__main__":
    main()
