"""The problems of a comparison: from targets, graphs, plans and families; what tells one from another; saved and loaded."""

from __future__ import annotations

import ast
import hashlib
import inspect
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from placer.common.json_files import check_format, read_json
from placer.errors import OptionError, PlanError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.placement import Placement
from placer.problem.constraints import constrain
from placer.problem.formulate import formulate
from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.research.arena.adversary import adversarial
from placer.research.instances.dnn_partitioning import load_placement
from placer.research.instances.families import SHAPES, synthetic
from placer.solvers.base import Objective
from placer.solvers.exact.min_cut import minimum_cut
from placer.solvers.heuristics.fixed import all_on
from placer.verbs.read_target import of_plan, read_target
from placer.verbs.solve import look_up

FAMILY, ADVERSARIAL = "family:", "adversarial:"
FORMAT = "placer.problem"
VERSION = 1


def named_problems(
    problems: Mapping[str, Any] | Iterable[str],
    given: Mapping[str, Any],
    *,
    signature: str | None = None,
    memory_share: float | None = None,
) -> dict[str, PlacementProblem]:
    """Each by its name.

    Args:
        problems: targets (see `problem_of`), or by name targets, graphs, plans and problems.
        given: options as keywords, over those that come with a target.
        signature: of targets that are functions or SavedModels.
        memory_share: see `limited`.

    Raises:
        OptionError: there is no such target, or an option cannot be used.
        PlanError: a file is broken.
        TraceError: a function cannot be traced.
    """
    if isinstance(problems, str):
        raise OptionError(f"problems={problems!r} is one text: give a list of targets, or a mapping from names to problems.")
    by_name = problems if isinstance(problems, Mapping) else {target: target for target in problems}
    if not by_name:
        raise OptionError("there is no problem to compare on: give a target at least.")
    if memory_share is not None and given.get("memory_limits"):
        raise OptionError("memory_share and memory_limits both say what devices may hold: give one.")
    found = {str(name): problem_of(problem, given, signature) for name, problem in by_name.items()}
    return found if memory_share is None else {name: limited(problem, memory_share) for name, problem in found.items()}


def problem_of(problem: Any, given: Mapping[str, Any], signature: str | None = None) -> PlacementProblem:
    """A problem itself; or the one that options make of a graph, of a plan's graph, or of what a target names.

    A target is what `placer.verbs.read_target.read_target` reads, ``family:SHAPE,KEY=NUMBER,...`` with keywords of `synthetic`,
    ``adversarial:LOSER,WINNER,KEY=NUMBER,...`` with those of `adversarial`, a problem that `save_problem` wrote (``.npz``), or a
    workload of dnn-partitioning (``.json``), the accelerator holding half of it.
    """
    if isinstance(problem, PlacementProblem):
        return problem
    options = Options()
    if isinstance(problem, str) and problem.startswith(FAMILY):
        return _made_up(problem)
    if isinstance(problem, str) and problem.startswith(ADVERSARIAL):
        return _adversarial(problem, Options.of(given).objective)
    if isinstance(problem, str) and problem.endswith(".npz"):
        return load_problem(problem)
    if isinstance(problem, str) and problem.endswith(".json") and Path(problem).exists() and "maxFPGAs" in read_json(problem):
        return load_placement(problem)
    if isinstance(problem, str):
        problem, options = read_target(problem, signature)
    elif isinstance(problem, Placement):
        problem, options = of_plan(problem)
    if not isinstance(problem, OpGraph):
        raise OptionError(f"{problem!r} is no problem: give a target, an OpGraph, a Placement or a PlacementProblem.")
    options = replace(options, **given)
    machine, model, _ = look_up(options)
    if machine is None:
        from placer.tf.run.starting import start

        start()
        from placer.tf.devices import local_machine

        machine = local_machine()
    return formulate(problem, constrain(problem, machine, options), model, machine, options.memory_limits).problem


def limited(problem: PlacementProblem, share: float) -> PlacementProblem:
    """The problem with limits that bind: each accelerator may hold what it must and a share of what it would like to.

    What it must is what it holds with all that can be there on the CPU; what it would like to is what the first accelerator holds
    in the minimum cut between the CPU and it, without limits. Both are peaks over tensors' lifetimes.

    Raises OptionError where the share is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"memory_share={share!r} is no share from 0 to 1.")
    free = replace(problem, memory_limit_bytes=np.full(problem.devices, -1))
    accelerators = np.flatnonzero(np.array(problem.device_kinds) != "CPU")
    if not len(accelerators):
        raise OptionError("memory_share is for machines with an accelerator, and there is none.")
    must = peaks(free, all_on(free, "CPU"))
    first = int(accelerators[0])
    likes = peaks(free, minimum_cut(free, (free.host, first)).assignment)[first]
    limits = free.memory_limit_bytes
    limits[accelerators] = must[accelerators] + int(share * max(0, int(likes - must[first])))
    return free


def fingerprint(problem: PlacementProblem) -> str:
    """SHA-256 of everything that a problem says."""
    digest = hashlib.sha256()
    for name, value in _given(problem).items():
        digest.update(f"\0{name}\0".encode())
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def save_problem(problem: PlacementProblem, path: str | Path, note: str = "") -> None:
    """Writes a problem to an ``.npz`` file, to be named as a target, with a note of where it comes from.

    Raises PlanError where that cannot be.
    """
    try:
        with Path(path).open("wb") as file:
            np.savez_compressed(file, format=np.array([FORMAT, str(VERSION), note]), **_given(problem))
    except OSError as error:
        raise PlanError(f"{path} cannot be written: {error.strerror}.") from error


def load_problem(path: str | Path) -> PlacementProblem:
    """What `save_problem` wrote. Raises PlanError where the file is missing, something else, or broken."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        kind, version, _ = arrays.pop("format").tolist()
        check_format({"format": kind, "version": int(version)}, FORMAT, VERSION, str(path))
        given: dict[str, Any] = {}
        for name, array in arrays.items():  # numbers have no dimension, names are tuples
            given[name] = int(array) if array.ndim == 0 else tuple(array.tolist()) if array.dtype.kind == "U" else array
        return PlacementProblem(**given)
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise PlanError(f"{path} holds no problem that can be read ({type(error).__name__}: {error}).") from error


def _given(problem: PlacementProblem) -> dict[str, Any]:
    """The fields that are set. What is left at None is left out, so that a field added later changes no fingerprint."""
    return {f.name: value for f in fields(problem) if (value := getattr(problem, f.name)) is not None}


def _made_up(text: str) -> PlacementProblem:
    """The problem of "family:SHAPE,KEY=NUMBER,..."."""
    (shape,), keywords = _arguments(text, 1, synthetic, f"SHAPE is one of {', '.join(SHAPES)}")
    return synthetic(shape, **keywords)


def _adversarial(text: str, objective: Objective) -> PlacementProblem:
    """The problem of "adversarial:LOSER,WINNER,KEY=NUMBER,..."."""
    (loser, winner), keywords = _arguments(text, 2, adversarial, "LOSER and WINNER are registered solvers")
    return adversarial(loser, winner, objective=objective, **keywords).problem


def _arguments(text: str, count: int, function: Callable[..., Any], told: str) -> tuple[list[str], dict[str, Any]]:
    """What "KIND:NAME,...,KEY=NUMBER,..." has: so many names, and keywords of the function. OptionError where it is not so."""
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
        raise OptionError(f"{text} has {len(names)} names where {count} belong{'s' if count == 1 else ''}: {told}.")
    return names, keywords
