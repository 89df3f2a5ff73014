"""Where the steps of a model run: `model.placement`."""

from __future__ import annotations

from placer.common.tables import table
from placer.errors import PlanError
from placer.keras.placed_step import PlacedStep
from placer.keras.step_race import StepRace
from placer.placed.function import PlacedFunction
from placer.plan.placement import Placement
from placer.plan.verdict import Verdict
from placer.views.shared.words import VERDICT_HEAD, end_of_race, verdict_rows

STEPS = ("train", "test", "predict")
"""The steps of a model: `fit` runs the first, `evaluate` the second, `predict` the third."""


class ModelPlacement:
    """The plans of a model's steps. A step has a plan when it has run a batch by plan."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._steps: dict[str, PlacedStep] = {}
        self._races: dict[str, StepRace] = {}

    def __repr__(self) -> str:
        return f"<placement of {self._model!r}>"

    def __str__(self) -> str:
        shown = [self._shown(step) for step in STEPS]
        return "\n\n".join(filter(None, shown)) or f"{self._model} has no plan yet: fit, evaluate or predict makes one."

    @property
    def train(self) -> Placement:
        """The plan of the step that `fit` and `train_on_batch` run. Raises PlanError if there is none yet."""
        return self.function("train").placement

    @property
    def test(self) -> Placement:
        """The plan of the step that `evaluate` and `test_on_batch` run. Raises PlanError if there is none yet."""
        return self.function("test").placement

    @property
    def predict(self) -> Placement:
        """The plan of the step that `predict` and `predict_on_batch` run. Raises PlanError if there is none yet."""
        return self.function("predict").placement

    def function(self, step: str) -> PlacedFunction:
        """The placed function of a step, "train", "test" or "predict", for batches like its latest one.

        Raises:
            PlanError: the step has run no batch by plan yet.
        """
        if step not in self._steps:
            raise PlanError(f"the {step} step of {self._model} has no plan yet: it has run no batch by plan")
        return self._steps[step].function()

    def verdict(self, step: str) -> Verdict | None:
        """What calls of a step took under Keras's default and under the plan; None without a race, or before it is over."""
        return self._races[step].verdict if step in self._races else None

    def set(self, step: str, placed: PlacedStep, race: StepRace | None) -> None:
        """Records what runs a step from now on."""
        self._steps[step] = placed
        self._races.pop(step, None)
        if race is not None:
            self._races[step] = race

    def _shown(self, step: str) -> str:
        try:
            placement = getattr(self, step)
        except PlanError:
            return ""
        lines = [placement.summary(), "", placement.view("layers")]
        if (verdict := self.verdict(step)) is not None:
            lines += ["", table(VERDICT_HEAD, verdict_rows(verdict)), end_of_race(verdict)]
        return "\n".join(map(str, lines))
