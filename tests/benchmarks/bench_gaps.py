"""Gaps of total-cost plans of real functions when memory limits bind.

Run: python -m tests.benchmarks.bench_gaps [workload ...] [--seconds 10]

The plans are for an H100 and its host. The GPU's limit is half-way between its least peak and its peak without limits.
"""

from __future__ import annotations

import argparse

import placer
from examples.workloads import WORKLOADS
from placer.common.units import format_bytes
from placer.problem.validate import validate
from placer.research.arena.problems import problem_of, with_memory_share
from placer.solvers.registry import solver
from tests.benchmarks.more_workloads import MORE


def main() -> None:
    workloads = {**WORKLOADS, **MORE}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=", ".join(workloads))
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    for name in arguments.workloads or workloads:
        work = workloads[name]("full")
        problem = with_memory_share(problem_of(placer.build_graph(work.fn, *work.args), {"devices": "h100"}), 0.5)
        solution = solver("auto").solve(problem, "total_cost", time_limit_s=arguments.seconds)
        limit = format_bytes(int(problem.devices.memory_limit_bytes[1]))
        line = f"{name:24s} {problem.num_ops:6d} ops  limit {limit:>9s}  {solution.seconds:6.2f} s  {solution.status:10s}"
        if solution.assignment is None:
            print(line, solution.stop_text, flush=True)
            continue
        assert validate(problem, solution.assignment, solution.objective_ns).ok
        print(f"{line} {solution.objective_ns / 1e6:9.3f} ms, gap {solution.gap:.2%}", flush=True)


if __name__ == "__main__":
    main()
