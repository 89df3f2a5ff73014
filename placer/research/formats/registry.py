"""Problems in files of other programs: which formats there are, and reading and writing them.

A format is a module of this room: see `Format`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import networkx as nx

from cost_models.files import FileError, read_whole, write_whole
from cost_models.machines import Machine
from placer.common.json_files import read_json
from placer.errors import OptionError, PlanError
from placer.problem.problem import PlacementProblem
from placer.research.formats import dax, graphml, saga, stg, wfcommons
from placer.research.formats.differences import differences
from placer.research.formats.network import DEFAULT_PROCESSORS, equal_processors
from placer.research.formats.problem_file import load_problem, save_problem


class Format(Protocol):
    """A module of this room that reads and writes one kind of file."""

    NAME: str
    SUFFIX: str
    """What the names of its files end in."""
    HOLDS_MACHINE: bool
    """Whether a file holds the devices, too."""

    def read(self, content: bytes, source: str, /) -> tuple[nx.MultiDiGraph, nx.DiGraph | None]:
        """The graph of ops, and that of devices if the file holds one; `source` is a name for messages."""

    def write(self, dag: nx.MultiDiGraph, network: nx.DiGraph, /) -> bytes:
        """The content of a file."""


FORMATS: dict[str, Format] = {
    graphml.SUFFIX: graphml,
    dax.SUFFIX: dax,
    stg.SUFFIX: stg,
    wfcommons.SUFFIX: wfcommons,
    saga.SUFFIX: saga,
}
"""By the end of the names of files."""
PROBLEM = ".npz"
"""What the name of a file of all fields ends in, see `placer.research.formats.problem_file`."""


def format_of(path: str | Path) -> Format | None:
    """The format of a file by its name and, for JSON, by its content; None if it has none of these formats.

    Raises:
        PlanError: a JSON file cannot be read.
    """
    name = str(path).removesuffix(".gz").lower()
    for suffix, found in FORMATS.items():
        if name.endswith(suffix):
            return found
    if name.endswith(".xml"):
        return dax
    return format_of_json(read_json(path)) if name.endswith(".json") and Path(path).exists() else None


def format_of_json(document: Mapping[str, Any]) -> Format | None:
    """The format of a JSON document; None if it has none of these formats."""
    return wfcommons if wfcommons.recognises(document) else saga if saga.recognises(document) else None


def read_problem(
    path: str | Path, machine: Machine | str | nx.Graph | None = None, *, processors: int = DEFAULT_PROCESSORS
) -> PlacementProblem:
    """Reads a problem from a file of any of `FORMATS` or `PROBLEM`.

    Args:
        path: the file, which may be packed by gzip (".gz").
        machine: as of `PlacementProblem.from_networkx`, in place of the devices in the file.
        processors: without any devices, the number of equal CPUs.

    Raises:
        OptionError: the file has none of these formats, or there is no such machine.
        PlanError: the file cannot be read, or is broken.
    """
    if str(path).endswith(PROBLEM):
        return load_problem(path)
    found = format_of(path)
    if found is None:
        raise OptionError(f"{path} has no format that is known by its name: {', '.join([PROBLEM, *FORMATS])}.")
    try:
        content = read_whole(path)
    except FileError as error:
        raise PlanError(str(error)) from error
    return _problem(found, content, str(path), machine, processors)


def write_problem(problem: PlacementProblem, path: str | Path) -> tuple[str, ...]:
    """Writes a problem to a file in the format that its name ends in.

    Returns:
        What the file does not hold: the fields of the problem that are different after the file is read, and by how much.

    Raises:
        OptionError: the name has no ending of `FORMATS` or `PROBLEM`.
        PlanError: the file cannot be written.
    """
    if str(path).endswith(PROBLEM):
        save_problem(problem, path)
        return ()
    found = next((found for suffix, found in FORMATS.items() if str(path).endswith(suffix)), None)
    if found is None:
        raise OptionError(f"{path} cannot be written: its name must end in one of {', '.join([PROBLEM, *FORMATS])}.")
    dag, network = problem.to_networkx()
    content = found.write(dag, network)
    machine = None if found.HOLDS_MACHINE else network
    dropped = differences(problem, _problem(found, content, str(path), machine, DEFAULT_PROCESSORS))
    try:
        write_whole(path, content)
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}.") from error
    return dropped if found.HOLDS_MACHINE else ("the devices and links", *dropped)


def _problem(
    found: Format, content: bytes, source: str, machine: Machine | str | nx.Graph | None, processors: int
) -> PlacementProblem:
    try:
        dag, network = found.read(content, source)
        chosen = next((given for given in (machine, network) if given is not None), None)
        return PlacementProblem.from_networkx(dag, equal_processors(processors) if chosen is None else chosen)
    except FileError as error:
        raise PlanError(str(error)) from error
    except OptionError as error:
        raise PlanError(f"{source}: {error}") from error
    except ValueError as error:
        raise PlanError(f"{source} is no problem: {error}") from error
