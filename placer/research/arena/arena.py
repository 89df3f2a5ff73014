"""Runs every solver on every problem with every seed, each in a process of its own; recorded runs are not repeated."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cost_models.host_cores import usable_cores
from placer import __version__
from placer.common.progress import progress
from placer.common.units import check_seconds
from placer.errors import OptionError
from placer.options import OF_A_RUN, Options, check_effort
from placer.problem.problem import PlacementProblem
from placer.research.arena.comparison import Comparison
from placer.research.arena.judge import judged
from placer.research.arena.problems import described, named_problems
from placer.research.arena.records import Limit, Record, add_line, key, limit_text, open_lines, read_lines
from placer.research.arena.solver_code import digest
from placer.research.arena.worker import Job
from placer.research.instances.instance import Instance
from placer.research.instances.solvers import INSTANCE_SOLVERS, InstanceSolver, instance_solver
from placer.solvers.base import Solver
from placer.solvers.heuristic import Heuristic, RandomHeuristic, Rule
from placer.solvers.registry import named_object, solver, solvers
from placer.solvers.run import effort_s

RUNNING = ("placer.research.arena.worker", "placer.research.arena.judge")
"""The modules that run a solver and price its answer."""
WORKER = "PLACER_WORKER"
"""The environment variable that is set in the process of a run."""
DEFAULT_LIMIT_S = 10.0
"""The time limit of a run, if there is no other."""
MIN_GRACE_S = 5.0
"""A run is ended at twice its time limit, but at least this long after it."""
MIN_EFFORT_S, MAX_SLOWNESS = 60.0, 50
"""A run by effort is ended after so many seconds, and so many times the seconds that its work takes on a common machine."""


def arena(
    problems: Mapping[str, Any] | Iterable[str],
    solvers: Iterable[str | Solver | InstanceSolver | Rule] | None = None,
    *,
    seeds: Iterable[int] = (0,),
    time_limits_s: Iterable[float] | None = None,
    efforts: Iterable[int] | None = None,
    results: str | Path | None = None,
    jobs: int | None = None,
    signature: str | None = None,
    memory_share: float | None = None,
    data: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Runs every solver on every problem with every seed and limit.

    Each run is a process of its own that does not load TensorFlow. A solver that crashes, runs for too long or declines gives a
    record that says so. The package prices and checks every answer itself; it takes no figure from the solver.

    Args:
        problems: targets as on the command line; or a mapping from names to targets, graphs, plans and problems.
        solvers: registered names, solvers, or functions from a problem, or from a problem and a `numpy.random.Generator`, to an
            assignment; by default all registered solvers for problems of the kind.
        seeds: of the solvers. A function without a generator ignores seeds and runs once.
        time_limits_s: seconds that a solver may search. Each limit is a run of its own; several show the gap over time. 10 s by
            default, if there are no efforts.
        efforts: evaluations that a solver may make, see `placer.solvers.run.run`; such runs are equal on every machine.
        results: a file to which each record is added when its run ends. Runs that the file has already are not repeated.
        jobs: number of runs at a time; half of the processors by default, because runs slow each other down.
        signature: of targets that are functions or SavedModels.
        memory_share: limits the memory of each accelerator, see `placer.research.arena.problems.with_memory_share`.
        data: the folder of published instances, see `placer.research.instances.published`.
        **options: options of the problems, as for `placer.solve`.

    Raises:
        OptionError: an option, a target or a solver cannot be used.
        PlanError: the file of results has another format, or cannot be written.
        TraceError: a function cannot be traced.
    """
    if WORKER in os.environ:
        raise OptionError('arena runs this file again for a solver that it defines: call arena under if __name__ == "__main__":.')
    for name in OF_A_RUN:
        if name in options:
            lists = "solvers, seeds, time_limits_s and efforts"
            raise OptionError(f"{name}={options[name]!r} is for one run: give arena the lists {lists}.")
    chosen = None if solvers is None else [_Contestant.of(one) for one in _as_list("solvers", solvers)]
    seeds = [Options(seed=seed).seed for seed in _as_list("seeds", seeds)]
    limits = _limits(time_limits_s, efforts)
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise OptionError(f"jobs={jobs!r} is not a whole number of at least 1.")
    objective = Options.of(options).objective
    recorded = read_lines(results) if results is not None else []

    with tempfile.TemporaryDirectory(prefix="placer-") as folder:
        runs: dict[tuple[Any, ...], tuple[Record, Job, PlacementProblem | Instance]] = {}
        named = named_problems(problems, options, signature=signature, memory_share=memory_share, data=data)
        if results is not None:
            open_lines(results)  # only now, so that a call that is refused leaves no file
        for k, (name, problem) in enumerate(named.items()):
            shared, file = described(name, problem, objective), Path(folder, f"{k}.problem")
            file.write_bytes(pickle.dumps(problem))
            contestants = [_Contestant.of(one) for one in _registered(problem)] if chosen is None else chosen
            for one, limit in itertools.product(contestants, limits):
                for seed in seeds[:1] if one.rule else seeds:
                    record = shared | one.described | {"seed": seed, **limit, "placer": __version__}
                    figures = Path(folder, f"{len(runs)}.json")
                    job = Job(file, one.pickled, one.script, objective, seed, limit, _ends_after_s(problem, limit), figures)
                    runs.setdefault(key(record), (record, job, problem))
        done = {key(record): record for record in recorded}
        new = {identity: run for identity, run in runs.items() if identity not in done}
        with progress(f"{len(new)} runs") as stage, ThreadPoolExecutor(jobs or max(1, usable_cores() // 2)) as pool:
            futures = {pool.submit(_run, job, problem): record for record, job, problem in new.values()}
            try:
                for count, future in enumerate(as_completed(futures), 1):
                    record = futures[future] | future.result()
                    done[key(record)] = record
                    if results is not None:
                        add_line(results, record)
                    stage.at(count / len(new), f"{record['solver']} on {record['problem']}: {record['outcome']}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    wanted = [done[identity] | {"problem": record["problem"]} for identity, (record, *_) in runs.items()]
    return Comparison(wanted, [record for record in recorded if key(record) not in runs])


def _run(job: Job, problem: PlacementProblem | Instance) -> Record:
    """The outcome and the figures of one run. The problem is that of the job, for the price of its answer."""
    file = job.figures.with_suffix(".job")
    file.write_bytes(pickle.dumps(job))
    code = "import sys; from placer.research.arena.worker import work; work(sys.argv[1])"
    environment = os.environ | {WORKER: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, str(file)]
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if job.figures.exists():
        return judged(problem, job.objective, json.loads(job.figures.read_text()))
    if ended.returncode == -signal.SIGALRM:
        kind = "time limit" if "time_limit_s" in job.limit else "limit"
        note = f"ended after {job.ends_after_s:g} s, over its {kind} of {limit_text(job.limit)}"
        return {"outcome": "overran", "note": note}
    how = f"exit code {ended.returncode}" if ended.returncode >= 0 else signal.Signals(-ended.returncode).name
    lines = ended.stderr.strip().splitlines()
    return {"outcome": "crashed", "note": ": ".join([how, *lines[-1:]])}


def _limits(time_limits_s: Iterable[float] | None, efforts: Iterable[int] | None) -> list[Limit]:
    """The limits of the runs. Raises OptionError if one is none."""
    if time_limits_s is None:
        time_limits_s = [] if efforts is not None else [DEFAULT_LIMIT_S]
    else:
        time_limits_s = _as_list("time_limits_s", time_limits_s)
    limits: list[Limit] = [{"time_limit_s": check_seconds("time_limits_s", limit)} for limit in time_limits_s]
    counts = [] if efforts is None else _as_list("efforts", efforts)
    limits.extend({"effort": check_effort("efforts", effort)} for effort in counts)
    return limits


def _ends_after_s(problem: PlacementProblem | Instance, limit: Limit) -> float:
    """The real seconds after which a run is ended."""
    if "time_limit_s" in limit:
        return limit["time_limit_s"] + max(limit["time_limit_s"], MIN_GRACE_S)
    counted_s = effort_s(problem, int(limit["effort"])) if isinstance(problem, PlacementProblem) else 0.0
    return MAX_SLOWNESS * counted_s + MIN_EFFORT_S


def _as_list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable) or not (listed := list(values)):
        raise OptionError(f"{name}={values!r} must be a list with at least one element.")
    return listed


def _registered(problem: PlacementProblem | Instance) -> list[str]:
    """The names of the registered solvers for problems of this kind."""
    if isinstance(problem, Instance):
        return [name for name, found in INSTANCE_SOLVERS.items() if not found.unsupported(problem)]
    return list(solvers())


@dataclass(frozen=True)
class _Contestant:
    """A solver as a record describes it, and as another process gets it."""

    described: Record
    """The fields of a record that describe the solver."""
    pickled: bytes
    """The solver, or its name."""
    script: str
    """The program that runs now, if it defines the solver; else \"\"."""
    rule: bool
    """Whether it is a plain rule, which ignores seeds."""

    @classmethod
    def of(cls, given: str | Solver | InstanceSolver | Rule) -> _Contestant:
        given = named_object(given) if isinstance(given, str) and ":" in given else given
        chosen = given if isinstance(given, InstanceSolver) else instance_solver(given) or solver(given)
        parts = [part for part in (given, chosen, *_fields(chosen).values()) if callable(part) or part is chosen]
        script = ""
        if any(_module(part) == "__main__" for part in parts):
            script = str(getattr(sys.modules["__main__"], "__file__", ""))
            if not script:
                raise OptionError(
                    f"solver {chosen.name!r} is not defined in a file, so no other process can load it: put it in a file."
                )
        try:
            pickled = pickle.dumps(given)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise OptionError(
                f"solver {chosen.name!r} cannot be sent to another process ({error}): define it at the top level of a module."
            ) from error
        described = {
            "solver": chosen.name,
            "options": _options(chosen),
            "code": _code_and_state({*RUNNING, *map(_module, parts)}, pickled),
        }
        return cls(described, pickled, script, isinstance(chosen, Heuristic))


def _code_and_state(modules: set[str], pickled: bytes) -> str:
    """The start of a SHA-256 of the code of modules, and of what a pickled solver holds, such as the weights of a policy."""
    return hashlib.sha256(digest(modules).encode() + pickled).hexdigest()[:12]


def _fields(chosen: Any) -> dict[str, Any]:
    return {f.name: getattr(chosen, f.name) for f in fields(chosen)} if is_dataclass(chosen) else {}


def _options(chosen: Any) -> str:
    """The options that differ from their defaults, as "key=value, …"."""
    if not is_dataclass(chosen) or isinstance(chosen, Heuristic | RandomHeuristic):
        return ""
    default = {f.name: f.default_factory() if f.default_factory is not MISSING else f.default for f in fields(chosen)}
    return ", ".join(f"{name}={value!r}" for name, value in _fields(chosen).items() if name != "name" and value != default[name])


def _module(part: Any) -> str:
    while isinstance(part, partial):
        part = part.func
    return str(getattr(part, "__module__", "") or type(part).__module__)
