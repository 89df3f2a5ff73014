"""The user's op measurements, in a SQLite file that several processes may read and write at the same time."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeAlias

from cost_models.cache import cache_folder, tell_once
from cost_models.measurements import Measurement, Row, Table, measurement_of, signature_of, signature_text
from cost_models.sqlite_file import FILE_ERRORS, FileFormat, SqliteFile

VERSION = 2
"""Version of the file's format."""
_LOCK_TIMEOUT_S = 60
"""How long a read or write waits for the writes of other processes."""

_SCHEMA = """
CREATE TABLE measurements (
    device_model TEXT, tensorflow TEXT, op_type TEXT, signature TEXT,
    time_ns INTEGER, dispatch_ns INTEGER, compute_ns INTEGER, spread REAL, harvested INTEGER NOT NULL,
    PRIMARY KEY (device_model, op_type, signature, tensorflow)
) WITHOUT ROWID
"""
_FORMAT = FileFormat("measurements", 0x504C4143, VERSION, _SCHEMA)  # "PLAC"
_INSERT_OR_REPLACE = """
INSERT INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET time_ns = excluded.time_ns, dispatch_ns = excluded.dispatch_ns, compute_ns = excluded.compute_ns,
    spread = excluded.spread, harvested = excluded.harvested
"""
_ONLY_OVER_HARVESTED = "WHERE excluded.harvested < measurements.harvested"

_StoredRow: TypeAlias = tuple[Any, ...]


class StoreError(Exception):
    """Measurements cannot be read or written. The message names the file, the reason and a remedy."""


class Store:
    """The measurements in one file, see `SqliteFile`. By default it is in the cache folder."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else cache_folder() / f"measurements-{VERSION}.sqlite"
        self._file = SqliteFile(self.path, _FORMAT, _LOCK_TIMEOUT_S)

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
            tell_once(f"{self.path} is damaged: {garbled} of its measurements are ignored")
        return measurements

    def _read(self, query: str, values: tuple[str, ...]) -> list[_StoredRow]:
        """The rows that a query returns."""

        def answer(connection: sqlite3.Connection) -> list[_StoredRow]:
            connection.text_factory = _decoded
            return connection.execute(query, values).fetchall()

        return self._file.read(answer, [])

    def _write(self, statement: str, rows: Iterable[Row]) -> int:
        """Executes a statement for each row, all in one transaction, and returns how many rows changed."""
        stored = [
            (row.device_model, row.tensorflow, row.signature.op_type, signature_text(row.signature), *astuple(row.measured))
            for row in rows
        ]

        def insert(connection: sqlite3.Connection) -> int:
            before = connection.total_changes
            connection.executemany(statement, stored)
            return connection.total_changes - before

        try:
            return self._file.write(insert)
        except FILE_ERRORS as error:
            raise StoreError(f"{self.path} cannot be written: {error}. Set $PLACER_CACHE to another folder.") from error


def _decoded(text: bytes) -> str:
    """Text of the file, with a replacement character for each byte that is not UTF-8."""
    return text.decode(errors="replace")


def _version_numbers(version: str) -> list[int]:
    """The numbers in a version, by which versions are ordered."""
    return [int(number) for number in re.findall(r"\d+", version)]
