"""Whether what a graph leaves open could change its plan: sizes, rounds, elements of datasets, and which branch is taken."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cost_models.base import CostModel
from cost_models.machines import Machine
from placer.graph.op_graph import OpGraph
from placer.problem.arrays import Floats
from placer.problem.op_costs import op_costs

MIN_DIFFERENCE_NS = 50_000
"""A copy between devices takes about as long, so a smaller difference between the bodies of a branch changes no plan."""
MIN_DIFFERENCE_SHARE = 0.05
"""The least difference that matters as a share of the time of all ops."""


def is_undecided(graph: OpGraph, machine: Machine, model: CostModel) -> bool:
    """Whether the size of an op that runs, or the rounds of a loop, are bounded or assumed only, or a branch is uneven.

    Raises:
        OptionError: the cost model fails.
    """
    sources = [size.source for name, sizes in graph.sizes.items() if graph.op(name).count for size in sizes if size]
    sources += [rounds.source for rounds in graph.rounds.values()]
    return any(source in ("bound", "assumed") for source in sources) or has_uneven_branch(graph, machine, model)


def has_uneven_branch(graph: OpGraph, machine: Machine, model: CostModel) -> bool:
    """Whether it matters which body of a branch runs: on some device, one takes much longer than another.

    Raises:
        OptionError: the cost model fails.
    """
    ops = list(graph)
    branches = [op.name for op in ops if op.role == "branch" and op.op_type != "BranchMerge" and op.count]
    if not branches:
        return False
    times_ns = op_costs(graph, ops, model, machine).time_ns
    least_ns = np.maximum(MIN_DIFFERENCE_NS, MIN_DIFFERENCE_SHARE * times_ns.sum(axis=0))
    for branch in branches:
        bodies_ns: dict[str, Floats] = defaultdict(lambda: np.zeros_like(least_ns))
        for op, time_ns in zip(ops, times_ns, strict=True):
            if op.body.startswith(f"{branch}/"):
                bodies_ns[op.body[len(branch) + 1 :].partition("/")[0]] += time_ns
        each_ns = [*bodies_ns.values(), *[np.zeros_like(least_ns)] * (2 - len(bodies_ns))]  # a body may have no ops
        if (np.max(each_ns, axis=0) - np.min(each_ns, axis=0) >= least_ns).any():
            return True
    return False
