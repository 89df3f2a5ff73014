"""The user's op measurements, in a SQLite file that several processes may read and write at the same time."""

from __future__ import annotations

import os
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from cost_models.cache import CacheWarning, cache_folder
from cost_models.measurements import Measurement, Row, Table, measurement_of, signature_of, signature_text

VERSION = 2
"""Version of the file's format. Version 1 had no column `harvested`; it is converted when it is opened."""
_APPLICATION_ID = 0x504C4143  # "PLAC"; SQLite files name their program by such a number
_LOCK_TIMEOUT_S = 60
"""How long a write waits for the writes of other processes."""

_UNUSABLE_FILE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Result codes of a file that must be set aside. The last one also stands for missing tables or columns."""
_NO_WRITE_ACCESS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS measurements (
    device_model TEXT, tensorflow TEXT, op_type TEXT, signature TEXT,
    time_ns INTEGER, dispatch_ns INTEGER, compute_ns INTEGER, spread REAL, harvested INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (device_model, op_type, signature, tensorflow)
) WITHOUT ROWID
"""
_CONVERT_VERSION_1 = "ALTER TABLE measurements ADD COLUMN harvested INTEGER NOT NULL DEFAULT 0"
_INSERT_OR_REPLACE = """
INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET time_ns = excluded.time_ns, dispatch_ns = excluded.dispatch_ns, compute_ns = excluded.compute_ns,
    spread = excluded.spread, harvested = excluded.harvested
"""
_ONLY_OVER_HARVESTED = "WHERE excluded.harvested < measurements.harvested"

_Result = TypeVar("_Result")
_StoredRow: TypeAlias = tuple[Any, ...]


class StoreError(Exception):
    """Measurements cannot be read or written. The message names the file, the reason and a remedy."""


