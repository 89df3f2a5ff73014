"""Gaps between step times and their bounds, on families of problems and on the graphs that come with placer.

    python -m tests.benchmarks.bench_step_bounds [--ops 12 60 200] [--gpus 1 2 4] [--memory 0 0.5] [--seconds 10] [--graphs]

`--graphs` takes the graphs that come with placer, on one H100 and on two, in place of the families. The seconds are counted work
(`placer.common.clock`), so results are the same on every machine.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator

from placer.graph.shipped import shipped_graph, shipped_graphs
from placer.problem.problem import PlacementProblem
from placer.research.arena.problems import problem_of, with_memory_share
from placer.research.instances.families import SHAPES, synthetic
from tests.benchmarks.bench_optima import counted_solution

Case = tuple[str, str, int, float, PlacementProblem]
"""The kind of problem, its name, the number of GPUs, the memory limit as a share (0 for none), and the problem."""


def families(sizes: list[int], gpus: list[int], memory: list[float]) -> Iterator[Case]:
    """Problems of all families."""
    for ops, shape, count, share in itertools.product(sizes, SHAPES, gpus, memory):
        yield f"{ops} ops", shape, count, share, synthetic(shape, ops=ops, gpus=count, memory=share)


def graphs(memory: list[float]) -> Iterator[Case]:
    """The graphs that come with placer."""
    for (count, machine), name, share in itertools.product(((1, "h100"), (2, "2xh100")), shipped_graphs(), memory):
        problem = problem_of(shipped_graph(name), {"devices": machine})
        assert isinstance(problem, PlacementProblem)
        yield "graphs", name, count, share, with_memory_share(problem, share) if share else problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, nargs="+", default=[12, 60, 200])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--memory", type=float, nargs="+", default=[0, 0.5])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--graphs", action="store_true")
    asked = parser.parse_args()
    gaps = defaultdict(list)
    print("| problem | GPUs | memory | step time | gap |\n|---|---:|---:|---:|---:|")
    for kind, name, gpus, memory, problem in (
        graphs(asked.memory) if asked.graphs else families(asked.ops, asked.gpus, asked.memory)
    ):
        found = counted_solution("step_time", problem, asked.seconds)
        limit = f"{memory:g}" if memory else ""
        print(f"| {name}, {kind} | {gpus} | {limit} | {found.objective_ns / 1e3:.1f} us | {found.gap:.1%} |", flush=True)
        for group in (kind, f"{kind}, {'memory limits' if memory else 'no limits'}", f"{kind}, {name}"):
            gaps[group].append(found.gap)
    print("\n| group | median gap |\n|---|---:|")
    for group, values in gaps.items():
        print(f"| {group} | {statistics.median(values):.1%} |")


if __name__ == "__main__":
    main()
