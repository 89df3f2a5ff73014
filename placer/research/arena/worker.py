"""One run of one solver. Its process ends itself when its time is over, whatever the solver does."""

from __future__ import annotations

import json
import pickle
import runpy
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placer.research.arena.records import Limit
    from placer.solvers.base import Objective

MAX_START_S = 60.0
"""How long the program that defines a solver may take to load."""
WARM_UP_S = 0.01
"""Time limit of the run that loads the modules of a solver before the measured run."""


@dataclass(frozen=True)
class Job:
    """A run, and the file for its outcome and figures."""

    problem: Path
    """A pickled PlacementProblem."""
    solver: bytes
    """Pickled: a registered name, or a solver."""
    script: str
    """The user's program if it defines the solver, else ""."""
    objective: Objective
    seed: int
    limit: Limit
    ends_after_s: float
    """Seconds after which the process ends itself."""
    figures: Path


def work(path: str) -> None:
    """Runs the `Job` that is pickled in a file, and writes its outcome and figures as JSON."""
    job: Job = pickle.loads(Path(path).read_bytes())
    signal.setitimer(signal.ITIMER_REAL, MAX_START_S)  # the default action of the signal ends the process
    if job.script:
        sys.modules["__main__"].__dict__.update(runpy.run_path(job.script, run_name="__worker__"))
    figures = claims_of(job)
    written = job.figures.with_suffix(".part")
    written.write_text(json.dumps(figures))
    written.replace(job.figures)


def claims_of(job: Job) -> dict[str, Any]:
    """The outcome of a run, what the solver claims, and its assignment; see `placer.research.arena.judge`."""
    from placer.research.arena.instance_run import run_on_instance
    from placer.research.arena.placement_run import run_on_placement
    from placer.research.instances.families import synthetic
    from placer.research.instances.instance import Instance

    problem = pickle.loads(job.problem.read_bytes())
    signal.setitimer(signal.ITIMER_REAL, job.ends_after_s)
    try:
        given = pickle.loads(job.solver)
        if isinstance(problem, Instance):
            return run_on_instance(given, problem, job.limit, job.seed)
        tiny: Limit = {"time_limit_s": WARM_UP_S}
        with suppress(Exception):  # loads modules that are needed first here; loading is not planning
            run_on_placement(given, synthetic("chain", ops=4), job.objective, tiny, job.seed)
        return run_on_placement(given, problem, job.objective, job.limit, job.seed)[0]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
        return {"outcome": "failed", "note": note}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
