"""A step of a model, placed: one placed function for each structure of its batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from placer.errors import PlanError, TraceError
from placer.options import Options
from placer.placed.function import PlacedFunction


class PlacedStep:
    """Runs a model's step on batches, by plan. A plan is made for the size of the first batch; smaller ones run by it, too.

    Args:
        model: the Keras model.
        name: of the step, such as "train_step".
        options: of its plans.
    """

    def __init__(self, model: Any, name: str, options: Options) -> None:
        self._model = model
        self._name = name
        self._options = options
        self._functions: dict[Hashable, PlacedFunction] = {}
        self._latest: Hashable = None

    def function(self) -> PlacedFunction:
        """The placed function that ran the latest batch.

        Raises:
            PlanError: no batch was run by plan yet.
        """
        if self._latest not in self._functions:
            raise PlanError(f"the {self._name} of {self._model.name} has no plan yet: it has run no batch by plan")
        return self._functions[self._latest]

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
        from placer.tf.run.keras_steps import layout, tensors

        of = layout(batch, open_batch=True) if specs is None else layout(specs, open_batch=False)
        flat = tuple(tensors(batch, of))
        function = self._functions.get(of)
        if function is None:
            function = self._functions[of] = self._placed(batch, of, flat)
        self._latest = of
        return function(*flat)

    def _placed(self, batch: Any, of: Hashable, flat: tuple[Any, ...]) -> PlacedFunction:
        from placer.tf.run.keras_steps import layout, step_function

        def placed(of: Hashable) -> PlacedFunction:
            return PlacedFunction(step_function(self._model, getattr(self._model, self._name), of, self._name), self._options)

        function = placed(of)
        try:
            function.signatures.traced_function(flat, {})
        except TraceError:
            return placed(layout(batch, open_batch=False))  # the step's code may need the size of a batch
        return function


def on_iterator(step: PlacedStep, model: Any) -> Callable[[Iterator[Any]], Any]:
    """What `Model.train_function` and `Model.test_function` are: a function that runs the step on the next batches.

    It runs `steps_per_execution` batches and returns the results of the last one. Without a batch it raises StopIteration.
    """

    def run(iterator: Iterator[Any]) -> Any:
        specs = getattr(iterator, "element_spec", None)
        results = step(next(iterator), specs)
        for _, batch in zip(range(model.steps_per_execution - 1), iterator, strict=False):
            results = step(batch, specs)
        return results

    return run


def on_batches(step: PlacedStep) -> Callable[[list[Any]], Any]:
    """What `Model.predict_function` is: a function that runs the step on some batches and joins the results."""

    def run(batches: list[Any]) -> Any:
        from keras import tree
        from keras.src.backend.tensorflow.trainer import concat

        first, *others = map(step, batches)
        return tree.map_structure(lambda *parts: concat(list(parts)), first, *others) if others else first

    return run
