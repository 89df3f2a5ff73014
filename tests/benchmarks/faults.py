"""Runs the tests that cause faults on purpose, and writes how often each fault was tried into docs/faults.md.

    python -m tests.benchmarks.faults [--effort 10] [--seed 1]

The effort is a factor of the number of damaged files, wrong plans, wrong problems and hostile names.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- tried -->\n", "<!-- /tried -->\n"


@dataclass(frozen=True)
class Fault:
    """A row of the page."""

    what: str
    holds: str
    tests: tuple[str, ...]
    """Files, or tests as "file::test", below tests/."""


FAULTS = (
    Fault(
        "Ctrl-C and SIGTERM, during and after searches of CP-SAT, on any thread, with the program's own handlers",
        "the search stops within a second, KeyboardInterrupt is raised, the program's handlers stay, the next call plans again",
        ("solvers/test_interrupts.py",),
    ),
    Fault(
        "a cache folder of another user, a store that cannot be written",
        "calls go on without it; one warning says so",
        (
            "cost_models/test_store.py::test_a_folder_of_another_user_is_as_good_as_none",
            "cost_models/test_store.py::test_a_store_that_cannot_be_written_is_read",
        ),
    ),
    Fault(
        "ten processes at once that write a store, or find it damaged or foreign",
        "no entry is lost, and the damaged file is set aside once",
        (
            "cost_models/test_store.py::test_processes_that_write_at_the_same_time_lose_nothing",
            "cost_models/test_store.py::test_processes_that_find_an_unusable_file_at_the_same_time_lose_nothing",
            "plan/test_plan_store.py::test_ten_processes_at_once_lose_nothing",
        ),
    ),
    Fault(
        "two releases with different formats that write one cache folder at once",
        "each has its own file, and nothing is set aside",
        ("cost_models/test_store.py::test_two_releases_share_a_folder_and_leave_each_other_alone",),
    ),
    Fault(
        "bytes of a store changed, cut out or added; entries of a plan store changed",
        "no call stops; what is damaged is made again",
        (
            "cost_models/test_store.py::test_plans_are_made_whatever_bytes_of_a_store_changed",
            "cost_models/test_store.py::test_a_damaged_store_never_stops_anyone",
            "cost_models/test_store.py::test_a_file_that_is_no_database_is_set_aside",
            "cost_models/test_store.py::test_a_database_of_another_program_or_version_is_set_aside",
            "plan/test_plan_store.py::test_a_changed_entry_counts_as_none",
        ),
    ),
    Fault(
        "a writer, and `placer calibrate`, killed while they measure or write",
        "the store and the calibration are whole, and the next run ends",
        ("cost_models/test_store.py::test_a_killed_writer_leaves_what_was_there", "verbs/test_killed_calibration.py"),
    ),
    Fault(
        "a full disk, for each kind of file that is written",
        "the file that was there is unchanged, and no other file is left",
        (
            "test_files.py::test_a_write_that_fails_leaves_the_file_that_was_there",
            "test_files.py::test_a_calibration_that_cannot_be_written_leaves_the_one_before",
            "cost_models/test_store.py::test_a_full_disk_leaves_what_was_there",
        ),
    ),
    Fault(
        "bytes of a file changed, cut out or added, for each of 9 formats",
        "the file is read, or is refused with an error that names it",
        ("test_files.py::test_a_damaged_file_is_refused_by_name",),
    ),
    Fault(
        "nesting, numbers and keys that parsers take long for or fail at; archives that unpack to more than 256 MiB",
        "refused before it is parsed; on the command line one message and exit code 1",
        (
            "test_files.py::test_what_would_take_the_parser_long_is_refused",
            "test_files.py::test_what_unpacks_to_more_than_is_read_is_refused",
            "test_files.py::test_the_command_line_says_it_in_a_line",
        ),
    ),
    Fault(
        "a plan with a right checksum in which one value is replaced, left out, repeated or swapped",
        "the plan is refused with what is wrong, or every view can be drawn and the graph can be solved",
        ("plan/test_broken_plans.py",),
    ),
    Fault(
        "a problem file (`.npz`) in which a value, a type or a shape of an array is changed, or an array is missing",
        "the file is refused by name, or its problem can be solved",
        ("research/arena/test_broken_problems.py",),
    ),
    Fault(
        "names with control characters, escape sequences, markup, quotes, lone surrogates",
        "every view is well formed, shows escapes, and obeys no name in a browser, TensorBoard and Netron",
        ("views/test_hostile_names.py",),
    ),
    Fault(
        "a time limit of 1e300 s; problems in which nothing is left to improve",
        "the search ends",
        (
            "solvers/test_grid.py::test_a_search_ends_where_the_time_does_not",
            "solvers/test_grid.py::test_nothing_to_place_is_placed",
        ),
    ),
    Fault(
        "a wall clock that jumps by a year each time it is read, forward and back",
        "searches, races and stores do as with any clock",
        ("test_clock.py",),
    ),
    Fault(
        "devices that the program hides or splits",
        "plans are for the devices that are left, and others are refused by name",
        ("tf/test_hidden_devices.py",),
    ),
    Fault(
        "what holds the storage of a variable that moves; moves that fail half-way",
        "no function has stale values, and what cannot be given the new storage forbids the move",
        ("semantics/test_moving.py", "tf/test_frozen_objects.py"),
    ),
    Fault(
        "`pickle` of a placed function",
        "an error says how to send a plan instead",
        ("placed/race/test_circumstances.py::test_it_cannot_be_pickled_before_during_and_after_a_race",),
    ),
)


class Count:
    """A plugin of pytest that keeps the tests of `FAULTS`, and counts their cases and outcomes by row."""

    def __init__(self) -> None:
        self.tried: Counter[Fault] = Counter()
        self.outcomes: dict[Fault, Counter[str]] = {fault: Counter() for fault in FAULTS}
        self._fault_of: dict[str, Fault] = {}

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Keeps the tests of the rows. Each example of a hypothesis test is a case, and each run of another test."""
        kept = []
        counted: set[int] = set()
        for item in items:
            name = item.nodeid.removeprefix("tests/").partition("[")[0]
            fault = next((f for f in FAULTS if name in f.tests or name.partition("::")[0] in f.tests), None)
            if fault is None:
                continue
            kept.append(item)
            self._fault_of[item.nodeid] = fault
            if not hasattr(item.obj, "hypothesis"):
                self.tried[fault] += 1
            elif id(item.obj.hypothesis) not in counted:
                counted.add(id(item.obj.hypothesis))
                item.obj.hypothesis.inner_test = self._counted(item.obj.hypothesis.inner_test, fault)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def _counted(self, test: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.tried[fault] += 1
            return test(*args, **kwargs)

        return run

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts the outcome of a test once."""
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[self._fault_of[report.nodeid]][report.outcome] += 1

    def table(self) -> str:
        """The rows of the page."""
        lines = ["| fault | tried | what held | tests |", "|---|---|---|---|"]
        for fault in FAULTS:
            outcomes = self.outcomes[fault]
            held = f"**failed: {outcomes['failed']}**. " if outcomes["failed"] else ""
            skipped = f" ({outcomes['skipped']} tests skipped)" if outcomes["skipped"] else ""
            tests = ", ".join(f"`tests/{file}`" for file in dict.fromkeys(test.partition("::")[0] for test in fault.tests))
            lines.append(f"| {fault.what} | {self.tried[fault]:,}{skipped} | {held}{fault.holds} | {tests} |")
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"))
    args = parser.parse_args(arguments)
    os.environ["FAULTS_EFFORT"] = str(args.effort)
    import pytest

    count = Count()
    files = [str(ROOT / "tests" / test) for test in dict.fromkeys(t.partition("::")[0] for f in FAULTS for t in f.tests)]
    options = ["-q", "--hypothesis-profile=fuzz", f"--hypothesis-seed={args.seed}", "-p", "no:cacheprovider"]
    code = int(pytest.main([*options, *files], plugins=[count]))
    from importlib.metadata import version

    run = (
        f"Written by `make faults` on {datetime.now(UTC):%Y-%m-%d}: effort {args.effort}, seed {args.seed}, Python "
        f"{platform.python_version()}, TensorFlow {version('tensorflow')}.\n\n"
    )
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(before + BEGIN + run + count.table() + END + rest.split(END)[1])
    return code


if __name__ == "__main__":
    sys.exit(main())
