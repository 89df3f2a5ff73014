"""A step of a model, placed: one placed function for each structure of its batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from itertools import chain
from typing import Any

from placer.errors import PlanError, TraceError
from placer.keras.keras_model import KerasModel
from placer.options import Options
from placer.placed.function import PlacedFunction
from placer.placed.model_options import fitting_options
from placer.plan.call_plan import CallPlan
from placer.verbs.build_graph import build_graph
from placer.verbs.traced_for import traced_for


class ModelStep(ABC):
    """A step of a model that runs by plan."""

    @abstractmethod
    def function(self) -> PlacedFunction:
        """The placed function that ran the latest batch.

        Raises:
            PlanError: no batch was run by plan yet.
        """

    @abstractmethod
    def release(self) -> None:
        """Lets later plans move the variables of the step, which no longer runs."""


class PlacedStep(ModelStep):
    """Runs a model's step on batches, by plan. A plan is made for the size of the first batch; smaller ones run by it, too.

    Args:
        model: the Keras model.
        name: of the step, such as "train".
        options: of its plans. A pin that names nothing is an error in training; the other steps do not have all its layers.
    """

    def __init__(self, model: KerasModel, name: str, options: Options) -> None:
        self.of_keras = model
        self._model = model.model
        self._step = model.step(name)
        self._name = f"{name}_step"
        self._options = options
        self._functions: dict[Hashable, PlacedFunction] = {}
        self._first_sizes: dict[Hashable, tuple[str, ...]] = {}
        """By layout: the sizes of its first batch."""
        self._of_one_size: set[Hashable] = set()
        """Layouts of which each size of a batch has a function of its own, since the step's code needs to know the size."""
        self._latest: Hashable = None
        self._layouts: dict[Hashable, Hashable] = {}
        """By call key of a batch: its layout."""

    def function(self) -> PlacedFunction:
        if self._latest not in self._functions:
            raise PlanError(f"the {self._name} of {self._model.name} has no plan yet: it has run no batch by plan")
        return self._functions[self._latest]

    @property
    def is_planned(self) -> bool:
        """Whether the latest batch has a plan."""
        return self._latest in self._functions and self._functions[self._latest].signatures.latest is not None

    @property
    def call_plan(self) -> CallPlan | None:
        """The plan of the latest batch; None if it ran unplaced, or there was none."""
        latest = self.function().signatures.latest if self._functions else None
        current = latest and latest.signature.current
        return current.call_plan if current else None

    @property
    def first_sizes(self) -> tuple[str, ...]:
        """The sizes of the first batch that had the layout of the latest one."""
        return self._first_sizes[self._latest]

    def is_racing(self) -> bool:
        """Whether placements run its batches in turn, or will do so from its first batch on."""
        latest = self.function().signatures.latest if self._functions else None
        return latest is None or (latest.timing is not None and latest.timing.races)

    def __call__(self, batch: Any, specs: Any = None) -> Any:
        """The results of the step on a batch.

        Args:
            batch: nested tensors or arrays.
            specs: the types of all batches, if they are known; without them, batches of another size have the same type.
        """
        function, flat = self._function_of(batch, specs)
        if self._latest not in self._first_sizes:
            self._first_sizes[self._latest] = tuple(str(getattr(tensor, "shape", "")) for tensor in flat)
        return function(*flat)

    def plan_only(self, batch: Any, specs: Any = None) -> Any:
        """Plans the step for a batch, for a machine that is not here, and gives the results of the plain step.

        Args:
            batch, specs: as of a call.
        """
        from placer.tf.run.keras_steps import step_function

        function, flat = self._function_of(batch, specs)
        function.plan(*flat)
        return step_function(self._model, self._step, self._latest, self._name)(*flat)

    def release(self) -> None:
        from placer.tf.state.variables import release_variables

        for function in self._functions.values():
            for signature in function.signatures.known():
                if signature.current is not None and signature.current.run is not None:
                    release_variables(signature.current.run)

    def starts_anew(self, batch: Any, specs: Any = None) -> bool:
        """Whether another function for this step would begin anew with state of its own, such as the position of a random seed.

        Args:
            batch, specs: of a call. The types can stand for the batch.
        """
        from placer.tf.run.learning import starts_anew
        from placer.tf.trace.tracing import trace_concrete

        function, flat = self._function_of(batch, specs)
        return starts_anew(trace_concrete(function.signatures.traced_function(flat, {})))

    def _function_of(self, batch: Any, specs: Any) -> tuple[PlacedFunction, tuple[Any, ...]]:
        """The placed function for a batch, and its arguments."""
        from placer.tf.run.calling import error_of_function
        from placer.tf.run.keras_steps import layout, tensors

        of = self._layout_of(batch) if specs is None else layout(specs, open_batch=False)
        exact = layout(batch, open_batch=False) if of in self._of_one_size else of
        if exact not in self._functions:
            try:
                self._functions[exact] = self._placed(exact, tuple(tensors(batch, exact)))
            except TraceError as error:
                if exact != of or of == layout(batch, open_batch=False):
                    own = error_of_function(error) or error
                    raise own from own.__cause__
                self._of_one_size.add(of)
                return self._function_of(batch, specs)
        self._latest = exact
        return self._functions[exact], tuple(tensors(batch, exact))

    def _layout_of(self, batch: Any) -> Hashable:
        from placer.tf.run.call_keys import call_key
        from placer.tf.run.keras_steps import layout

        key = call_key((batch,), {})
        of = self._layouts.get(key) if key is not None else None
        if of is None:
            of = layout(batch, open_batch=True)
            if key is not None:
                self._layouts[key] = of
        return of

    def _placed(self, of: Hashable, flat: tuple[Any, ...]) -> PlacedFunction:
        from placer.tf.run.keras_steps import step_function
        from placer.tf.trace.tracing import concrete_function

        traced = step_function(self._model, self._step, of, self._name)
        with traced_for(self._options):
            concrete_function(traced, flat)
        return PlacedFunction(traced, self._options_of(traced, flat))

    def _options_of(self, traced: Any, flat: tuple[Any, ...]) -> Options:
        """The options of the step. Only training must have all that they name."""
        options = self._options
        if self._name == "train_step" or not (options.pins or options.sizes or options.rounds):
            return options
        return fitting_options(build_graph(traced, *flat, devices=options.devices), options)


def peeked(step: PlacedStep, batches: Any) -> tuple[bool, Any]:
    """Whether a step starts anew on the next batches, see `PlacedStep.starts_anew`, and these batches, none of which is taken."""
    if isinstance(batches, list):
        return step.starts_anew(batches[0]), batches
    if (types := step.of_keras.types(batches)) is not None:
        return step.starts_anew(batches.element_spec, types), batches
    first = next(batches)
    return step.starts_anew(first), chain([first], batches)
