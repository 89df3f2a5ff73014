"""Measurements as a JSON file, to carry them from one machine to another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any

from cost_models.base import OpSignature
from cost_models.documents import read_json
from cost_models.files import FileError, write_whole
from cost_models.measurements import Row, measurement_of
from cost_models.store import StoreError

FORMAT = "placer.measurements"
VERSION = 2
"""Version 1 had no flag for harvested measurements. It can still be read."""


def export_json(rows: Iterable[Row], path: str | os.PathLike[str]) -> None:
    """Writes measurements as JSON: grouped by device model and TensorFlow version, one measurement on each line.

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
        write_whole(path, (head + ",\n".join(blocks) + "\n]}\n").encode())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def import_json(path: str | os.PathLike[str]) -> list[Row]:
    """Reads a file that `export_json` wrote.

    Raises:
        StoreError: the file cannot be read, or is not such a file.
    """
    try:
        return _rows_of(read_json(path))
    except FileError as error:
        raise StoreError(str(error)) from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is not an export of measurements: {type(error).__name__}: {error}") from error


def _rows_of(data: Mapping[str, Any]) -> list[Row]:
    """The rows of an export's JSON. Other data raises ValueError, TypeError, LookupError or AttributeError."""
    name, version = (data.get("format"), data.get("version")) if isinstance(data, dict) else (None, None)
    if name != FORMAT or version not in (1, VERSION):
        raise ValueError(f"its format is {name!r} version {version!r}, not {FORMAT!r} version {VERSION}")
    rows = [
        Row(group["device_model"], group["tensorflow"], OpSignature.from_json(signature), measurement_of(figures))
        for group in data["groups"]
        for signature, *figures in group["measurements"]
    ]
    for text in {text for row in rows for text in (row.device_model, row.tensorflow, row.signature.op_type)}:
        if not isinstance(text, str) or text.encode("utf-8", "ignore").decode() != text:
            raise ValueError(f"{text!r} is not text that UTF-8 can encode")
    return rows
