"""The problems of a comparison, made from targets, graphs, plans and families."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from placer.common.json_files import read_json
from placer.errors import OptionError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.placement import Placement
from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.research.arena.adversary import adversarial
from placer.research.arena.problem_file import load_problem
from placer.research.instances.dnn_partitioning import load_placement
from placer.research.instances.families import SHAPES, synthetic
from placer.research.instances.task_graphs import SHAPES as TASK_GRAPHS
from placer.research.instances.task_graphs import task_graph
from placer.solvers.base import Objective
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.one_kind import all_on
from placer.verbs.problem import problem_of as problem_of_graph
from placer.verbs.read_target import of_plan, read_target

FAMILY, ADVERSARIAL = "family:", "adversarial:"


def named_problems(
    problems: Mapping[str, Any] | Iterable[str],
    given: Mapping[str, Any],
    *,
    signature: str | None = None,
    memory_share: float | None = None,
) -> dict[str, PlacementProblem]:
    """The problems by name.

    Args:
        problems: targets (see `problem_of`); or a mapping from names to targets, graphs, plans and problems.
        given: options as keywords. They replace those that come with a target.
        signature: of targets that are functions or SavedModels.
        memory_share: see `with_memory_share`; None for the limits of the problems.

    Raises:
        OptionError: there is no such target, or an option cannot be used.
        PlanError: a file is broken.
        TraceError: a function cannot be traced.
    """
    if isinstance(problems, str):
        raise OptionError(f"problems={problems!r} is a text: give a list of targets, or a mapping from names to problems.")
    by_name = problems if isinstance(problems, Mapping) else {target: target for target in problems}
    if not by_name:
        raise OptionError("there is no problem to compare on: give at least one target.")
    if memory_share is not None and given.get("memory_limits"):
        raise OptionError("memory_share and memory_limits both limit the memory of devices: give one of them.")
    problem_by_name = {str(name): problem_of(problem, given, signature) for name, problem in by_name.items()}
    if memory_share is None:
        return problem_by_name
    return {name: with_memory_share(problem, memory_share) for name, problem in problem_by_name.items()}


def problem_of(problem: Any, given: Mapping[str, Any], signature: str | None = None) -> PlacementProblem:
    """The problem itself, or the problem that options make of a graph, of the graph of a plan, or of a target.

    A target is one of

    - a target of the command line, see `placer.verbs.read_target.read_target`;
    - ``family:SHAPE,KEY=NUMBER,...``, with the keywords of `synthetic`, or of `task_graph` for a shape of it;
    - ``adversarial:LOSER,WINNER,KEY=NUMBER,...``, with the keywords of `adversarial`;
    - a file of `placer.research.arena.problem_file.save_problem` (``.npz``);
    - a workload of dnn-partitioning (``.json``), half of which fits on the accelerator.

    Raises:
        OptionError: there is no such target, or an option cannot be used.
        PlanError: a file is broken.
        TraceError: a function cannot be traced.
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
        problem, options = read_target(problem, signature, given)
    elif isinstance(problem, Placement):
        problem, options = of_plan(problem)
    if not isinstance(problem, OpGraph):
        raise OptionError(f"{problem!r} is not a problem: give a target, an OpGraph, a Placement or a PlacementProblem.")
    options = replace(options, **given)
    if options.devices is None:
        from placer.tf.run.starting import start

        start()
    return problem_of_graph(problem, options)


def with_memory_share(problem: PlacementProblem, share: float) -> PlacementProblem:
    """The problem with memory limits that bind: each accelerator has its least peak plus a share of what it would use beyond it.

    The least peak is that with every unit on the CPU that can be there. What an accelerator would use is the peak of the first
    accelerator in the minimum cut between the CPU and it, without limits. Peaks count the lifetimes of tensors.

    Raises OptionError if the share is not from 0 to 1, or if there is no accelerator.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"memory_share={share!r} must be from 0 to 1.")
    free = problem.without_memory_limits()
    accelerators = np.flatnonzero(np.array(problem.devices.kinds) != "CPU")
    if not len(accelerators):
        raise OptionError("memory_share is for machines with an accelerator, and this one has none.")
    least = peaks(free, all_on(free, "CPU"))
    first = int(accelerators[0])
    unlimited = peaks(free, minimum_cut(free, (free.devices.host, first)).assignment)[first]
    limits = np.full(problem.num_devices, -1)
    limits[accelerators] = least[accelerators] + int(share * max(0, int(unlimited - least[first])))
    return problem.with_memory_limits(limits)


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
