"""Solves one problem that is no graph, for `placer solve`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placer.common.gap import relative_gap
from placer.common.json_files import write_json
from placer.common.units import format_bytes, format_ns
from placer.errors import InfeasibleError, OptionError, PlacerError
from placer.options import OF_A_RUN, Options
from placer.problem.problem import PlacementProblem
from placer.research.arena.instance_run import run_on_instance
from placer.research.arena.judge import judged
from placer.research.arena.placement_run import run_on_placement
from placer.research.arena.problems import described
from placer.research.arena.records import Limit, Record
from placer.research.instances.instance import Instance
from placer.research.instances.solvers import INSTANCE_SOLVERS
from placer.solvers.registry import named_object

FORMAT = "placer.answer"
VERSION = 1
FOR_PROBLEMS = (*OF_A_RUN, "objective", "devices")
"""The options that apply to a problem that is no graph."""


def solve_own(target: str, problem: PlacementProblem | Instance, given: Mapping[str, Any]) -> Record:
    """Solves a problem and checks the answer.

    Args:
        target: the name of the problem.
        problem: the problem of the target.
        given: options as keywords.

    Returns:
        A record with the fields of `docs/arena.md`.

    Raises:
        OptionError: an option does not apply to such a problem, or the solver cannot solve it.
        InfeasibleError: no answer meets the limits, or none was found in time.
        PlacerError: the solver gave an answer that does not hold.
    """
    if wrong := [name for name in given if name not in FOR_PROBLEMS]:
        raise OptionError(f"{wrong[0]} is for graphs; {target} is a problem with its own limits and costs.")
    options = Options.of(given)
    record = described(target, problem, options.objective) | judged(problem, options.objective, _claims(problem, options))
    if record["outcome"] == "declined":
        raise OptionError(f"solver {options.solver!r} cannot take {target}: {record['note']}.")
    if record["outcome"] == "failed":
        raise PlacerError(f"solver {record['solver']!r} gave an answer to {target} that does not hold: {record['note']}.")
    if not record["feasible"]:
        raise InfeasibleError(f"{target} has no answer from solver {record['solver']!r}: {record['note']}.")
    return record


def _claims(problem: PlacementProblem | Instance, options: Options) -> Record:
    limits = {"time_limit_s": options.time_limit_s, "effort": options.effort}
    limit: Limit = {name: value for name, value in limits.items() if value is not None}
    if isinstance(problem, PlacementProblem):
        claims, name = run_on_placement(options.solver, problem, options.objective, limit, options.seed)
        return {"solver": name} | claims
    chosen: Any = options.solver
    if chosen == "auto":
        chosen = next(name for name, found in INSTANCE_SOLVERS.items() if not found.unsupported(problem))
    elif isinstance(chosen, str) and ":" in chosen:
        chosen = named_object(chosen)
    return {"solver": getattr(chosen, "__name__", str(chosen))} | run_on_instance(chosen, problem, limit, options.seed)


def summary(record: Record) -> str:
    """A record as text."""
    value = (lambda cost: f"{cost:,}") if record["objective"] == "cost" else format_ns
    gap = relative_gap(record["objective_ns"], record["lower_bound_ns"])
    bound = f"bound {value(record['lower_bound_ns'])}, gap {gap:.2%}" if record["lower_bound_ns"] else "no bound"
    name = record["objective"].replace("_", " ")
    others = [f"{other} {format_ns(record[f'{other}_ns'])}" for other in ("step_time", "total_cost", "max_load", "latency")
              if f"{other}_ns" in record and other != record["objective"]]  # fmt: skip
    peaks = [f"{key.partition('.')[2]} holds {format_bytes(value)} at its peak" for key, value in record.items()
             if key.startswith("peak_bytes.")]  # fmt: skip
    lines = [
        f"{record['problem']}: {record['ops']} ops in {record['units']} units on {', '.join(record['devices'].split())}",
        f"{name} {value(record['objective_ns'])}, {bound}: {record['status']} by {record['solver']} in {record['seconds']:.1f} s",
        f"search stopped: {record['note']}",
        *(other.replace("_", " ") for other in others),
        *peaks,
    ]
    return "\n".join(lines)


def save_answer(problem: PlacementProblem | Instance, record: Record, path: Path) -> None:
    """Writes a record to a JSON file, with the device of each op for a placement problem. Raises PlanError if it cannot."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "record": record}
    if isinstance(problem, PlacementProblem):
        device = [int(d) for d in record["assignment"].split()]
        names = problem.devices.names
        units = zip(problem.ops.names, problem.ops.unit.tolist(), strict=True)
        content["device_of_op"] = {name: names[device[unit]] for name, unit in units}
    write_json(path, content)
