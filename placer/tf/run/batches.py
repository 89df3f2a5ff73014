"""The arguments of a function of batches: which ones are batches, how large a call's batch is, and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer.errors import OptionError
from placer.tf.rewrite.exporting import call_types

_NOT_DENSE = (tf.RaggedTensorSpec, tf.SparseTensorSpec)


class BatchTypes:
    """The types of a ConcreteFunction's arguments, of which some leave their first dimension open: the size of the batch.

    Args:
        concrete: the function.

    Raises:
        OptionError: no argument does, a batch leaves other sizes open, too, or an argument is ragged or sparse.
    """

    def __init__(self, concrete: Any) -> None:
        self._args, self._kwargs = call_types(concrete)
        for name, spec in _named(concrete, self._args, self._kwargs):
            if other := next((part for part in tf.nest.flatten(spec) if isinstance(part, _NOT_DENSE)), None):
                raise OptionError(
                    f"argument {name!r} is a {other.value_type.__name__}, whose bytes do not follow from the size of the batch: "
                    "serve takes dense tensors. Way out: make it dense before the call, or use placer.optimized_placement."
                )
        own = concrete.inputs[: len(concrete.inputs) - len(concrete.captured_inputs)]
        batches = [tensor for tensor in own if _is_batch(tensor)]
        if several := [tensor.op.name for tensor in batches if tensor.shape.as_list().count(None) > 1]:
            raise OptionError(f"{several[0]!r} leaves more open than the size of the batch: give its other sizes in its type.")
        self.inputs = [tensor.op.name for tensor in batches]
        """The names of the inputs that are batches, in the graph."""
        positions = [k for k, spec in enumerate(self._args) if _has_batch(spec)]
        names = [name for name, spec in self._kwargs.items() if _has_batch(spec)]
        if not (positions or names):
            raise OptionError(
                f"no argument of {concrete.graph.name} is a batch: give types whose first dimension is None, such as "
                "tf.TensorSpec([None, 224, 224, 3])."
            )
        parameters = list(concrete.function_type.parameters) or names
        self._name = names[0] if names else parameters[positions[0]]
        # A function of one keyword can be called with its value alone.
        self._position = positions[0] if positions else 0
        self._type = self._kwargs[names[0]] if names else self._args[self._position]

    def batch_size(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """The size of a call's batch; None if it is not known."""
        batch = kwargs.get(self._name)
        if batch is None:
            if self._position >= len(args):
                return None
            batch = args[self._position]
        if tf.nest.is_nested(self._type):
            types, parts = tf.nest.flatten(self._type), tf.nest.flatten(batch)
            if len(parts) != len(types):  # a list of numbers stands for a tensor
                return None
            batch = next(part for part, spec in zip(parts, types, strict=True) if _is_batch(spec))
        shape = getattr(batch, "shape", None)
        size = len(batch) if shape is None else shape[0]
        return None if size is None else int(size)

    def example(self, size: int) -> Any:
        """Arguments of a call, as TensorSpecs: keywords, or a tuple."""

        def of_size(spec: Any) -> Any:
            return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype) if _is_batch(spec) else spec

        args, kwargs = tf.nest.map_structure(of_size, (self._args, self._kwargs))
        return kwargs or args


def _named(concrete: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The types of arguments with the names of the arguments."""
    yield from zip(list(concrete.function_type.parameters) or map(str, range(len(args))), args, strict=False)
    yield from kwargs.items()


def _is_batch(value: Any) -> bool:
    """Whether a tensor or its type leaves the first dimension open."""
    return isinstance(value, (tf.TensorSpec, tf.Tensor)) and bool(value.shape.rank) and value.shape[0] is None


def _has_batch(spec: Any) -> bool:
    """Whether the type of an argument, which can be a dict or a list, has a batch in it."""
    return any(map(_is_batch, tf.nest.flatten(spec)))
