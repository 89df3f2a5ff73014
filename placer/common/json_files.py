"""JSON files that placer writes: each holds an object that names its format and version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cost_models import documents
from cost_models.files import FileError, write_whole
from placer.common.garbage_collection import paused_collection
from placer.errors import PlanError


def write_json(path: str | Path, data: Mapping[str, Any]) -> None:
    """Writes a JSON object to a file.

    Raises:
        PlanError: the file cannot be written.
    """
    text = json.dumps(data, separators=(",", ":")) + "\n"
    try:
        write_whole(path, text.encode())
    except (OSError, TypeError, ValueError) as error:
        raise PlanError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error


def read_json(path: str | Path) -> dict[str, Any]:
    """Reads a JSON object from a file.

    Raises:
        PlanError: the file cannot be read, or holds something else.
    """
    try:
        with paused_collection():
            data = documents.read_json(path)
    except FileError as error:
        raise PlanError(str(error)) from error
    if not isinstance(data, dict):
        raise PlanError(f"{path} holds a JSON {type(data).__name__}, not an object.")
    return data


def check_format(data: Mapping[str, Any], wanted: str, version: int, origin: str) -> None:
    """Checks the format and version that `data` names.

    Args:
        data: read from a file.
        wanted: the format.
        version: of the format.
        origin: where the data is from, for errors.

    Raises:
        PlanError: the format or version is another one.
    """
    if not isinstance(data, Mapping):
        raise PlanError(f"{origin} is no {wanted}: that is a mapping, not a {type(data).__name__}.")
    if data.get("format") != wanted:
        raise PlanError(f"{origin} is not a {wanted} file: its format is {data.get('format')!r}.")
    if data.get("version") != version:
        raise PlanError(
            f"{origin} has version {data.get('version')!r} of {wanted}; this placer reads version {version}. Make it again."
        )
