"""A SQLite file in the cache folder, which several processes may use at the same time and which may be damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cost_models.cache import exists, tell_once

FILE_ERRORS = (sqlite3.Error, OSError)
"""What using a file raises that cannot be opened, read or written."""

_UNUSABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Result codes of a file that must be set aside. The last one also stands for missing tables or columns."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class FileFormat:
    """What a file contains."""

    content: str
    """Noun for messages, such as "measurements"."""
    application_id: int
    """SQLite files name their program by such a number."""
    version: int
    schema: str
    """The statement that makes the table of a new file."""


class _UnusableError(Exception):
    """The file is damaged, or belongs to another program. The message says why."""


class SqliteFile:
    """A file of one format, which the first write creates.

    A file that is damaged or belongs to another program is renamed, with a warning, and a new file takes its place.

    Args:
        path: of the file. It contains the version of the format, so that releases with different formats can share a folder.
        file_format: what the file contains.
        timeout_s: how long to wait for other processes.
    """

    def __init__(self, path: Path, file_format: FileFormat, timeout_s: float) -> None:
        self.path = path
        self._format = file_format
        self._timeout_s = timeout_s

    def read(self, action: Callable[[sqlite3.Connection], _Result], otherwise: _Result) -> _Result:
        """What `action` returns for a connection to the file.

        Args:
            action: reads from the file.
            otherwise: the result if there is no file. It is also the result, with a warning, if the file cannot be read.
        """

        def attempt() -> _Result:
            if not exists(self.path):
                return otherwise
            with self._opened("rw") as connection:
                connection.execute("BEGIN")
                return otherwise if self._is_empty(connection) else action(connection)

        try:
            return self._attempted(attempt)
        except FILE_ERRORS as error:
            tell_once(f"{self.path} cannot be read, so its {self._format.content} are ignored: {error}")
            return otherwise

    def write(self, action: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What `action` returns for a connection to the file. All that it writes is one transaction.

        Raises:
            sqlite3.Error, OSError: the file cannot be written; nothing was.
        """

        def attempt() -> _Result:
            with self._opened("rwc") as connection:
                connection.execute("PRAGMA auto_vacuum = FULL")  # a file shrinks when rows go
                connection.execute("PRAGMA synchronous = OFF")  # if a power cut damages the file, a new one is made
                connection.execute("BEGIN IMMEDIATE")
                if self._is_empty(connection):
                    connection.execute(self._format.schema)
                    connection.execute(f"PRAGMA application_id = {self._format.application_id}")
                # In any case something is written, so that an action without rows tests the access.
                connection.execute(f"PRAGMA user_version = {self._format.version}")
                result = action(connection)
                connection.execute("COMMIT")
                return result

        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self._attempted(attempt)

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection without an open transaction. Raises _UnusableError for errors that show an unusable file."""
        try:
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._timeout_s, isolation_level=None)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
            if code & 0xFF in _UNUSABLE or code == sqlite3.SQLITE_READONLY_DBMOVED:  # another process has just set it aside
                raise _UnusableError(str(error)) from error
            raise
        except UnicodeDecodeError as error:  # SQLite's message quotes bytes of the file
            raise _UnusableError("it is garbled") from error

    def _is_empty(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is new. Raises _UnusableError if it is of another format."""
        application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == self._format.application_id:
            if version != self._format.version:
                raise _UnusableError(f"its format has version {version}, and this program writes version {self._format.version}")
            return False
        if application or version or connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise _UnusableError("it belongs to another program")
        return True

    def _attempted(self, attempt: Callable[[], _Result]) -> _Result:
        """What `attempt` returns. If the file is unusable, it is set aside first."""
        try:
            return attempt()
        except _UnusableError:
            pass
        with self._locked():
            try:
                return attempt()  # another process may have set it aside
            except _UnusableError as unusable:
                self._set_aside(str(unusable))
            try:
                return attempt()
            except _UnusableError as unusable:
                raise OSError(str(unusable)) from unusable

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time is inside. SQLite's own lock serves, on an empty file beside."""
        with closing(sqlite3.connect(self.path.with_name(f"{self.path.name}.lock"), timeout=self._timeout_s)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            yield

    def _set_aside(self, reason: str) -> None:
        """Renames the file, and SQLite's files beside it, to the first free name; warns."""
        number = 1
        while exists(aside := self.path.with_name(f"{self.path.name}.aside-{number}")):
            number += 1
        for suffix in ("", "-journal", "-wal", "-shm"):
            old = self.path.with_name(self.path.name + suffix)
            if exists(old):
                old.rename(aside.with_name(aside.name + suffix))
        tell_once(
            f"{self.path} is no store of {self._format.content} ({reason}); "
            f"it was renamed {aside.name}, and a new store takes its place"
        )
