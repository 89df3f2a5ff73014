"""A wall clock that jumps: limits, races and records go by clocks that do not."""

from __future__ import annotations

import ast
import datetime
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import cost_models
import placer
from placer.plan import plan_store
from placer.plan.plan_store import PlanStore
from tests.helpers.graphs import layers
from tests.helpers.machines import two_cpus
from tests.placed.race.test_racing import settled, split, two_devices
from tests.plan.test_plan_store import entry

YEAR_S = 365 * 86_400


@pytest.fixture(params=[1, -1], ids=["forward", "back"])
def jumping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time the wall clock is read, it is a year later or earlier than the time before."""
    now, years = datetime.datetime.now(datetime.UTC), itertools.count()

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return (now + request.param * datetime.timedelta(days=365 * (next(years) % 1000))).astimezone(tz)

    monkeypatch.setattr(time, "time", lambda: Jumping.now().timestamp())
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * Jumping.now().timestamp()))
    monkeypatch.setattr(datetime, "datetime", Jumping)


@pytest.mark.usefixtures("jumping")
@pytest.mark.parametrize(
    ("solver", "objective"), [("step_time", "step_time"), ("annealing", "step_time"), ("cp_sat", "total_cost")]
)
def test_a_search_is_not_cut_off(solver: str, objective: Any) -> None:
    found = placer.solve(layers(), "h100", time_limit_s=30, solver=solver, objective=objective)
    default = found.baselines["tf_default"]
    assert found.objective_ns <= (default.step_time_ns if objective == "step_time" else default.total_cost_ns)
    assert "time limit" not in found.stop_reason
    assert 0 <= found.solver_seconds < YEAR_S


@pytest.mark.usefixtures("jumping")
def test_a_race_ends_with_times_of_calls() -> None:
    x = tf.ones([4])
    step = placer.place(two_devices, devices=two_cpus(), solver=split, race="force")
    assert settled(step, x) < 60
    tf.debugging.assert_near(step(x), two_devices(x))
    verdict = step.placement.verdict
    assert verdict is not None
    assert all(0 <= each.median_ns < 1e9 * YEAR_S for each in verdict.candidates)


@pytest.mark.usefixtures("jumping")
def test_the_plans_that_were_stored_first_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_store, "MAX_BYTES", 10_000)
    store = PlanStore(tmp_path / "plans.sqlite")
    for number in (1, 2, 3, 1, 4):
        store.put(entry(number, 3_000))
    assert [int(kept.key) for kept in store.listed()] == [4, 1, 3]
    assert len({kept.made for kept in store.listed()}) == 3


def test_the_wall_clock_gives_dates_alone() -> None:
    """What measures a duration reads a clock that no one sets."""
    readers = set()
    for package in (placer, cost_models):
        for file in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in {"time.time", "time.time_ns"} or called.endswith((".now", ".utcnow", ".today")):
                    readers.add(file.name)
    assert readers == {"calibrate.py", "plan_store.py"}
