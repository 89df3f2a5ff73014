"""Strategies of `tf.distribute` that run over several processes of this host."""

from __future__ import annotations

import json

from tests.helpers.clients import output_of
from tests.helpers.task_strategies import cluster_of, processes


def test_steps_of_two_workers_equal_the_plain_ones_and_run_by_one_plan() -> None:
    """The workers sum over both by collective ops over gRPC. By a random solver, they run by plans that differ."""
    with processes("multi_worker", cluster_of(worker=2), ("worker",)) as workers:
        first, second = (json.loads(worker.output(timeout_s=200).splitlines()[-1]) for worker in workers)
    assert first == second
    assert [first["ran"][name] for name in ("MatMul", "Sin", "CollectiveReduceV2")] == ["CPU:1", "CPU:0", "CPU:1"]
    assert "runs it on CPU:1" in first["note"]


def test_functions_that_a_coordinator_schedules_run_by_plan_on_each_worker() -> None:
    """Two workers, of one replica and of two, and a parameter server, which has the variables. A worker dies and comes back."""
    assert output_of("tests.helpers.task_strategies", "parameter_server", timeout_s=200).split() == ["held"]
