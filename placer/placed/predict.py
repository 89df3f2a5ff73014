"""Predicted and measured step times of a function under several placements."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from placer.common.progress import progress
from placer.common.tables import table
from placer.common.units import check_seconds, format_ns
from placer.errors import InfeasibleError, PlacementWarning, PlacerError
from placer.options import Options
from placer.placed.function import PlacedFunction
from placer.placed.lost_workers import names_lost_workers
from placer.plan.call_plan import CallPlan
from placer.plan.parts import BASELINE_NAMES
from placer.problem.problem import Assignment, PlacementProblem
from placer.verbs.solve import solve

if TYPE_CHECKING:
    from placer.placed.signature import Prepared
    from placer.placed.signatures import Signatures
    from placer.plan.placement import Placement

DEFAULT = BASELINE_NAMES["tf_default"]
PLAN = "this plan"
RANDOM_CUTS = 3
"""Number of random placements that are measured."""
MAX_ROUNDS = 15
"""Limit of the number of rounds, in each of which every placement runs up to a hundred times."""
ROUND_S = 0.1
"""How long each placement runs in one round."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Step times of a function under one placement."""

    predicted_ns: int
    measured_ns: int
    """Median over rounds of the mean step time of a round."""
    spread: float
    """Interquartile range over rounds, as a share of the median."""

    @classmethod
    def of(cls, predicted_ns: int, rounds_s: Sequence[float]) -> Trial:
        low, median, high = np.percentile(rounds_s, (25, 50, 75))
        return cls(predicted_ns, round(1e9 * float(median)), float((high - low) / median))

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.2 if it is 20% too long."""
        return self.predicted_ns / self.measured_ns - 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted and measured step times of a function."""

    function: str
    machine: str
    trials: Mapping[str, Trial]
    """By name of the placement."""
    skipped: Mapping[str, str]
    """Why a placement was not run, by its name."""
    notes: Sequence[str]
    """Assumptions of all predictions, such as how often a loop runs."""

    @property
    def median_error(self) -> float:
        """Median of the errors' absolute values."""
        return float(np.median([abs(trial.error) for trial in self.trials.values()]))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        trials = {name: {**asdict(trial), "error": trial.error} for name, trial in self.trials.items()}
        return {**asdict(self), "trials": trials, "median_error": self.median_error}

    def __str__(self) -> str:
        rows = [
            [name, format_ns(trial.predicted_ns), format_ns(trial.measured_ns), f"±{trial.spread / 2:.0%}", f"{trial.error:+.0%}"]
            for name, trial in self.trials.items()
        ]
        lines = [
            f"{self.function} on {self.machine}: a step",
            table(["placement", "predicted", "measured", "", "error"], rows),
            f"median error {self.median_error:.0%}",
        ]
        names_by_reason: dict[str, list[str]] = {}
        for name, reason in self.skipped.items():
            names_by_reason.setdefault(reason, []).append(name)
        lines += [f"not run: {', '.join(names)}: {reason}" for reason, names in names_by_reason.items()]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def predict(
    fn: Callable[..., Any], *args: Any, budget_s: float = 30.0, options: Options | None = None, **given: Any
) -> Prediction:
    """Runs a function on the devices of this process under several placements, and compares with their predicted step times.

    The placements are TensorFlow's default, everything on one kind of device, the plan, and a few random cuts. Equal placements
    run once. Variables that the options let move do so first, and stay there in all placements.
    The function runs for real, up to `MAX_ROUNDS` times a hundred for each placement. Its variables are put back afterwards; its
    other side effects are not undone.

    Args:
        fn: a callable, a tf.function or a placed function, whose options are used if none are given.
        *args: arguments of the calls.
        budget_s: about how long to measure, in seconds; planning and first calls take additional time.
        options: of the plan, as one object, or
        **given: its fields as keywords.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.
        PlanError: the function is left as it is.
        PlacerError: the function fails under all placements, or in repeated calls; or a worker fails.
    """
    check_seconds("budget_s", budget_s)
    plain, own = (fn.__wrapped__, fn.options) if isinstance(fn, PlacedFunction) else (fn, Options())
    chosen = options or (Options.of(given) if given else own)
    if chosen.variables == "move":
        PlacedFunction(plain, chosen).prepare(*args)
    chosen = replace(chosen, variables="fixed")  # what is compared needs them in one place
    placed = PlacedFunction(plain, chosen)
    with progress("planning"):
        prepared = placed.prepare(*args)
    trials, skipped = _measured(placed.signatures, prepared, args, budget_s)
    return Prediction(prepared.signature.function, prepared.plan.machine, trials, skipped, prepared.plan.graph.notes)


