"""How good plans of real graphs are under limits that bind, and whether any heuristic is better: the tables of docs/arena.md.

Run: python -m tests.benchmarks.bench_arena [--objectives total_cost step_time] [--seconds 10] [--results FILE] [--write]

The graphs are those that come with the package; each accelerator may hold what it must and half of what else it would like to.
With --write the tables take the place of those in the page.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import placer
from placer.common.units import format_bytes, format_ns
from placer.graph.shipped import shipped_graphs
from placer.research.arena.scores import ProblemScores, Score

PAGE = Path(__file__).parents[2] / "docs" / "arena.md"
SHARE = 0.5
OBJECTIVES = {"total_cost": ("total cost", ["auto"]), "step_time": ("step time", None)}
"""The table and the solvers of each."""
OURS = ("auto", "step_time", "min_cut", "lagrangian", "cp_sat")
"""What is no heuristic."""


def cost_table(comparison: placer.Comparison) -> list[str]:
    """For each graph what `auto` finds for the total cost, and how far that can be from the optimum."""
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
    """For each graph what `step_time` finds, the bound, and the best of all heuristics."""
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
    """Of one solver."""
    return next(score for score in problem.scores if score.label == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--results", type=Path, help="started again, what is there is not run again")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    targets = [f"shipped:{name}" for name in shipped_graphs()]
    tables = {}
    for objective in asked.objectives:
        name, solvers = OBJECTIVES[objective]
        found = placer.arena(
            targets,
            solvers,
            objective=objective,
            memory_share=SHARE,
            time_limits_s=[asked.seconds],
            results=asked.results,
            jobs=1,
        )
        wrong = [text for problem in found.scores() for text in problem.contradictions]
        if wrong:
            raise SystemExit("\n".join(wrong))
        tables[name] = "\n".join((cost_table if objective == "total_cost" else step_table)(found))
        print(tables[name], flush=True)
        if objective == "step_time":
            tables["all"] = found.summary(markdown=True)
            print(tables["all"], flush=True)
    if asked.write:
        page = PAGE.read_text()
        for name, table in tables.items():
            page, count = re.subn(rf"(<!-- {name} -->\n).*?(?=\n\n|\Z)", lambda m, t=table: m[1] + t, page, flags=re.DOTALL)  # type: ignore[misc]
            assert count == 1
        PAGE.write_text(page.rstrip() + "\n")


if __name__ == "__main__":
    main()
