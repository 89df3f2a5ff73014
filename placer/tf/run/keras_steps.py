"""The step of a Keras model as a function of the tensors of a batch, and batches as such tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from placer.tf._private.autograph import autograph_enabled
from placer.tf._private.keras_scopes import name_ops_by_layer

NAMES = ("x", "y", "sample_weight")
"""Names of the parts of a batch."""

_ABSENT = (type(None), tf.experimental.Optional, tf.OptionalSpec, type(tf.type_spec_from_value(None)))
"""Stands in a batch, or in the types of batches, for a part that is not there."""

Layout = Hashable
"""The structure of a batch, with a TypeSpec for each tensor in it. Equal structures are equal."""


def layout(batch: Any, *, open_batch: bool) -> Layout:
    """The layout of a batch, or of the TypeSpecs of batches.

    Args:
        batch: nested tuples, lists and mappings of tensors, arrays or TypeSpecs.
        open_batch: whether tensors of other first dimensions belong to this layout, too.
    """
    if isinstance(batch, Mapping):
        return (type(batch), *((key, layout(part, open_batch=open_batch)) for key, part in batch.items()))
    if isinstance(batch, tuple | list):
        return (type(batch), *(layout(part, open_batch=open_batch) for part in batch))
    if isinstance(batch, _ABSENT):
        return None
    spec = batch if isinstance(batch, tf.TypeSpec) else tf.type_spec_from_value(batch)
    of: Layout = _with_open_batch(spec) if open_batch else spec
    return of


def open_types(types: Any) -> Any:
    """Types of batches with first dimensions that are open.

    Args:
        types: nested TypeSpecs.
    """
    return tf.nest.map_structure(_with_open_batch, types)


def joined(results: Sequence[Any]) -> Any:
    """The results of batches as those of one batch: tensors are joined along their first dimension, scalars become a vector.

    Args:
        results: nested tensors of equal structure.
    """

    def join(*parts: Any) -> Any:
        if isinstance(parts[0], tf.SparseTensor):
            return tf.sparse.concat(0, parts)
        return tf.concat(parts, 0) if parts[0].shape.rank else tf.stack(parts)

    return tf.nest.map_structure(join, *results) if len(results) > 1 else results[0]


def counted(step: Callable[[Any], Any], counter: Any) -> Callable[[Any], Any]:
    """A step of a tf_keras model that counts batches, as tf_keras runs it: AutoGraph converts what layers call.

    Args:
        step: runs the step on a batch.
        counter: the variable that counts.
    """

    def run(batch: Any) -> Any:
        with autograph_enabled():
            results = step(batch)
        with tf.control_dependencies([part for part in tf.nest.flatten(results) if isinstance(part, tf.Tensor)]):
            counter.assign_add(1)
        return results

    return run


def tensors(batch: Any, of: Layout) -> Iterator[Any]:
    """The tensors of a batch in the order in which `step_function` takes them."""
    if not isinstance(of, tuple):
        if of is not None:
            yield batch
    elif issubclass(of[0], Mapping):
        for key, part in of[1:]:
            yield from tensors(batch[key], part)
    else:
        for value, part in zip(batch, of[1:], strict=True):
            yield from tensors(value, part)


def step_function(model: Any, step: Callable[[Any], Any], of: Layout, name: str) -> Any:
    """A step of a Keras model as a tf.function of the tensors of a batch.

    Args:
        model: the model.
        step: runs the model's step on a batch, as `Model.train_step` does.
        of: the layout of the batches.
        name: of the function.
    """
    specs = list(_specs(of, ()))

    def run(*flat: Any) -> Any:
        name_ops_by_layer(model)
        return tf.distribute.get_strategy().run(step, args=(_batch(of, iter(flat)),))

    run.__name__ = name
    # Like Keras, which lets AutoGraph convert no code of `train_step`.
    return tf.function(tf.autograph.experimental.do_not_convert(run), input_signature=specs)


def replica_step(model: Any, step: Callable[[Any], Any], name: str) -> Any:
    """A step of a Keras model as a tf.function that replicas of a distribution strategy run.

    Args:
        model: the model.
        step: runs the model's step on a batch.
        name: of the function.
    """

    def run(batch: Any) -> Any:
        name_ops_by_layer(model)
        return step(batch)

    run.__name__ = name
    return tf.function(tf.autograph.experimental.do_not_convert(run), reduce_retracing=True)


def without_optionals(batch: Any) -> Any:
    """A batch of Keras's iterator, in which an Optional stands for a part that is not there, with None for each."""
    return tf.nest.map_structure(lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch)


def _batch(of: Layout, flat: Iterator[Any]) -> Any:
    if not isinstance(of, tuple):
        return None if of is None else next(flat)
    kind, *parts = of
    if issubclass(kind, Mapping):
        return kind((key, _batch(part, flat)) for key, part in parts)
    values = [_batch(part, flat) for part in parts]
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def _specs(of: Layout, path: tuple[Any, ...]) -> Iterator[tf.TypeSpec]:
    if not isinstance(of, tuple):
        if of is not None:
            yield tf.TensorSpec(of.shape, of.dtype, _name(path)) if isinstance(of, tf.TensorSpec) else of
        return
    kind, *parts = of
    for k, part in enumerate(parts):
        if issubclass(kind, Mapping):
            yield from _specs(part[1], (*path, part[0]))
        else:
            yield from _specs(part, (*path, NAMES[k] if not path and k < len(NAMES) else k))


def _name(path: tuple[Any, ...]) -> str:
    return re.sub(r"\W", "_", "_".join(map(str, path))) or "data"


def _with_open_batch(spec: tf.TypeSpec) -> tf.TypeSpec:
    shape = getattr(spec, "shape", None)
    if shape is None or not shape.rank:
        return spec
    opened = [None, *shape[1:]]
    if isinstance(spec, tf.TensorSpec):
        return tf.TensorSpec(opened, spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(opened, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return tf.SparseTensorSpec(opened, spec.dtype) if isinstance(spec, tf.SparseTensorSpec) else spec
