"""Published instances by name, read from a folder of data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.problem.problem import PlacementProblem
from placer.research.instances.dnn_partitioning import load_placement, load_split
from placer.research.instances.instance import Instance
from placer.research.instances.iopddl import load_pairwise

VARIABLE = "PLACER_DATA"
"""The environment variable that names the folder of data."""


@dataclass(frozen=True)
class Collection:
    """Instances of one publication that are read in one way."""

    files: str
    """A glob of their files below the folder of data."""
    prefix: str
    """What their files' names begin with before the name of the instance."""
    load: Callable[[Path], PlacementProblem | Instance]
    source: str
    """Where to get the files, as text."""


_DNN = "git clone https://github.com/msr-fiddle/dnn-partitioning"
COLLECTIONS: Mapping[str, Collection] = {
    "dnn-partitioning": Collection("**/throughput-inputs/*Graphs/*.json", "", load_placement, _DNN),
    "maxload": Collection("**/throughput-inputs/*Graphs/*.json", "", lambda path: Instance(load_split(path), "max_load"), _DNN),
    "latency": Collection("**/latency-inputs/*Graphs/*.json", "", lambda path: Instance(load_split(path), "latency"), _DNN),
    "iopddl": Collection(
        "**/asplos-2025-iopddl-*.json*",
        "asplos-2025-iopddl-",
        lambda path: Instance(load_pairwise(path), "cost"),
        "the files of the contest are linked from https://github.com/google/iopddl",
    ),
}
"""By the word before the colon of a name."""


def is_published(target: str) -> bool:
    """Whether a target has the form of a published instance's name, such as "iopddl:B"."""
    return target.partition(":")[0] in COLLECTIONS and ":" in target


def published(target: str, data: str | Path | None = None) -> PlacementProblem | Instance:
    """The instance of a name.

    - ``dnn-partitioning:NAME``: a workload on a CPU and an accelerator that holds half of it, see `load_placement`;
    - ``maxload:NAME``, ``latency:NAME``: a workload on the CPUs and accelerators of the publication, see `load_split`;
    - ``iopddl:NAME``: a pairwise problem of the contest, see `load_pairwise`.

    Args:
        target: the name. Where a layer graph and an operator graph have one name, begin it with "Layer/" or "Operator/".
        data: the folder that has the files, at any depth; by default what the environment variable PLACER_DATA says.

    Raises:
        OptionError: there is no folder, no such instance, or there are two.
        PlanError: the file is broken.
    """
    kind, _, name = target.partition(":")
    collection = COLLECTIONS[kind]
    chosen = data or os.environ.get(VARIABLE)
    if not chosen:
        raise OptionError(
            f"{target} is in a folder of data: name it by --data FOLDER (data= in Python) or {VARIABLE}. "
            f"To get the data: {collection.source}."
        )
    folder = Path(chosen)
    if not folder.is_dir():
        raise OptionError(f"there is no folder {folder}, which is to have the data of {target}. To get it: {collection.source}.")
    paths = {_name(path, collection): path for path in sorted(folder.glob(collection.files))}
    if not paths:
        raise OptionError(f"{folder} has no files {collection.files}. To get the data of {target}: {collection.source}.")
    found = [each for each in paths if name.lower() in {each.lower(), each.rpartition("/")[2].lower()}]
    if not found:
        raise OptionError(f"no instance {target!r}{did_you_mean(name, paths)} There are {', '.join(paths)}.")
    if len(found) > 1:
        raise OptionError(f"{target} is ambiguous: {' and '.join(f'{kind}:{each}' for each in found)}.")
    return collection.load(paths[found[0]])


def _name(path: Path, collection: Collection) -> str:
    """The name of an instance: "Layer/NAME" and "Operator/NAME" for the graphs of dnn-partitioning."""
    name = path.name.removesuffix(".gz").removesuffix(".json").removeprefix(collection.prefix)
    return f"{path.parent.name.removesuffix('Graphs')}/{name}" if path.parent.name.endswith("Graphs") else name
