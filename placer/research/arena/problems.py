"""The problems of a comparison, made from targets, graphs, plans and families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from placer.errors import OptionError
from placer.graph.op_graph import OpGraph
from placer.options import Options
from placer.plan.placement import Placement
from placer.problem.memory import peaks
from placer.problem.problem import PlacementProblem
from placer.research.arena.own_targets import own_problem, takes_signature
from placer.research.arena.records import Record
from placer.research.formats.problem_file import fingerprint
from placer.research.instances.instance import Instance
from placer.solvers.primitives.graph_cut import minimum_cut
from placer.solvers.primitives.one_kind import all_on
from placer.verbs.problem import problem_of as problem_of_graph
from placer.verbs.read_target import of_plan, read_target


def named_problems(
    problems: Mapping[str, Any] | Iterable[str],
    given: Mapping[str, Any],
    *,
    signature: str | None = None,
    memory_share: float | None = None,
    data: str | Path | None = None,
) -> dict[str, PlacementProblem | Instance]:
    """The problems by name.

    Args:
        problems: targets (see `problem_of`); or a mapping from names to targets, graphs, plans and problems.
        given: options as keywords. They replace those that come with a target.
        signature: of the targets that are functions or SavedModels.
        memory_share: see `with_memory_share`; None for the limits of the problems.
        data: the folder of published instances.

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
    if signature is not None and not any(takes_signature(problem) for problem in by_name.values()):
        raise OptionError(f"--signature is for functions and SavedModels; {', '.join(map(str, by_name))} need none.")
    problem_by_name = {
        str(name): problem_of(problem, given, signature if takes_signature(problem) else None, data)
        for name, problem in by_name.items()
    }
    if memory_share is None:
        return problem_by_name
    return {name: with_memory_share(problem, memory_share) for name, problem in problem_by_name.items()}


def problem_of(
    problem: Any, given: Mapping[str, Any], signature: str | None = None, data: str | Path | None = None
) -> PlacementProblem | Instance:
    """The problem itself, or the problem that options make of a graph, of the graph of a plan, or of a target.

    A target is one of

    - a graph, see `placer.verbs.read_target.read_target`;
    - a problem, see `placer.research.arena.own_targets.own_problem`.

    Raises:
        OptionError: there is no such target, or an option cannot be used.
        PlanError: a file is broken.
        TraceError: a function cannot be traced.
    """
    if isinstance(problem, PlacementProblem | Instance):
        return problem
    options = Options()
    if isinstance(problem, str) and (own := own_problem(problem, given, data)) is not None:
        return own
    if isinstance(problem, str):
        problem, options = read_target(problem, signature, given)
    elif isinstance(problem, Placement):
        problem, options = of_plan(problem)
    if not isinstance(problem, OpGraph):
        raise OptionError(
            f"{problem!r} is not a problem: give a target, an OpGraph, a Placement, a PlacementProblem or an Instance."
        )
    options = replace(options, **given)
    if options.devices is None:
        from placer.tf.run.starting import start

        start()
    return problem_of_graph(problem, options)


def described(name: str, problem: PlacementProblem | Instance, objective: str) -> Record:
    """The fields of a record that describe the problem."""
    if isinstance(problem, Instance):
        return {"problem": name, **problem.described()}
    limits = zip(problem.devices.names, problem.devices.memory_limit_bytes.tolist(), strict=True)
    return {
        "problem": name,
        "problem_hash": fingerprint(problem),
        "ops": problem.num_ops,
        "units": problem.num_units,
        "devices": " ".join(problem.devices.names),
        **{f"limit_bytes.{device}": limit for device, limit in limits if limit >= 0},
        "objective": objective,
    }


def with_memory_share(problem: PlacementProblem | Instance, share: float) -> PlacementProblem:
    """The problem with memory limits that bind: each accelerator has its least peak plus a share of what it would use beyond it.

    The least peak is that with every unit on the CPU that can be there. What an accelerator would use is the peak of the first
    accelerator in the minimum cut between the CPU and it, without limits. Peaks count the lifetimes of tensors.

    Raises OptionError if the share is not from 0 to 1, if there is no accelerator, or for an `Instance`.
    """
    if isinstance(problem, Instance):
        raise OptionError("memory_share is for placement problems; a split or pairwise problem has its own limits.")
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
