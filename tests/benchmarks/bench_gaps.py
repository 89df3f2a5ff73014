"""How far from the optimum total-cost plans of real functions can be when the GPU may hold half of what they need.

Run: python -m tests.benchmarks.bench_gaps [workload ...] [--seconds 10]

What a plan without limits holds on the GPU is the need. Where what must be there takes more than half of it, the limit is half
way between the two.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

import placer
from cost_models.machines import load_machine
from cost_models.registry import cost_model
from examples.workloads import WORKLOADS
from placer.opgraph import OpGraph
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.problem.validate import validate
from placer.solvers.heuristics.fixed import all_on
from placer.solvers.min_cut import minimum_cut
from placer.solvers.registry import solver
from placer.units import format_bytes
from tests.benchmarks.more_workloads import MORE


def halved(graph: OpGraph) -> PlacementProblem:
    """The graph on an H100 and its host, with half of the GPU memory it needs."""
    machine = load_machine("h100")
    problem = formulate(graph, constrain(graph, machine, Options()), cost_model("auto"), machine).problem
    need = peaks(problem, minimum_cut(problem).assignment)[1]
    least = peaks(problem, all_on(problem, "CPU"))[1]
    limit = need // 2 if least <= need // 2 else (need + least) // 2
    return replace(problem, memory_limit_bytes=np.array([-1, limit]))


def main() -> None:
    workloads = {**WORKLOADS, **MORE}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=", ".join(workloads))
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    for name in arguments.workloads or workloads:
        work = workloads[name]("full")
        problem = halved(placer.build_graph(work.fn, *work.args))
        solution = solver("auto").solve(problem, "total_cost", time_limit_s=arguments.seconds)
        limit = format_bytes(int(problem.memory_limit_bytes[1]))
        line = f"{name:24s} {problem.ops:6d} ops  limit {limit:>9s}  {solution.seconds:6.2f} s  {solution.status:10s}"
        if solution.assignment is None:
            print(line, solution.stop_reason, flush=True)
            continue
        assert validate(problem, solution.assignment, solution.objective_ns).ok
        print(f"{line} {solution.objective_ns / 1e6:9.3f} ms, gap {solution.gap:.2%}", flush=True)


if __name__ == "__main__":
    main()
