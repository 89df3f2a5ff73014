"""Targets that are problems already: made-up and published ones, and files of problems."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from placer.common.json_files import read_json
from placer.common.suggestions import did_you_mean
from placer.errors import OptionError
from placer.options import Options
from placer.problem.problem import PlacementProblem
from placer.research.arena.adversary import adversarial
from placer.research.arena.target_forms import ADVERSARIAL, FAMILY, GRAPHS, PROBLEMS
from placer.research.formats.registry import PROBLEM, format_of, format_of_json, read_problem
from placer.research.instances.dnn_partitioning import load_placement
from placer.research.instances.families import SHAPES, synthetic
from placer.research.instances.instance import Instance
from placer.research.instances.iopddl import load_pairwise
from placer.research.instances.published import COLLECTIONS, is_published, published
from placer.research.instances.task_graphs import SHAPES as TASK_GRAPHS
from placer.research.instances.task_graphs import task_graph
from placer.solvers.base import Objective
from placer.verbs.read_target import is_function_or_model, is_unknown


def own_problem(target: str, given: Mapping[str, Any], data: str | Path | None = None) -> PlacementProblem | Instance | None:
    """The problem of a target that is no graph; None for a target of `placer.verbs.read_target.read_target`.

    Such a target is one of

    - ``family:SHAPE,KEY=NUMBER,...``, with the keywords of `synthetic`, or of `task_graph` for a shape of it;
    - ``adversarial:LOSER,WINNER,KEY=NUMBER,...``, with the keywords of `adversarial`;
    - the name of a published instance, see `published`;
    - a file of `placer.research.formats.registry`, where ``FILE,processors=NUMBER`` says how many processors there are if the
      file does not;
    - a workload of dnn-partitioning (``.json``), half of which fits on the accelerator, or an instance of iopddl.

    Args:
        target: text.
        given: options as keywords. ``devices`` replaces the devices of a file.
        data: the folder of published instances.

    Raises:
        OptionError: there is no such target, of a problem or of a graph.
        PlanError: a file is broken.
    """
    if target.startswith(FAMILY):
        return _made_up(target)
    if target.startswith(ADVERSARIAL):
        return _adversarial(target, Options.of(given).objective)
    if is_published(target):
        return published(target, data)
    path, _, keyword = target.partition(",")
    document = read_json(path) if path.removesuffix(".gz").endswith(".json") and Path(path).exists() else {}
    if path.endswith(PROBLEM) or (format_of_json(document) if document else format_of(path)) is not None:
        keywords = _arguments(f"file:{target}", 1, read_problem, "the name of a file")[1] if keyword else {}
        return read_problem(path, given.get("devices"), **keywords)
    if "maxFPGAs" in document:
        return load_placement(target)
    if "problem" in document:
        return Instance(load_pairwise(target), "cost")
    if is_unknown(target):
        names = ("family", "adversarial", "shipped", *COLLECTIONS)
        suggestion = did_you_mean(target.partition(":")[0], [f"{name}:" for name in names])
        raise OptionError(f"there is no target {target!r}{suggestion} A target is {GRAPHS}; or {PROBLEMS}.")
    return None


def takes_signature(target: object) -> bool:
    """Whether a target is a function or a SavedModel, which need a signature. All other targets have their types."""
    if not isinstance(target, str) or target.startswith((FAMILY, ADVERSARIAL)) or is_published(target):
        return False
    return is_function_or_model(target)


def _made_up(text: str) -> PlacementProblem:
    """The problem of "family:SHAPE,KEY=NUMBER,..."."""
    shape = text.removeprefix(FAMILY).partition(",")[0]
    family = task_graph if shape in TASK_GRAPHS else synthetic
    (shape,), keywords = _arguments(text, 1, family, f"SHAPE is one of {', '.join([*SHAPES, *TASK_GRAPHS])}")
    return family(shape, **keywords)


def _adversarial(text: str, objective: Objective) -> PlacementProblem:
    """The problem of "adversarial:LOSER,WINNER,KEY=NUMBER,..."."""
    (loser, winner), keywords = _arguments(text, 2, adversarial, "LOSER and WINNER are registered solvers")
    return adversarial(loser, winner, objective=objective, **keywords).problem


def _arguments(text: str, count: int, function: Callable[..., Any], hint: str) -> tuple[list[str], dict[str, Any]]:
    """The names and the keywords of "KIND:NAME,...,KEY=NUMBER,...".

    Raises OptionError unless it has so many names, and keywords of the function with numbers.
    """
    known = [name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY]
    known = [name for name in known if name not in {"objective", "shape"}]
    names: list[str] = []
    keywords: dict[str, Any] = {}
    for part in text.partition(":")[2].split(","):
        key, equals, value = part.partition("=")
        try:
            keywords |= {key: ast.literal_eval(value)} if equals else {}
            names += [] if equals else [part]
        except (SyntaxError, ValueError):
            keywords[key] = None
        if equals and not (key in known and isinstance(keywords[key], int | float)):
            raise OptionError(f"{text}: {part!r} is not KEY=NUMBER with a key of {', '.join(known)}.")
    if len(names) != count:
        raise OptionError(f"{text} needs {count} name{'' if count == 1 else 's'} and has {len(names)}: {hint}.")
    return names, keywords
