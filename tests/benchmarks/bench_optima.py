"""Compares `step_time` with the registered searches on a grid of families, and shows its bounds.

    python -m tests.benchmarks.bench_optima [--ops 20 60] [--gpus 1 2 4] [--memory 0 0.5] [--seeds 0] [--seconds 2]

Each row is a family on a number of GPUs, with or without memory limits. "best other" is the shortest step of the other searches,
as a multiple of that of `step_time`: nowhere below 1 if none is better. The seconds are counted work (`placer.common.clock`), so
results are the same on every machine.
"""

from __future__ import annotations

import argparse
import itertools
import statistics

from placer.common.clock import counted
from placer.problem.problem import PlacementProblem
from placer.research.instances.families import SHAPES, synthetic
from placer.solvers.base import Solution, Status
from placer.solvers.registry import solver

OTHERS = ("annealing", "genetic", "greedy_benefit", "earliest_finish", "heft", "peft")


def counted_solution(name: str, problem: PlacementProblem, seconds: float) -> Solution:
    """The solution of a solver within a time of counted work, which is the same on every machine."""
    with counted():
        return solver(name).solve(problem, "step_time", time_limit_s=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--memory", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the families")
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    gaps, worse = [], 0
    print("| family | step time | best other | gap | seconds |\n|---|---:|---:|---:|---:|")
    for ops, seed, shape, gpus, memory in itertools.product(asked.ops, asked.seeds, SHAPES, asked.gpus, asked.memory):
        problem = synthetic(shape, ops=ops, gpus=gpus, memory=memory, seed=seed)
        ours = counted_solution("step_time", problem, asked.seconds)
        found = [
            counted_solution(name, problem, asked.seconds)
            for name in OTHERS
            if not solver(name).unsupported(problem, "step_time")
        ]
        best = min(each.objective_ns for each in found if each.status in {Status.OPTIMAL, Status.FEASIBLE})
        gaps.append(ours.gap)
        worse += best < ours.objective_ns
        name = f"{shape},ops={ops},gpus={gpus},memory={memory:g},seed={seed}"
        cells = [
            name,
            f"{ours.objective_ns / 1e3:.1f} us",
            f"{best / ours.objective_ns:.3f}",
            f"{ours.gap:.1%}",
            f"{ours.seconds:.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nmedian gap {statistics.median(gaps):.1%}; another search is better on {worse} of {len(gaps)}")


if __name__ == "__main__":
    main()
