"""Writes placer/plan/doubt.json: how far predicted step times are from measured ones, by kind of placement.

    python -m tests.benchmarks.doubt

Placements at random do not count, since neither solvers nor people make them.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import numpy as np

from placer.plan.doubt import Doubt, Kind
from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem
from placer.solvers.heuristics.tf_default import default_assignment
from tests.benchmarks.left_out import SETS, Outcome, by_workload, model_without, outcomes, splits_loop

TABLE = Path(__file__).parents[2] / "placer" / "plan" / "doubt.json"


def measured_doubts(found: list[Outcome]) -> dict[Kind, Doubt]:
    """The doubt in each kind of placements, by these outcomes."""
    ratios: dict[Kind, list[tuple[float, float]]] = defaultdict(list)
    for group in by_workload(found).values():
        default = next(each for each in group if each.label == "default")
        for each in group:
            if not each.label.startswith("random"):
                ratio = each.measured / each.predicted
                kind = recorded_kind(each)
                ratios[kind].append((ratio, ratio / (default.measured / default.predicted)))
    table: dict[Kind, Doubt] = {}
    for kind in get_args(Kind):
        own, paired = np.array(ratios[kind]).T
        low, high = np.percentile(own, 10, method="lower"), np.percentile(own, 90, method="higher")
        gain = 1.0 if kind == "default" else max(1.0, np.percentile(paired, 90, method="higher"))
        table[kind] = Doubt(math.floor(100 * low) / 100, math.ceil(100 * high) / 100, math.ceil(100 * gain) / 100)
    return table


def recorded_kind(each: Outcome) -> Kind:
    """The kind of a recorded placement. Everything on the CPU is one device, though its graph asks for nothing else."""
    if each.label == "default":
        return "default"
    return "one device" if each.label == "all_cpu" else kind_of(each.prediction.problem, each.prediction.op_device)


def kind_of(problem: PlacementProblem, op_device: Ints) -> Kind:
    """The kind of an assignment, as `placer.plan.doubt.kind_of` says it of a plan.

    Args:
        problem: N ops.
        op_device: [N].
    """
    if (default_assignment(problem).device[problem.ops.unit] == op_device).all():
        return "default"
    if splits_loop(problem, op_device):
        return "split loop"
    works = problem.ops.time_ns[np.arange(problem.num_ops), op_device] > 0
    return "split" if len(set(op_device[works].tolist())) > 1 else "one device"


def main() -> None:
    found = [each for machine in SETS for each in outcomes(machine, model_without)]
    table = {kind: asdict(doubt) for kind, doubt in measured_doubts(found).items()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
    print(TABLE.read_text())


if __name__ == "__main__":
    main()
