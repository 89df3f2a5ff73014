"""Prediction beside reality: a function run under several placements, and how far the predicted step times are off."""

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
from placer.placed.function import PlacedFunction, apply
from placer.problem.problem import Assignment, PlacementProblem
from placer.verbs.solve import solve
from placer.views.words import BASELINE_NAMES

if TYPE_CHECKING:
    from placer.plan.placement import Placement

DEFAULT, PLAN = BASELINE_NAMES["tf_default"], "this plan"
RANDOM_CUTS = 3
ROUNDS, ROUND_S = 15, 0.1


@dataclass(frozen=True, slots=True)
class Trial:
    """A function under one placement."""

    predicted_ns: int
    measured_ns: int
    """The median over rounds of the mean step of a round."""
    spread: float
    """Half of the rounds lie in a band so wide, as a share of the median."""

    @classmethod
    def of(cls, predicted_ns: int, rounds_s: Sequence[float]) -> Trial:
        low, median, high = np.percentile(rounds_s, (25, 50, 75))
        return cls(predicted_ns, round(1e9 * float(median)), float((high - low) / median))

    @property
    def error(self) -> float:
        """The prediction's: 0.2 where it is 20% too long."""
        return self.predicted_ns / self.measured_ns - 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted and measured step times of a function."""

    function: str
    machine: str
    trials: Mapping[str, Trial]
    """By placement."""
    skipped: Mapping[str, str]
    """By placement, why it was not run."""
    notes: Sequence[str]
    """What all predictions take for granted, such as how often a loop runs."""

    @property
    def median_error(self) -> float:
        """Of the errors' sizes."""
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
        names: dict[str, list[str]] = {}
        for name, why in self.skipped.items():
            names.setdefault(why, []).append(name)
        lines += [f"not run: {', '.join(some)}: {why}" for why, some in names.items()]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def predict(
    fn: Callable[..., Any], *args: Any, budget_s: float = 30.0, options: Options | None = None, **given: Any
) -> Prediction:
    """Runs a function on what is here under several placements, and compares with what is predicted of each.

    They are TensorFlow's default, everything on one kind of device, the plan, and a few random cuts; equal ones run once.
    Variables that the options let move do so first, and are then where they are in all of them.
    The function runs for real, up to `ROUNDS` times a hundred for each: its variables are put back afterwards, whatever else it
    does stays done.

    Args:
        fn: a callable, a tf.function or a placed function, whose options count where none are given.
        *args: of the calls.
        budget_s: how long to measure, about; planning and first calls come on top.
        options: of the plan as one object, or
        **given: its fields as keywords.

    Raises:
        OptionError: an unknown option, or a value that cannot be used.
        PlanError: the function is left as it is.
        PlacerError: it fails under all placements, or when it is called again and again.
    """
    check_seconds("budget_s", budget_s)
    plain, own = (fn.__wrapped__, fn.options) if isinstance(fn, PlacedFunction) else (fn, Options())
    chosen = options or (Options.of(given) if given else own)
    from placer.tf.run.timing import blocking_step, restored_variables, time_in_turns, warm_up

    if chosen.variables == "move":  # before the first run; the placements that take turns leave them there
        PlacedFunction(plain, chosen)._prepared(args, {}, None)
        chosen = replace(chosen, variables="fixed")
    placed = PlacedFunction(plain, chosen)
    with progress("planning"):
        plan = placed.plan(*args)
        concrete = placed._prepared(args, {}, None).concrete
    trials: dict[str, Placement] = {}
    steps: dict[str, Callable[[], None]] = {}
    skipped: dict[str, str] = {}
    with progress("predicting and measuring") as stage, restored_variables(concrete, args), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlacementWarning)  # they have been told of the plan
        for name, placement in _placements(plan, chosen):
            stage.at(0, name)
            if isinstance(placement, str):
                skipped[name] = placement
            elif name != PLAN and (
                same := next((n for n, known in trials.items() if _devices(known) == _devices(placement)), "")
            ):
                skipped[name] = f"the same as {same}"
            else:
                run = concrete if name == DEFAULT else apply(plain, placement)._prepared(args, {}, None).run
                step = blocking_step(run, args)
                if why := warm_up(step):
                    skipped[name] = why
                else:
                    trials[name], steps[name] = placement, step
        if not steps:
            raise PlacerError(f"{placed.__name__} cannot be run: {skipped[DEFAULT]}")
        started = time.monotonic()
        took = time_in_turns(
            steps,
            budget_s,
            rounds=ROUNDS,
            round_s=ROUND_S,
            report=lambda name: stage.at((time.monotonic() - started) / budget_s, name),
        )
    found = {name: Trial.of(placement.step_time_ns, took[name]) for name, placement in trials.items()}
    return Prediction(placed.__name__, plan.machine, found, skipped, plan.graph.notes)


def _placements(plan: Placement, options: Options) -> Iterator[tuple[str, Placement | str]]:
    """What to run, or why it cannot be."""
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
    """The ops in order, cut at one to three places, each piece on another device than the one before, where it may be there."""
    rng = np.random.default_rng(seed)
    first = np.full(len(problem.units.allowed), problem.num_ops)
    np.minimum.at(first, problem.ops.unit, np.arange(problem.num_ops))
    cuts = np.sort(rng.integers(0, max(1, problem.num_ops), size=rng.integers(1, 4)))
    wanted = (np.searchsorted(cuts, first) + rng.integers(problem.num_devices)) % problem.num_devices
    allowed = problem.units.allowed
    return Assignment(np.where(allowed[np.arange(len(first)), wanted], wanted, allowed.argmax(axis=1)))
