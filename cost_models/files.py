"""Files written as a whole: completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path


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
