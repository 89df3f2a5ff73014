"""Do time limits hold, for every registered solver? Does an effort take about as long as its work does on a common machine?

Prints a row for each solver that ended later than a fifth of its limit, and than a tenth of a second, after it. Loading modules
does not count, as in the arena.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import suppress

from placer.problem.problem import PlacementProblem
from placer.research.instances.families import synthetic
from placer.solvers.base import Objective
from placer.solvers.registry import solver, solvers
from placer.solvers.run import effort_s, run

PROBLEMS = {
    "40 ops, 3 devices": {"ops": 40, "gpus": 2},
    "40 ops, 3 devices, limits": {"ops": 40, "gpus": 2, "memory": 0.5},
    "400 ops, 3 devices, limits": {"ops": 400, "gpus": 2, "memory": 0.5},
    "2,000 ops, 2 devices, limits": {"ops": 2_000, "gpus": 1, "memory": 0.5},
}
OBJECTIVES: tuple[Objective, ...] = ("step_time", "total_cost")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.2, 1.0])
    parser.add_argument("--efforts", type=int, nargs="+", default=[1_000])
    parser.add_argument("--solvers", nargs="+", default=[*solvers()])
    args = parser.parse_args()
    problems = {name: synthetic("layered", **given) for name, given in PROBLEMS.items()}  # type: ignore[arg-type]
    for name in args.solvers:
        for objective in OBJECTIVES:
            with suppress(Exception):  # loads modules
                run(solver(name), synthetic("chain", ops=8, gpus=2, memory=0.5), objective, time_limit_s=0.01)
    held = total = 0
    for limit in args.seconds:
        for label, spent_s in _spent(args.solvers, problems, time_limit_s=limit):
            total += 1
            held += (ok := spent_s <= max(1.2 * limit, limit + 0.1))
            if not ok:
                print(f"{label}: {spent_s:.2f} s, limit {limit:g} s", flush=True)
    print(f"{held} of {total} runs end within a fifth or a tenth of a second of their limit")
    for effort in args.efforts:
        for label, spent_s in _spent(args.solvers, problems, effort=effort):
            counted_s = effort_s(problems[label.split("; ")[1]], effort)
            if spent_s > 2 * counted_s + 0.1:
                print(f"{label}: effort {effort} took {spent_s:.2f} s, {spent_s / counted_s:.1f} times its work")


def _spent(
    names: list[str], problems: dict[str, PlacementProblem], *, time_limit_s: float | None = None, effort: int | None = None
) -> Iterator[tuple[str, float]]:
    """For each solver, problem and objective that it solves, a label and the seconds of the search."""
    for name in names:
        for problem_name, problem in problems.items():
            for objective in OBJECTIVES:
                chosen = solver(name)
                if not chosen.unsupported(problem.copy(), objective):
                    started = time.perf_counter()
                    run(chosen, problem, objective, time_limit_s=time_limit_s, effort=effort)
                    yield f"{name}; {problem_name}; {objective}", time.perf_counter() - started


if __name__ == "__main__":
    main()
