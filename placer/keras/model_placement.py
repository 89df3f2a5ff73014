"""Where the steps of a model run: `model.placement`."""

from __future__ import annotations

from contextlib import suppress

from placer.common.html import Html, escaped, folded, stacked
from placer.errors import PlanError
from placer.keras.placed_step import ModelStep
from placer.keras.step_race import StepRace
from placer.options import check_choice
from placer.placed.function import PlacedFunction
from placer.plan.placement import Placement
from placer.plan.verdict import Verdict

STEPS = ("train", "test", "predict")
"""The steps of a model: `fit` runs the first, `evaluate` the second, `predict` the third."""


class ModelPlacement:
    """The plans of a model's steps. A step has a plan when it has run a batch by plan."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._steps: dict[str, ModelStep] = {}
        self._races: dict[str, StepRace] = {}

    def __repr__(self) -> str:
        return f"<placement of {self._model!r}>"

    def __str__(self) -> str:
        none = (
            f"{self._model} has no plan yet: fit, evaluate or predict makes one where there are several devices. "
            'With placer.keras.optimize(model, devices="h100") it is for a machine with a GPU.'
        )
        return "\n\n".join(filter(None, map(self._shown, STEPS))) or none

    def _repr_html_(self) -> Html:
        parts: list[str] = []
        for step in STEPS:
            with suppress(PlanError):
                placement = getattr(self, step)
                verdict = self.verdict(step)
                layers = folded("layers", Html(f"<pre>{escaped(str(placement.view('layers')))}</pre>"))
                parts += [*([] if verdict is None else [verdict._repr_html_()]), Html(placement._repr_html_()), layers]
        return stacked(*parts) if parts else escaped(str(self))

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
            OptionError: there is no such step.
            PlanError: the step has run no batch by plan yet.
        """
        check_choice("step", step, STEPS)
        if step not in self._steps:
            raise PlanError(f"the {step} step of {self._model} has no plan yet: it has run no batch by plan")
        return self._steps[step].function()

    def verdict(self, step: str) -> Verdict | None:
        """The measured times of a step by Keras's default and by the plan; None without a race, or before it is over.

        Raises:
            OptionError: there is no such step.
        """
        check_choice("step", step, STEPS)
        return self._races[step].verdict if step in self._races else None

    def set(self, step: str, placed: ModelStep, race: StepRace | None) -> None:
        """Records what runs a step from now on, instead of what ran it before."""
        if step in self._steps:
            self._steps[step].release()
        self._steps[step] = placed
        self._races.pop(step, None)
        if race is not None:
            self._races[step] = race

    def release(self) -> None:
        """Lets later plans move the variables: none of these steps runs any more."""
        for step in self._steps.values():
            step.release()

    def _shown(self, step: str) -> str:
        try:
            placement = getattr(self, step)
        except PlanError:
            return ""
        parts = [placement.summary(), str(placement.view("layers"))]
        if (verdict := self.verdict(step)) is not None:
            parts.insert(0, f"{step}: {verdict}")
        return "\n\n".join(parts)
