"""Workers that die, hang and start again: a client and two workers on this host."""

from __future__ import annotations

import pytest

from tests.helpers.clients import failures_in
from tests.helpers.faults_client import scenario


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return failures_in("tests.helpers.faults_client", PLACER_CACHE=str(tmp_path_factory.mktemp("cache")))


@pytest.mark.parametrize("name", scenario.by_name)
def test_of_workers_that_fail(failures: dict[str, str], name: str) -> None:
    assert failures[name] == "", failures[name]
