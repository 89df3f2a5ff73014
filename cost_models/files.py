"""Files as a whole: read up to a limit of their size, and written completely or not at all."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

MAX_BYTES = 2**28
"""The largest file that is read, unpacked if it is packed: 256 MiB. A saved plan has about 350 bytes for each op."""


class FileError(ValueError):
    """A file cannot be read, or its content cannot be used. The message begins with the name of the file."""


def read_whole(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a file; of a file whose name ends in ".gz" the unpacked bytes, of which no more are unpacked than allowed.

    Raises:
        FileError: the file cannot be read or unpacked, or is larger.
    """
    try:
        with Path(path).open("rb") as file:
            if Path(path).suffix == ".gz":
                with gzip.open(file) as unpacked:
                    content = unpacked.read(max_bytes + 1)
            else:
                content = file.read(max_bytes + 1)
    except (OSError, EOFError, TypeError, ValueError, zlib.error) as error:
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(content) > max_bytes:
        raise FileError(f"{path} is larger than {max_bytes} bytes, the most that is read.")
    return content


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file beside its place and renames it, so that a failure leaves the file that was there.

    A symbolic link stays one, and its target is replaced. A file that is replaced keeps its permissions. A pipe or a device is
    written directly.

    Raises:
        OSError: the file cannot be written.
        ValueError: the path has a null character.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    draft = _new_draft(target)
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises what `write_whole` would raise for a file that cannot be written; changes nothing."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        target.open("wb").close()
    else:
        _new_draft(target).unlink()


def _new_draft(target: Path) -> Path:
    """A new, empty file beside the target, with the target's permissions if it exists."""
    draft = target.with_name(f".{os.urandom(8).hex()}.tmp")
    draft.touch(exist_ok=False)
    if target.exists():
        draft.chmod(target.stat().st_mode & 0o777)
    return draft