@names_lost_workers
def _measured(
    signatures: Signatures, prepared: Prepared, args: tuple[Any, ...], budget_s: float
) -> tuple[dict[str, Trial], dict[str, str]]:
    """A trial for each placement that runs, and why the others do not, both by name of the placement."""
    from placer.tf.run.timing import blocking_step, restored_variables, time_in_turns, warm_up

    placements: dict[str, Placement] = {}
    steps: dict[str, Callable[[], None]] = {}
    skipped: dict[str, str] = {}
    with progress("predicting and measuring") as stage, restored_variables(prepared.concrete, args), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlacementWarning)  # the plan gave them already
        for name, placement in _placements(prepared.plan, signatures.options):
            stage.at(0, name)
            if isinstance(placement, str):
                skipped[name] = placement
                continue
            equal = next((n for n, known in placements.items() if _devices(known) == _devices(placement)), "")
            if equal and name != PLAN:
                skipped[name] = f"the same as {equal}"
                continue
            assert prepared.trace is not None
            run = prepared.concrete if name == DEFAULT else signatures.rewritten(prepared, prepared.trace, CallPlan.of(placement))
            step = blocking_step(run, args)
            if reason := warm_up(step):
                skipped[name] = reason
            else:
                placements[name], steps[name] = placement, step
        if not steps:
            raise PlacerError(f"{prepared.signature.function} cannot be run: {skipped[DEFAULT]}")
        started = time.monotonic()
        rounds_s = time_in_turns(
            steps,
            budget_s,
            rounds=MAX_ROUNDS,
            round_s=ROUND_S,
            report=lambda name: stage.at((time.monotonic() - started) / budget_s, name),
        )
    return {name: Trial.of(placement.step_time_ns, rounds_s[name]) for name, placement in placements.items()}, skipped


def _placements(plan: Placement, options: Options) -> Iterator[tuple[str, Placement | str]]:
    """The placements to run by name; instead of one that cannot be made, why not."""
    yield DEFAULT, solve(plan.graph, options=replace(options, solver="tf_default", pins={}, memory_limits={}))
    yield PLAN, plan
    rules: dict[str, Any] = {BASELINE_NAMES[rule]: rule for rule in ("all_cpu", "all_gpu") if rule in plan.baselines}
    rules |= {f"random cut {seed + 1}": partial(random_cut, seed=seed) for seed in range(RANDOM_CUTS)}
    for name, rule in rules.items():
        try:
            yield name, solve(plan.graph, options=replace(options, solver=rule))
        except InfeasibleError as error:
            yield name, str(error)


def _devices(placement: Placement) -> list[str]:
    return [op.device for op in placement.ops.values()]


def random_cut(problem: PlacementProblem, seed: int) -> Assignment:
    """The ops in order, cut at one to three random places. Each piece is on another device than the one before, where allowed."""
    rng = np.random.default_rng(seed)
    first = np.full(len(problem.units.allowed), problem.num_ops)
    np.minimum.at(first, problem.ops.unit, np.arange(problem.num_ops))
    cuts = np.sort(rng.integers(0, max(1, problem.num_ops), size=rng.integers(1, 4)))
    wanted = (np.searchsorted(cuts, first) + rng.integers(problem.num_devices)) % problem.num_devices
    allowed = problem.units.allowed
    return Assignment(np.where(allowed[np.arange(len(first)), wanted], wanted, allowed.argmax(axis=1)))
