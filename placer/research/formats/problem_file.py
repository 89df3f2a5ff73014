"""A PlacementProblem as a file, and its fingerprint."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.files import MAX_BYTES, FileError, read_whole, write_whole
from placer.common.json_files import check_format
from placer.errors import PlanError
from placer.problem.parts import Consumers, Devices, Links, Ops, Tensors, Units
from placer.problem.problem import PlacementProblem

FORMAT = "placer.problem"
VERSION = 2


def fingerprint(problem: PlacementProblem) -> str:
    """A SHA-256 of all fields of a problem."""
    digest = hashlib.sha256()
    for name, value in _fields(problem).items():
        digest.update(f"\0{name}\0".encode())
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def save_problem(problem: PlacementProblem, path: str | Path) -> None:
    """Writes a problem to an ``.npz`` file, which can be a target.

    Raises PlanError if the file cannot be written.
    """
    content = io.BytesIO()
    np.savez_compressed(content, format=np.array([FORMAT, str(VERSION)]), **_fields(problem))
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}.") from error


def load_problem(path: str | Path) -> PlacementProblem:
    """Reads a file of `save_problem`. Raises PlanError if it is missing or broken, or has another format."""
    try:
        content = read_whole(path)
    except FileError as error:
        raise PlanError(str(error)) from error
    try:
        with np.load(_bounded(content), allow_pickle=False) as file:
            arrays = dict(file)
        kind, version = arrays.pop("format").tolist()
        check_format({"format": kind, "version": int(version)}, FORMAT, VERSION, str(path))
        parts: dict[str, dict[str, Any]] = {part.name: {} for part in fields(PlacementProblem)}
        for name, array in arrays.items():  # an array without a dimension is a plain value, an array of text a tuple of names
            part, _, key = name.partition(".")
            parts[part][key] = array.item() if array.ndim == 0 else tuple(array.tolist()) if array.dtype.kind == "U" else array
        return PlacementProblem(
            devices=Devices(**parts["devices"]),
            links=Links(**parts["links"]),
            units=Units(**parts["units"]),
            ops=Ops(**parts["ops"]),
            tensors=Tensors(**parts["tensors"]),
            consumers=Consumers(**parts["consumers"]),
        )
    except PlanError:
        raise
    except Exception as error:  # for a broken file, zipfile and numpy raise errors of many types
        raise PlanError(f"{path} is not a problem that can be read ({type(error).__name__}: {error}).") from error


def _bounded(content: bytes) -> io.BytesIO:
    """The content of a zip file. Raises FileError if it is too large unpacked."""
    file = io.BytesIO(content)
    with zipfile.ZipFile(file) as packed:
        if sum(member.file_size for member in packed.infolist()) > MAX_BYTES:
            raise FileError(f"unpacked, it is larger than {MAX_BYTES} bytes, the most that is read")
    return file


def _fields(problem: PlacementProblem) -> dict[str, Any]:
    """The fields of all parts by name, such as "ops.time_ns"."""
    parts = {part.name: getattr(problem, part.name) for part in fields(problem)}
    return {f"{name}.{f.name}": getattr(part, f.name) for name, part in parts.items() for f in fields(part)}
