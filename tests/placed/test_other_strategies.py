"""Strategies that are not planned for: the function runs as without placer, and one warning says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import placer
from tests.helpers.machines import two_cpus

ROOT = Path(__file__).parents[2]


def test_functions_that_a_coordinator_schedules_equal_the_plain_ones() -> None:
    """A coordinator, two workers and a parameter server, which has the variables."""
    command = [sys.executable, "-m", "tests.helpers.task_strategies", "parameter_server"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as coordinator:
        try:
            printed, _ = coordinator.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(coordinator.pid, signal.SIGKILL)  # with its workers
            raise
    (said,) = json.loads(printed)
    assert "a ParameterServerStrategy runs one trace on any worker" in said


def test_replicas_of_tpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no TPU here: a strategy that was not initialised stands for one."""
    strategy = object.__new__(tf.distribute.TPUStrategy)
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    placed = placer.place(tf.function(tf.sin), devices=two_cpus())
    with pytest.warns(placer.PlacementWarning, match="XLA compiles the replicas of a TPUStrategy as a whole"):
        np.testing.assert_allclose(placed(tf.ones([4])), tf.sin(tf.ones([4])))
