"""Pages of tables are what their generators write from the records."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.benchmarks import measured, published_tables


@pytest.mark.parametrize("generator", [measured, published_tables])
def test_a_page_is_what_its_generator_writes(generator: ModuleType) -> None:
    assert generator.PAGE.read_text() == generator.page()
