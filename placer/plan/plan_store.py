"""Plans that are remembered between processes: a SQLite file in the cache folder with an entry for each planned graph."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from cost_models.cache import cache_folder, tell_once
from cost_models.sqlite_file import FILE_ERRORS, FileFormat, SqliteFile

VERSION = 1
"""Version of the file's format and of what its entries contain."""
MAX_BYTES = 256 << 20
"""The oldest entries go when all together take more."""
_MAX_UNPACKED_BYTES = 1 << 30
"""A part of an entry that unpacks to more is damaged."""
_TIMEOUT_S = 10
"""How long a read or write waits for the writes of other processes. A plan that is not remembered is made again."""

_SCHEMA = """
CREATE TABLE plans (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, prices TEXT NOT NULL, measured INTEGER NOT NULL,
    function TEXT NOT NULL, signature TEXT NOT NULL, machine TEXT NOT NULL,
    ops INTEGER NOT NULL, result TEXT NOT NULL, made TEXT NOT NULL,
    call_plan BLOB NOT NULL, plan BLOB NOT NULL, checksum BLOB NOT NULL
)
"""
_FORMAT = FileFormat("plans", 0x504C4150, VERSION, _SCHEMA)  # "PLAP"
_DELETE_OLDEST = """
DELETE FROM plans WHERE number IN (
    SELECT number FROM (SELECT number, SUM(LENGTH(call_plan) + LENGTH(plan)) OVER (ORDER BY number DESC) AS total FROM plans)
    WHERE total > ?
)
"""


@dataclass(frozen=True, slots=True)
class MemoryKey:
    """By what a plan is found again."""

    key: str
    """Stands for the graph, the options, the machine and the versions."""
    prices: str
    """Stands for the measurements by which the plan is priced."""
    function: str
    signature: str


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan that is remembered."""

    key: str
    prices: str
    """See `MemoryKey`."""
    measured: bool
    """Whether measured calls chose the plan. Otherwise it counts only with the prices that it was made with."""
    function: str
    signature: str
    machine: str
    ops: int
    result: str
    """What the plan achieves, in words."""
    call_plan: bytes
    """What calls need, packed."""
    plan: bytes
    """The whole plan, packed."""
    made: str = field(default_factory=_now)
    """The time in UTC."""


_COLUMNS = tuple(f.name for f in fields(Entry))


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry without its plan."""

    key: str
    function: str
    signature: str
    machine: str
    ops: int
    result: str
    made: str
    nbytes: int
    """What it takes in the file."""


def packed(data: Any) -> bytes:
    """Data of plain JSON types as compressed JSON."""
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode("utf-8", "surrogatepass"), 1)


def unpacked(content: bytes) -> Any:
    """The data that `packed` took.

    Raises:
        ValueError: it is something else.
    """
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(content, _MAX_UNPACKED_BYTES)
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from error


class PlanStore:
    """The plans in one file, see `SqliteFile`. By default it is in the cache folder."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / f"plans-{VERSION}.sqlite"
        self._file = SqliteFile(self.path, _FORMAT, _TIMEOUT_S)

    @property
    def is_off(self) -> bool:
        """Whether the cache folder is the null device, with which nothing is remembered."""
        return self.path.parent == Path(os.devnull)

    def get(self, key: str) -> Entry | None:
        """The entry of a key; None if there is none, or if it is damaged, which is told."""
        rows = self._read(f"SELECT {', '.join(_COLUMNS)}, checksum FROM plans WHERE key = ?", (key,))
        for *values, checksum in rows:
            entry = Entry(*values)
            if checksum == _checksum(entry):
                return entry
            tell_once(f"{self.path} is damaged: the plan of {entry.function} is ignored")
            self.discard(key)
        return None

    def listed(self, key: str = "") -> list[Listed]:
        """The entries whose keys start with a text, the newest first."""
        columns = "key, function, signature, machine, ops, result, made, LENGTH(call_plan) + LENGTH(plan)"
        query = f"SELECT {columns} FROM plans WHERE SUBSTR(key, 1, ?) = ? ORDER BY number DESC"
        return [Listed(*row) for row in self._read(query, (len(key), key))]

    def put(self, entry: Entry) -> None:
        """Stores an entry in the place of an earlier one with its key. A failure is told and has no other effect."""
        row = (*astuple(entry), _checksum(entry))

        def insert(connection: sqlite3.Connection) -> None:
            places = ", ".join("?" * len(row))
            connection.execute(f"INSERT OR REPLACE INTO plans ({', '.join(_COLUMNS)}, checksum) VALUES ({places})", row)
            connection.execute(_DELETE_OLDEST, (MAX_BYTES,))

        self._try(lambda: self._file.write(insert))

    def discard(self, key: str) -> None:
        """Deletes an entry. A failure is told and has no other effect."""
        self._try(lambda: self.delete([key]))

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes entries.

        Raises:
            sqlite3.Error, OSError: the file cannot be written.
        """
        self._file.write(lambda connection: connection.executemany("DELETE FROM plans WHERE key = ?", [(key,) for key in keys]))

    def _read(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        def answer(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            connection.text_factory = lambda text: text.decode(errors="replace")
            return connection.execute(query, values).fetchall()

        return self._file.read(answer, [])

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (*FILE_ERRORS, ValueError) as error:  # a ValueError for text that UTF-8 cannot encode
            tell_once(f"{self.path} cannot be written, so plans are made again at each start: {error}")


def _checksum(entry: Entry) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    for value in astuple(entry):
        plain = int(value) if isinstance(value, bool) else value
        hashed.update(plain if isinstance(plain, bytes) else f"{plain}\0".encode("utf-8", "replace"))
    return hashed.digest()
