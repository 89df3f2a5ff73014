"""The kind of a placement, and the interval of its prediction."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from placer.common.units import format_ns
from placer.plan.doubt import Kind, doubts, kind_of
from placer.problem.problem import Assignment, PlacementProblem
from placer.verbs.solve import solve, solved
from tests.benchmarks.doubt import kind_of as recorded_kind
from tests.helpers.graphs import loop_then_wide
from tests.helpers.machines import made_up


def on_cpu(*parts: str) -> Any:
    """A solver that puts ops with one of these parts in their names on the CPU and the others on the GPU, where they can be."""

    def place(problem: PlacementProblem) -> Assignment:
        device = np.ones(problem.num_units, np.int64)
        for name, unit in zip(problem.ops.names, problem.ops.unit.tolist(), strict=True):
            if any(part in name for part in parts):
                device[unit] = 0
        return Assignment(np.where(problem.units.allowed[np.arange(len(device)), device], device, 1 - device))

    return place


@pytest.mark.parametrize(
    ("solver", "variables", "kind"),
    [
        ("tf_default", "fixed", "default"),
        ("all_cpu", "move", "one device"),
        (on_cpu("while"), "fixed", "split"),
        (on_cpu("tanh3"), "fixed", "split loop"),
    ],
)
def test_the_interval_of_a_prediction_is_that_of_its_kind(solver: Any, variables: str, kind: Kind) -> None:
    plan = solve(loop_then_wide(), made_up(), solver=solver, variables=variables)
    assert kind_of(plan) == kind
    low_ns, high_ns = plan.interval_ns
    assert (low_ns, high_ns) == (round(doubts()[kind].low * plan.step_time_ns), round(doubts()[kind].high * plan.step_time_ns))
    assert f"predicted  {format_ns(plan.step_time_ns)} ({format_ns(low_ns)} to {format_ns(high_ns)}) per step" in plan.summary()


def test_the_kind_of_a_recorded_placement_is_that_of_the_plan() -> None:
    seen = set()
    for seed in range(20):
        rng = random.Random(seed)
        parts = rng.sample(["while", "tanh1", "tanh5", "wide0", "wide", "scale", "result", ""], rng.randrange(3))
        one = solved(loop_then_wide(), made_up(), solver=on_cpu(*parts))
        assert one.solution.assignment is not None
        op_device = one.solution.assignment.device[one.problem.ops.unit]
        assert kind_of(one.placement) == recorded_kind(one.problem, op_device)
        seen.add(kind_of(one.placement))
    assert {"default", "split", "split loop"} <= seen
