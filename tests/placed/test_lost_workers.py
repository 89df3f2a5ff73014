"""Workers that die, hang and start again: a client and two workers on this host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.faults_client import SCENARIOS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """By scenario: what failed, "" if nothing did."""
    command = [sys.executable, "-m", "tests.helpers.faults_client"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as client:
        try:
            printed, _ = client.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(client.pid, signal.SIGKILL)  # with its workers
            raise
    return dict(json.loads(line) for line in printed.splitlines() if line.startswith("["))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_of_workers_that_fail(failures: dict[str, str], scenario: str) -> None:
    assert failures[scenario] == "", failures[scenario]
