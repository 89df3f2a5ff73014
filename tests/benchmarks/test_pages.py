"""Pages of tables are what their generators write from the records."""

from __future__ import annotations

from tests.benchmarks import published_tables


def test_the_tables_of_published_problems_are_those_of_the_records() -> None:
    assert published_tables.PAGE.read_text() == published_tables.page()
