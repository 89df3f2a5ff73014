"""Strategies of `tf.distribute` that run over several processes of this host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.task_strategies import cluster_of, processes


def test_steps_of_two_workers_equal_the_plain_ones_and_run_by_one_plan() -> None:
    """The workers sum over both by collective ops over gRPC. By a random solver, they run by plans that differ."""
    with processes("multi_worker", cluster_of(worker=2), ("worker",)) as workers:
        first, second = (json.loads(worker.communicate(timeout=200)[0].splitlines()[-1]) for worker in workers)
    assert first == second
    assert [first["ran"][name] for name in ("MatMul", "Sin", "CollectiveReduceV2")] == ["CPU:1", "CPU:0", "CPU:1"]
    assert "runs it on CPU:1" in first["note"]


def test_functions_that_a_coordinator_schedules_run_by_plan_on_each_worker() -> None:
    """Two workers, and a parameter server, which has the variables."""
    command = [sys.executable, "-m", "tests.helpers.task_strategies", "parameter_server"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as coordinator:
        try:
            printed, _ = coordinator.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(coordinator.pid, signal.SIGKILL)  # with its workers
            raise
    assert printed.split() == ["held"]
