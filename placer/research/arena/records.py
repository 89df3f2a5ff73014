"""A record for each run of a solver, and the file of results that holds them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from cost_models.documents import parse_json
from cost_models.files import FileError, read_whole
from placer.common.json_files import check_format
from placer.errors import PlanError

if TYPE_CHECKING:
    from placer.problem.arrays import Ints
    from placer.solvers.base import Status

Record: TypeAlias = dict[str, Any]
"""One run as a flat dict of text, numbers and booleans. Fields without a value are left out."""

FORMAT = "placer.arena"
VERSION = 1
KEY = ("problem_hash", "objective", "solver", "options", "code", "seed", "placer")
LIMITS = ("time_limit_s", "effort")
"""The fields of `KEY` and one of `LIMITS` identify a run; the other fields describe the problem or the outcome."""
Limit: TypeAlias = dict[str, float]
"""The limit of a run: one of `LIMITS` with its value."""


def key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of the fields that identify a run."""
    return tuple(record[name] for name in KEY) + tuple(record.get(name) for name in LIMITS)


def limit_text(record: Mapping[str, Any]) -> str:
    """The limit of a run as text."""
    return f"{record['time_limit_s']:g} s" if "time_limit_s" in record else f"{record['effort']} evaluations"


class _Solved(Protocol):
    """What all solutions have."""

    @property
    def status(self) -> Status: ...
    @property
    def lower_bound_ns(self) -> int: ...
    @property
    def objective_ns(self) -> int: ...
    @property
    def stop_text(self) -> str: ...


def answered(found: _Solved, answer: Ints | None, seconds: float) -> Record:
    """The outcome and the claims of a run that ended with a solution.

    Args:
        found: the solution.
        answer: its answer: a device for each unit, or a choice for each node; None if there is none.
        seconds: the time of the run.
    """
    claims: Record = {
        "outcome": "answered",
        "status": found.status.value,
        "lower_bound_ns": int(found.lower_bound_ns),
        "feasible": False,
        "seconds": seconds,
        "note": found.stop_text,
    }
    if answer is not None:
        claims |= {"objective_ns": int(found.objective_ns), "assignment": " ".join(map(str, answer.tolist()))}
    return claims


def read_lines(path: str | Path) -> list[Record]:
    """The records in a file of results; none if there is no file yet. A last line that was cut off is left out.

    Raises PlanError if the file has another format or version, or is broken.
    """
    try:
        lines = read_whole(path).splitlines(keepends=True) if Path(path).exists() else []
        rows = [parse_json(line, f"{path}, line {k}") for k, line in enumerate(lines, 1) if line.endswith(b"\n")]
    except FileError as error:
        raise PlanError(str(error)) from error
    if not rows:
        return []
    check_format(rows[0] if isinstance(rows[0], dict) else {}, FORMAT, VERSION, str(path))
    if broken := [k for k, row in enumerate(rows[1:], 2) if not (isinstance(row, dict) and {*KEY, "outcome"} <= row.keys())]:
        raise PlanError(f"{path}, line {broken[0]}: this is not the record of a run. Remove the line, and the run is repeated.")
    return rows[1:]


def open_lines(path: str | Path) -> list[Record]:
    """The records in a file of results. The file is created if it is missing, and can then be added to.

    Raises PlanError if it has another format or cannot be written.
    """
    records = read_lines(path)
    try:
        with Path(path).open("ab+") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)  # removes a last line that was cut off
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}.") from error
    if not whole:
        add_line(path, {"format": FORMAT, "version": VERSION})
    return records


def add_line(path: str | Path, record: Record) -> None:
    """Adds a record to a file of results. Raises PlanError if it cannot be written."""
    try:
        with Path(path).open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}.") from error


def labels(records: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], str]:
    """By `contestant`, a label that no other has: the solver, its options, and the limit if there are several.

    If two would have the same, as the runs of a solver before and after a change, also the code and the version of the package.
    """
    by_contestant = {contestant(record): record for record in records}
    several = len({limit_text(record) for record in by_contestant.values()}) > 1
    label = {
        identity: record["solver"]
        + (f"({record['options']})" if record["options"] else "")
        + (f" {limit_text(record)}" if several else "")
        for identity, record in by_contestant.items()
    }
    count = Counter(label.values())
    return {
        identity: text if count[text] == 1 else f"{text} [{by_contestant[identity]['code']}, {by_contestant[identity]['placer']}]"
        for identity, text in label.items()
    }


def contestant(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The identity of a line in a table: a solver with its options and limit, over all seeds."""
    return tuple(record.get(name) for name in ("solver", "options", "code", *LIMITS, "placer"))
