"""What was measured, op by op, in a SQLite file that several processes may read and write at once."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from cost_models.base import OpSignature
from cost_models.cache import CacheWarning, cache_folder

FORMAT = "placer.measurements"
VERSION = 2
"""The first did not tell what was harvested."""
_APPLICATION_ID = 0x504C4143  # "PLAC": how SQLite files say whose they are
_MOST_NS = 2**50
"""Nothing takes thirteen days; a plan can be made of no more."""
_PATIENCE_S = 60
"""How long a write waits for other processes' writes."""

_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: other tables or columns than ours
_SHUT = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS measurements (
    device_model TEXT, tensorflow TEXT, op_type TEXT, signature TEXT,
    time_ns INTEGER, dispatch_ns INTEGER, compute_ns INTEGER, spread REAL, harvested INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (device_model, op_type, signature, tensorflow)
) WITHOUT ROWID
"""
_FROM_VERSION_1 = "ALTER TABLE measurements ADD COLUMN harvested INTEGER NOT NULL DEFAULT 0"
_INSERT = """
INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET time_ns = excluded.time_ns, dispatch_ns = excluded.dispatch_ns, compute_ns = excluded.compute_ns,
    spread = excluded.spread, harvested = excluded.harvested
"""
_IF_BETTER = "WHERE excluded.harvested < measurements.harvested"


class StoreError(Exception):
    """Measurements that cannot be read or written. Says which file, why, and the way out."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of an op took; the times mean what they mean in `OpCost`."""

    time_ns: int
    dispatch_ns: int
    compute_ns: int
    spread: float
    """How far the lower quartile of the samples lies above the least, as a share of the time: small where nothing disturbed."""
    harvested: bool = False
    """Read from real steps, as their median, among whatever ran beside the op; else it was measured by itself."""

    def typical(self) -> Measurement:
        """As a step meets it: the lower quartile, where the figures are the least that a sample took.

        Of an asynchronous device it is the longer of dispatch and compute that was seen to spread. What is harvested is what
        steps met.
        """
        if self.harvested:
            return self
        more = 1 + self.spread
        serial = self.time_ns == self.dispatch_ns + self.compute_ns
        dispatch = self.dispatch_ns * (more if serial or self.dispatch_ns >= self.compute_ns else 1)
        compute = self.compute_ns * (more if serial or self.dispatch_ns < self.compute_ns else 1)
        time = dispatch + compute if serial else max(dispatch, compute)
        return Measurement(round(time), round(dispatch), round(time) - round(dispatch) if serial else round(compute), self.spread)


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement and all that it depends on."""

    device_model: str
    tensorflow: str
    """Version."""
    signature: OpSignature
    measured: Measurement


Table: TypeAlias = dict[str, dict[str, Measurement]]
"""Measurements on one device model, by op type and then by `signature_text`."""
_Result = TypeVar("_Result")
_Stored: TypeAlias = tuple[Any, ...]  # a row as the database has it


def signature_text(signature: OpSignature) -> str:
    """A signature as the text it is stored under: equal signatures have equal texts."""
    return json.dumps(signature.to_json(), separators=(",", ":"))


def signature_of(text: str) -> OpSignature | None:
    """The signature behind such a text, None where that is garbled."""
    try:
        return OpSignature.from_json(json.loads(text))
    except (TypeError, ValueError):
        return None


class Store:
    """Measurements in a file, which is made by the first write.

    A file that is broken or belongs to something else is renamed, with a warning, and a new one begun.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else cache_folder() / "measurements.sqlite"

    def put(self, rows: Iterable[Row]) -> None:
        """Adds measurements, in the place of earlier ones of the same op, device model and TensorFlow version.

        Raises:
            StoreError: the file cannot be written.
        """
        self._write(_INSERT, rows)

    def add(self, rows: Iterable[Row]) -> int:
        """Adds those that are not there yet, or were harvested and now are not; says how many that were. Raises as `put` does."""
        return self._write(_INSERT + _IF_BETTER, rows)

    def table(self, device_model: str, tensorflow: str) -> Table:
        """What was measured on a device model.

        Of an op measured under several versions of TensorFlow, the figures under the given one, else under the newest;
        harvested ones only where there is no other.
        """
        found = self._measurements("WHERE device_model = ?", (device_model,))
        table: Table = {}
        order = sorted(found, key=lambda row: (not row[-1].harvested, row[1] == tensorflow, _version(row[1])))
        for _, _, op_type, signature, measured in order:
            table.setdefault(op_type, {})[signature] = measured
        return table

    def texts(self, device_model: str, tensorflow: str) -> set[str]:
        """The `signature_text` of everything measured by itself on a device model under exactly this version."""
        query = "SELECT signature FROM measurements WHERE device_model = ? AND tensorflow = ? AND NOT harvested"
        return {text for (text,) in self._read(query, (device_model, tensorflow))}

    def rows(self) -> Iterator[Row]:
        """Everything, in a fixed order."""
        for device_model, tensorflow, _, text, measured in self._measurements("", ()):
            if (signature := signature_of(text)) is not None:
                yield Row(device_model, tensorflow, signature, measured)

    def counts(self) -> dict[tuple[str, str], int]:
        """How many measurements there are, by device model and TensorFlow version."""
        found = self._read("SELECT device_model, tensorflow, COUNT(*) FROM measurements GROUP BY device_model, tensorflow", ())
        return {(model, version): count for model, version, count in found}

    # -- the file ------------------------------------------------------------------------------------------------------

    def _measurements(self, where: str, values: tuple[str, ...]) -> list[tuple[str, str, str, str, Measurement]]:
        """Device model, TensorFlow's version, op type, signature as text, figures; garbled ones are left out."""
        found, garbled = [], 0
        for model, version, op_type, text, *figures in self._read(f"SELECT * FROM measurements {where}", values):
            try:
                found.append((model, version, op_type, text, _measurement(figures)))
            except ValueError:
                garbled += 1
        if garbled:
            warnings.warn(f"{self.path} is damaged: {garbled} of its measurements are left out", CacheWarning, stacklevel=4)
        return found

    def _read(self, query: str, values: tuple[str, ...]) -> list[_Stored]:
        """A query's answer; empty where there is no file yet, or with a warning none that can be read."""

        def answer(connection: sqlite3.Connection) -> list[_Stored]:
            connection.text_factory = _lenient
            return connection.execute(query, values).fetchall()

        try:
            if not self.path.exists():
                return []
            try:
                return self._with_connection(answer)
            except sqlite3.OperationalError as error:
                if _code(error) not in _SHUT:
                    raise
                # Where nobody may write, there is no place for SQLite's lock: the file is read as one that stays as it is.
                with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
                    return answer(connection)
        except (sqlite3.Error, OSError) as error:
            warnings.warn(f"{self.path} cannot be read, so nothing counts as measured: {error}", CacheWarning, stacklevel=3)
            return []

    def _write(self, statement: str, rows: Iterable[Row]) -> int:
        stored = [
            (row.device_model, row.tensorflow, row.signature.op_type, signature_text(row.signature), *astuple(row.measured))
            for row in rows
        ]

        def insert(connection: sqlite3.Connection) -> int:
            connection.execute("PRAGMA synchronous = OFF")  # a power cut may break the file: it is set aside, and measured again
            before = connection.total_changes
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA user_version = {VERSION}")  # so that no rows show too whether the file can be written
                connection.executemany(statement, stored)
            return connection.total_changes - before

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._with_connection(insert)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path} cannot be written: {error}. Name another folder in $PLACER_CACHE.") from error

    def _with_connection(self, act: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What `act` gives for a connection to a file that is ours; a file that is not is set aside first."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE_S)) as connection:
                why = _claim(connection)
                if not why:
                    return act(connection)
        except sqlite3.DatabaseError as error:
            if _code(error) not in _BROKEN:
                raise
            why = str(error)
        except UnicodeDecodeError:  # in what SQLite says of it
            why = "it is garbled"
        self._set_aside(why)
        with closing(sqlite3.connect(self.path, timeout=_PATIENCE_S)) as connection:
            _claim(connection)
            return act(connection)

    def _set_aside(self, why: str) -> None:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.aside-{number}")).exists():
            number += 1
        for suffix in ("", "-wal", "-shm"):
            old = self.path.with_name(self.path.name + suffix)
            if old.exists():
                old.rename(aside.with_name(aside.name + suffix))
        warnings.warn(
            f"{self.path} is no store of measurements ({why}); it is now {aside.name}, and a new one begins",
            CacheWarning,
            stacklevel=6,
        )


def _claim(connection: sqlite3.Connection) -> str:
    """Makes a new file ours; says why a file cannot be."""
    if _marks(connection) == (_APPLICATION_ID, VERSION):
        return ""
    with connection:
        connection.execute("BEGIN IMMEDIATE")  # another process may be making it ours just now
        application, version = _marks(connection)
        if application == _APPLICATION_ID:
            if version not in (1, VERSION):
                return f"it is in version {version} of the format, and this is version {VERSION}"
            if version == 1:
                connection.execute(_FROM_VERSION_1)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            return ""
        if application or version or connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            return "it belongs to another program"
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")  # from now on, readers and a writer do not wait for each other
    return ""


def _marks(connection: sqlite3.Connection) -> tuple[int, int]:
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return application, version


def _code(error: sqlite3.Error) -> int:
    """The primary one of SQLite's result codes."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF


def _lenient(text: bytes) -> str:
    return text.decode(errors="replace")


def _version(text: str) -> list[int]:
    """What a version sorts by."""
    return [int(number) for number in re.findall(r"\d+", text)]


def _measurement(figures: Sequence[Any]) -> Measurement:
    """From its stored fields, of which those of version 1 lack the last; ValueError for what cannot be figures."""
    time_ns, dispatch_ns, compute_ns, spread, harvested = figures if len(figures) == 5 else (*figures, False)
    times = time_ns, dispatch_ns, compute_ns
    if type(spread) not in (int, float) or not 0 <= spread < _MOST_NS or harvested not in (0, 1):
        raise ValueError(f"{[spread, harvested]} are no spread and whether it was harvested")
    if not all(type(time) is int and 0 <= time * (1 + spread) < _MOST_NS for time in times):
        raise ValueError(f"{times} are no time, dispatch and compute in ns")
    return Measurement(*times, float(spread), bool(harvested))


# -- JSON --------------------------------------------------------------------------------------------------------------


def export_json(rows: Iterable[Row], path: str | os.PathLike[str]) -> None:
    """Writes measurements as JSON: grouped by device model and TensorFlow version, one measurement a line.

    Raises:
        StoreError: the file cannot be written.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        line = json.dumps([row.signature.to_json(), *astuple(row.measured)], separators=(",", ":"))
        groups.setdefault((row.device_model, row.tensorflow), []).append(line)
    blocks = [
        f'{{"device_model": {json.dumps(model)}, "tensorflow": {json.dumps(version)}, "measurements": [\n'
        + ",\n".join(lines)
        + "\n]}"
        for (model, version), lines in groups.items()
    ]
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "groups": [\n'
    try:
        Path(path).write_text(head + ",\n".join(blocks) + "\n]}\n", "utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def import_json(path: str | os.PathLike[str]) -> list[Row]:
    """Reads what `export_json` wrote.

    Raises:
        StoreError: the file cannot be read, or is something else.
    """
    try:
        return rows_of(json.loads(Path(path).read_text("utf-8")))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise StoreError(f"{path} is no JSON, as an export writes it, or only a part of it: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} holds no measurements that an export wrote: {type(error).__name__}: {error}") from error


def rows_of(data: Mapping[str, Any]) -> list[Row]:
    """The rows of an export's JSON; ValueError, TypeError or LookupError for other data."""
    given, version = (data.get("format"), data.get("version")) if isinstance(data, dict) else (None, None)
    if given != FORMAT or version not in (1, VERSION):
        raise ValueError(f"format {given!r} version {version!r} is not {FORMAT!r} version {VERSION}")
    rows = [
        Row(group["device_model"], group["tensorflow"], OpSignature.from_json(signature), _measurement(figures))
        for group in data["groups"]
        for signature, *figures in group["measurements"]
    ]
    for text in {text for row in rows for text in (row.device_model, row.tensorflow, row.signature.op_type)}:
        if not isinstance(text, str) or text.encode("utf-8", "ignore").decode() != text:
            raise ValueError(f"{text!r} is no text")
    return rows
