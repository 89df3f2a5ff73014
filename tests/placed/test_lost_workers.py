"""Workers that die, hang and start again: a client and two workers on this host."""

from __future__ import annotations

import pytest

from placer.tf import connecting
from tests.helpers.clients import failures_in
from tests.helpers.faults_client import WITHIN_S, scenario


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return failures_in("tests.helpers.faults_client", PLACER_CACHE=str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("name", scenario.by_name)
def test_of_workers_that_fail(failures: dict[str, str], name: str) -> None:
    assert failures[name] == "", failures[name]


def test_a_call_ends_within_30_s_also_by_the_longest_times() -> None:
    """The scenarios run with shorter times. TensorFlow may connect once more to a worker that hangs."""
    longest_s = connecting.WATCH_EVERY_S + connecting.HANGS_S + connecting.RETRY_S + 2 * connecting.LATE_S
    assert longest_s < WITHIN_S
    assert connecting.HANGS_S < 20  # after which gRPC takes a worker that hangs for one that is not there
