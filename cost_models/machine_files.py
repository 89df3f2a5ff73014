"""Machines by name or from files: the shipped ones, and the TOML files of machines and of clusters."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path

from cost_models.cluster import Cluster, is_cluster, parse_cluster
from cost_models.documents import MAX_TOML_BYTES
from cost_models.files import read_whole
from cost_models.machines import Machine, MachineError, parse_machine


def shipped_machines() -> tuple[str, ...]:
    """Names of the machines that come with the package, sorted."""
    names = (entry.name for entry in resources.files("cost_models").joinpath("profiles").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml")))


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """A shipped machine by name ("h100"), or a machine or a cluster from a TOML file.

    A string is a path if it ends in ".toml" or contains a path separator.

    Raises:
        MachineError: no shipped machine has that name, the file cannot be read, or its description is invalid.
    """
    if isinstance(name_or_path, str) and not name_or_path.endswith(".toml") and not re.search(r"[/\\]", name_or_path):
        if name_or_path not in shipped_machines():
            raise MachineError(
                f"no shipped machine is called {name_or_path!r}; "
                f"there are {', '.join(shipped_machines())}, or give the path of a TOML file"
            )
        source = f"{name_or_path}.toml"
        return parse_machine(resources.files("cost_models").joinpath("profiles", source).read_text("utf-8"), source)
    text = _text(name_or_path)
    return _cluster(text, name_or_path).machine if is_cluster(text) else parse_machine(text, str(Path(name_or_path)))


def load_cluster(path: str | os.PathLike[str]) -> Cluster:
    """The cluster that a TOML file describes.

    Raises:
        MachineError: the file cannot be read, or its description is invalid. The message names the line and the key.
    """
    return _cluster(_text(path), path)


def _cluster(text: str, path: str | os.PathLike[str]) -> Cluster:
    """The cluster that the text of a file describes. Paths in it start at the folder of the file."""

    def machine(named: str) -> Machine:
        if not named.endswith(".toml"):
            return load_machine(named)
        its_path = Path(path).parent / named
        if is_cluster(text := _text(its_path)):
            raise MachineError(f"{its_path} describes a cluster, not the machine of one process")
        return parse_machine(text, str(its_path))

    return parse_cluster(text, str(Path(path)), machine)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return read_whole(path, MAX_TOML_BYTES).decode()
    except ValueError as error:
        why = f"cannot be read as a machine's TOML file: {str(error).removesuffix('.')}"
        raise MachineError(f"{Path(path)}: {why}. placer calibrate --out FILE writes one for the host where it runs.") from error
