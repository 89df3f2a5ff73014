"""Models of Keras 3 and of tf_keras: where their training, evaluation and prediction differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from placer.common.escaping import brief
from placer.errors import OptionError

Step = Callable[[Any], Any]
"""A step of a model: takes a batch, gives its results."""
Runner = Callable[[Any], Any]
"""What runs a step on the next batches, such as `Model.train_function`."""
PlacedBatches = Callable[..., Any]
"""Runs a step on a batch, by plan. The types of all batches are its second argument, if they are known."""


class KerasModel:
    """A model of Keras 3."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def base(self) -> Any:
        """The class of Keras that all its models have."""
        import keras

        return keras.Model

    @property
    def runs_eagerly(self) -> bool:
        """Whether it runs op by op; False before it is compiled."""
        return bool(self.model.compiled and self.model.run_eagerly)

    @property
    def is_distributed(self) -> bool:
        """Whether a distribution strategy decides the devices."""
        return self.model._distribute_strategy is not None

    @property
    def strategy(self) -> Any:
        """The distribution strategy."""
        return self.model.distribute_strategy

    def reduced(self, name: str, results: Any) -> Any:
        """The results of all replicas as those of one batch.

        Args:
            name: of the step.
            results: of the replicas.
        """
        from keras.src.backend.tensorflow.trainer import reduce_per_replica

        return reduce_per_replica(results, self.strategy, "concat" if name == "predict" else "auto")

    @property
    def steps_per_execution(self) -> int:
        """How many batches a call of Keras's function runs."""
        return int(self.model.steps_per_execution)

    def step(self, name: str) -> Step:
        """What the model does with one batch: its "train", "test" or "predict" step."""
        step: Step = getattr(self.model, f"{name}_step")
        return step

    def types(self, iterator: Any) -> Any:
        """The types of the batches that an iterator gives; None if they are not known."""
        return getattr(iterator, "element_spec", None)

    def runner(self, name: str, placed: PlacedBatches) -> Runner:
        """What takes the place of `Model.train_function`, `Model.test_function` or `Model.predict_function`.

        Args:
            name: of the step.
            placed: runs the step on a batch.
        """
        return self._on_batches(placed) if name == "predict" else self._on_iterator(placed)

    def without_xla(self, name: str, make: Callable[..., Any]) -> Runner | None:
        """Keras's own function for a step without XLA, where Keras compiles it by XLA.

        Args:
            name: of the step.
            make: the method of the model's class by which Keras makes its function.
        """
        model = self.model
        if not model.jit_compile:
            return None
        model.jit_compile = False
        make(model, force=True)
        model.jit_compile = True
        runner: Runner = getattr(model, f"{name}_function")
        return runner

    def _on_iterator(self, placed: PlacedBatches) -> Runner:
        """Runs the step on `steps_per_execution` batches and gives the last results. Without a batch it raises StopIteration."""

        def run(iterator: Iterator[Any]) -> Any:
            types = self.types(iterator)
            results = placed(next(iterator), types)
            for _, batch in zip(range(self.steps_per_execution - 1), iterator, strict=False):
                results = placed(batch, types)
            return results

        return run

    def _on_batches(self, placed: PlacedBatches) -> Runner:
        """Runs the step on batches in a list and joins the results."""

        def run(batches: list[Any]) -> Any:
            from keras import tree
            from keras.src.backend.tensorflow.trainer import concat

            first, *others = map(placed, batches)
            return tree.map_structure(lambda *parts: concat(list(parts)), first, *others) if others else first

        return run


class TfKerasModel(KerasModel):
    """A model of tf_keras, which is Keras 2.

    Its step counts batches. Its functions take iterators, also to predict. The types of an iterator over one batch, which
    `train_on_batch` makes, have the size of this batch.
    """

    @property
    def base(self) -> Any:
        import tf_keras

        return tf_keras.Model

    @property
    def runs_eagerly(self) -> bool:
        return bool(self.model.run_eagerly)

    @property
    def is_distributed(self) -> bool:
        return self.model._distribution_strategy is not None

    def reduced(self, name: str, results: Any) -> Any:
        from tf_keras.src.engine.training import reduce_per_replica

        reduction = "concat" if name == "predict" else self.model.distribute_reduction_method
        return reduce_per_replica(results, self.strategy, reduction)

    @property
    def steps_per_execution(self) -> int:
        steps = self.model.steps_per_execution  # a variable, which tf_keras changes for the last call of an epoch
        return 1 if steps is None else int(steps.numpy())

    def step(self, name: str) -> Step:
        from placer.tf.run.keras_steps import counted

        step = counted(super().step(name), getattr(self.model, f"_{name}_counter"))

        def run(batch: Any) -> Any:
            compiled = [optimizer for optimizer in self._optimizers() if optimizer.jit_compile]
            for optimizer in compiled:  # XLA would put all updates on one device: each reads the learning rate
                optimizer.jit_compile = False
            try:
                return step(batch)
            finally:
                for optimizer in compiled:
                    optimizer.jit_compile = True

        return run

    def _optimizers(self) -> Iterator[Any]:
        """The optimizers that are attributes of the model, and those inside of them. Others have no `jit_compile`."""
        import tf_keras

        for value in vars(self.model).values():
            if isinstance(value, tf_keras.optimizers.Optimizer):
                yield getattr(value, "inner_optimizer", value)

    def types(self, iterator: Any) -> Any:
        from placer.tf.run.keras_steps import open_types

        return open_types(iterator.element_spec)

    def runner(self, name: str, placed: PlacedBatches) -> Runner:
        from placer.tf.run.keras_steps import joined

        def run(iterator: Any) -> Any:
            types = self.types(iterator)
            parts = [placed(next(iterator), types) for _ in range(self.steps_per_execution)]
            return joined(parts) if name == "predict" else parts[-1]

        if name == "train":
            self.model.train_tf_function = None  # TensorBoard's callback would read the graph of a function that never ran
        return run

    def without_xla(self, name: str, make: Callable[..., Any]) -> Runner | None:
        """None: tf_keras compiles by XLA only where the user asks for it."""
        return None


def keras_model(model: Any) -> KerasModel:
    """A model of Keras 3 or of tf_keras, on TensorFlow.

    Raises:
        OptionError: it is neither.
    """
    if any(cls.__module__.partition(".")[0] == "tf_keras" for cls in type(model).__mro__):
        of_tf_keras = TfKerasModel(model)
        if isinstance(model, of_tf_keras.base):
            return of_tf_keras
    else:
        import keras

        if isinstance(model, keras.Model):
            if (backend := keras.config.backend()) != "tensorflow":
                only = "only TensorFlow's ops have plans"
                raise OptionError(f"cannot optimize {model.name!r}: Keras runs it on {backend}, and {only}.")
            return KerasModel(model)
    way_out = "placer.optimized_placement places functions" if callable(model) else "pass a keras.Model"
    raise OptionError(f"cannot optimize {brief(model)}, which is no Keras model: {way_out}.")
