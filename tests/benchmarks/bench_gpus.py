"""Compares plans for several GPUs with one GPU, with the best split by hand and with the best heuristic.

Run: python -m tests.benchmarks.bench_gpus [case ...] [--seconds 2]

No function runs: step times are those of the execution model, on machines that need not be here. Variables may be anywhere. A
split by hand has contiguous shares of the layers, or each tower on a GPU; the quickest that fits counts. Planning times are CPU
seconds. The output is the table of docs/solvers.md.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import placer
from cost_models.registry import cost_model
from placer.common.units import format_ns
from placer.options import Options
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import excess
from placer.problem.price import transfers
from placer.problem.problem import Assignment, PlacementProblem
from placer.problem.schedule import Simulator
from placer.problem.validate import validate
from placer.solvers.primitives.one_kind import all_on
from placer.solvers.registry import solver, solvers
from tests.helpers.model_parallel import CASES, by_hand, limited, on_gpus

BOUNDED = {"auto", "step_time", "min_cut", "lagrangian", "cp_sat"}
HEADER = (
    "case", "ops", "one GPU", "by hand", "best heuristic", "**plan**", "at least", "GPU to GPU", "total cost, gap", "planned in",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each heuristic that uses up its time")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    for name in arguments.cases or CASES:
        print("| " + " | ".join(row(name, arguments.seconds)) + " |", flush=True)


def row(name: str, seconds: float) -> list[str]:
    """One case's figures, in the order of `HEADER`."""
    case = CASES[name]
    program, machine = case.program("full"), case.machine()
    graph = placer.build_graph(program.work.fn, *program.work.args)
    problem = formulate(graph, constrain(graph, machine, Options(variables="move")), cost_model("auto"), machine).problem
    problem = problem if case.share is None else limited(problem, case.share)
    step_ns = Simulator(problem).step_ns
    one = all_on(problem, "GPU")
    hand = min((step_ns(a) for a in by_hand(program, graph, problem) if not excess(problem, a).any()), default=None)

    found: dict[str, int] = {}
    for heuristic in solvers():
        chosen = solver(heuristic)
        if heuristic not in BOUNDED and not chosen.unsupported(problem, "step_time"):
            solution = chosen.solve(problem, "step_time", time_limit_s=seconds)
            if solution.assignment is not None and not excess(problem, solution.assignment).any():
                found[heuristic] = solution.objective_ns
    best = min(found, key=lambda heuristic: found[heuristic])

    started = time.process_time()
    plan = solver("auto").solve(problem, "step_time")
    taken = time.process_time() - started
    assert plan.assignment is not None
    assert validate(problem, plan.assignment).ok
    total = solver("auto").solve(problem, "total_cost", time_limit_s=10.0)
    return [
        name,
        f"{problem.num_ops:,}",
        format_ns(step_ns(one)) + (" ¹" if excess(problem, one).any() else ""),
        "none fits" if hand is None else format_ns(hand),
        f"{format_ns(found[best])} {best}",
        f"**{format_ns(plan.objective_ns)}**",
        format_ns(plan.lower_bound_ns),
        str(between_gpus(problem, plan.assignment)),
        f"{format_ns(total.objective_ns)}, {total.gap:.1%}",
        f"{taken:.1f} s",
    ]


def between_gpus(problem: PlacementProblem, assignment: Assignment) -> int:
    """How many copies a step makes from GPU to GPU."""
    copies = transfers(problem, assignment)
    gpus = on_gpus(problem)
    return int((np.isin(copies.src, gpus) & np.isin(copies.dst, gpus)).sum())


if __name__ == "__main__":
    main()