class Store:
    """The measurements in one file, which the first write creates.

    A file that is damaged or belongs to another program is renamed, with a warning, and a new file takes its place.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else cache_folder() / "measurements.sqlite"

    def put(self, rows: Iterable[Row]) -> None:
        """Stores measurements. Each replaces an earlier one of the same op, device model and TensorFlow version.

        Raises:
            StoreError: the file cannot be written.
        """
        self._write(_INSERT_OR_REPLACE, rows)

    def add_missing(self, rows: Iterable[Row]) -> int:
        """Stores only those measurements that are new, or that replace a harvested one by one of the op by itself.

        Returns:
            How many it stored.

        Raises:
            StoreError: the file cannot be written.
        """
        return self._write(_INSERT_OR_REPLACE + _ONLY_OVER_HARVESTED, rows)

    def table(self, device_model: str, tensorflow: str) -> Table:
        """The measurements on a device model, one for each op.

        An op that was measured by itself counts before a harvested one. Among several versions of TensorFlow the given one counts
        first, then the newest.
        """
        stored = self._measurements("WHERE device_model = ?", (device_model,))
        table: Table = {}
        worst_first = sorted(stored, key=lambda row: (not row[-1].harvested, row[1] == tensorflow, _version_numbers(row[1])))
        for _, _, op_type, signature, measured in worst_first:
            table.setdefault(op_type, {})[signature] = measured
        return table

    def measured_signatures(self, device_model: str, tensorflow: str) -> set[str]:
        """The `signature_text` of each op measured by itself on a device model under exactly this version of TensorFlow."""
        query = "SELECT signature FROM measurements WHERE device_model = ? AND tensorflow = ? AND NOT harvested"
        return {text for (text,) in self._read(query, (device_model, tensorflow))}

    def rows(self) -> Iterator[Row]:
        """All measurements, in a fixed order."""
        for device_model, tensorflow, _, text, measured in self._measurements("", ()):
            if (signature := signature_of(text)) is not None:
                yield Row(device_model, tensorflow, signature, measured)

    def counts(self) -> dict[tuple[str, str], int]:
        """The number of measurements by device model and TensorFlow version."""
        counted = self._read("SELECT device_model, tensorflow, COUNT(*) FROM measurements GROUP BY device_model, tensorflow", ())
        return {(model, version): count for model, version, count in counted}

    # -- the file ------------------------------------------------------------------------------------------------------

    def _measurements(self, where: str, values: tuple[str, ...]) -> list[tuple[str, str, str, str, Measurement]]:
        """Device model, TensorFlow version, op type, signature text and measurement of each row that is not garbled."""
        measurements, garbled = [], 0
        for model, version, op_type, text, *figures in self._read(f"SELECT * FROM measurements {where}", values):
            try:
                measurements.append((model, version, op_type, text, measurement_of(figures)))
            except ValueError:
                garbled += 1
        if garbled:
            warnings.warn(f"{self.path} is damaged: {garbled} of its measurements are ignored", CacheWarning, stacklevel=4)
        return measurements

    def _read(self, query: str, values: tuple[str, ...]) -> list[_StoredRow]:
        """The rows that a query returns: none if there is no file, and none, with a warning, if it cannot be read."""

        def answer(connection: sqlite3.Connection) -> list[_StoredRow]:
            connection.text_factory = _decoded
            return connection.execute(query, values).fetchall()

        try:
            if not self.path.exists():
                return []
            try:
                return self._with_connection(answer)
            except sqlite3.OperationalError as error:
                if _result_code(error) not in _NO_WRITE_ACCESS:
                    raise
                # SQLite cannot write its lock here. As no one else can write either, the file may be read without one.
                with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?immutable=1", uri=True)) as connection:
                    return answer(connection)
        except (sqlite3.Error, OSError) as error:
            warnings.warn(f"{self.path} cannot be read, so its measurements are ignored: {error}", CacheWarning, stacklevel=3)
            return []

    def _write(self, statement: str, rows: Iterable[Row]) -> int:
        """Executes a statement for each row, all in one transaction, and returns how many rows changed."""
        stored = [
            (row.device_model, row.tensorflow, row.signature.op_type, signature_text(row.signature), *astuple(row.measured))
            for row in rows
        ]

        def insert(connection: sqlite3.Connection) -> int:
            connection.execute("PRAGMA synchronous = OFF")  # if a power cut damages the file, the ops are measured again
            before = connection.total_changes
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA user_version = {VERSION}")  # writes even if there are no rows, to test the access
                connection.executemany(statement, stored)
            return connection.total_changes - before

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._with_connection(insert)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path} cannot be written: {error}. Set $PLACER_CACHE to another folder.") from error

    def _with_connection(self, action: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Runs `action` on a connection to the file. A file that is not a store is set aside first, and a new one made."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_S)) as connection:
                reason = _prepare(connection)
                if not reason:
                    return action(connection)
        except sqlite3.DatabaseError as error:
            if _result_code(error) not in _UNUSABLE_FILE:
                raise
            reason = str(error)
        except UnicodeDecodeError:  # SQLite's message quotes bytes of the file
            reason = "it is garbled"
        self._set_aside(reason)
        with closing(sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_S)) as connection:
            _prepare(connection)
            return action(connection)

    def _set_aside(self, reason: str) -> None:
        """Renames the file, and SQLite's files beside it, to the first free name; warns."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.aside-{number}")).exists():
            number += 1
        for suffix in ("", "-wal", "-shm"):
            old = self.path.with_name(self.path.name + suffix)
            if old.exists():
                old.rename(aside.with_name(aside.name + suffix))
        warnings.warn(
            f"{self.path} is no store of measurements ({reason}); it was renamed {aside.name}, and a new store takes its place",
            CacheWarning,
            stacklevel=6,
        )


def _prepare(connection: sqlite3.Connection) -> str:
    """Makes a new file a store and converts one of version 1. Returns why another file cannot be used, "" if it can."""
    if _application_and_version(connection) == (_APPLICATION_ID, VERSION):
        return ""
    with connection:
        connection.execute("BEGIN IMMEDIATE")  # another process may be preparing the same file
        application, version = _application_and_version(connection)
        if application == _APPLICATION_ID:
            if version not in (1, VERSION):
                return f"its format has version {version}, and this program writes version {VERSION}"
            if version == 1:
                connection.execute(_CONVERT_VERSION_1)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            return ""
        if application or version or connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            return "it belongs to another program"
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer then do not wait for each other
    return ""


def _application_and_version(connection: sqlite3.Connection) -> tuple[int, int]:
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return application, version


def _result_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF


def _decoded(text: bytes) -> str:
    """Text of the file, with a replacement character for each byte that is not UTF-8."""
    return text.decode(errors="replace")


def _version_numbers(version: str) -> list[int]:
    """The numbers in a version, by which versions are ordered."""
    return [int(number) for number in re.findall(r"\d+", version)]
