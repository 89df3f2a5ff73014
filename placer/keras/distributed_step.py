"""A step of a model under a distribution strategy: a placed function that the strategy's replicas run."""

from __future__ import annotations

from typing import Any

from placer.keras.keras_model import KerasModel
from placer.keras.placed_step import ModelStep
from placer.options import Options
from placer.placed.function import PlacedFunction
from placer.placed.signature import Prepared
from placer.plan.doubt import kind_of


class DistributedStep(ModelStep):
    """Runs a model's step on the batches of all replicas, by the plan of one, and joins the results as Keras does.

    Args:
        model: the Keras model.
        name: of the step, such as "train".
        options: of its plans.
    """

    def __init__(self, model: KerasModel, name: str, options: Options) -> None:
        from placer.tf.run.keras_steps import replica_step

        self._model = model
        self._name = name
        self._function = PlacedFunction(replica_step(model.model, model.step(name), f"{name}_step"), options)
        self._latest: Prepared | None = None
        self._is_latest_left_alone = False

    def function(self) -> PlacedFunction:
        return self._function

    @property
    def is_left_alone(self) -> bool:
        """Whether the latest batch ran where the strategy puts it: unplaced, or by a plan that moves no op."""
        latest = self._function.signatures.latest
        if latest is not None and latest is not self._latest:
            self._latest = latest
            self._is_latest_left_alone = latest.call_plan is None or kind_of(latest.plan) == "default"
        return self._is_latest_left_alone

    def __call__(self, batch: Any, specs: Any = None) -> Any:
        """The results of the step.

        Args:
            batch: nested tensors, with a value of each replica.
            specs: the types of all batches, which TensorFlow finds out by itself.
        """
        from placer.tf.run.keras_steps import without_optionals

        model = self._model
        return model.reduced(self._name, model.strategy.run(self._function, args=(without_optionals(batch),)))

    def release(self) -> None:
        """Nothing: plans of replicas move no variables."""
