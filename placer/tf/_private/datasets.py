"""The dataset behind a variant tensor: how many elements it has and how large they are."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import tensorflow as tf

from placer.graph.sizes import Rounds, Shape, Source

_KEEPS_ELEMENTS = ("Prefetch", "Options", "Cache", "Shuffle", "Repeat", "Take", "Skip", "Model")
"""Beginnings of the names of dataset classes, behind "_" and up to "Dataset", whose elements are those of their input."""


class DatasetSize(NamedTuple):
    """What is known of a dataset."""

    elements: Rounds | None
    """How many there are; None if that is not known or there is no end."""
    shapes: tuple[Shape, ...]
    """Of each tensor of an element."""
    source: Source
    """Of the shapes."""


def dataset_size(variant: Any) -> DatasetSize | None:
    """What is known of the dataset behind an eager variant tensor; None if there is no dataset's Python object."""
    dataset = _owner(variant)
    if dataset is None:
        return None
    with tf.init_scope():
        count = int(dataset.cardinality())
        rows, source = _batch(dataset)
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec, expand_composites=True)]
    known = tuple(None if shape.rank is None else tuple(shape.as_list()) for shape in shapes)
    if rows is not None:
        known = tuple((rows, *shape[1:]) if shape and shape[0] is None else shape for shape in known)
    complete = all(shape is not None and None not in shape for shape in known)
    return DatasetSize(Rounds(count, "exact") if count >= 0 else None, known, source if complete else "assumed")


def _owner(variant: Any) -> Any:
    """The dataset whose tensor this is. TensorFlow keeps no way from the tensor to it."""
    for holder in gc.get_referrers(variant):
        for owner in (holder, *(gc.get_referrers(holder) if type(holder) is dict else ())):
            if isinstance(owner, tf.data.Dataset) and owner._variant_tensor is variant:
                return owner
    return None


def _batch(dataset: Any) -> tuple[int | None, Source]:
    """The rows of a batch, if elements are batches whose rows are not in the element's type, and their source."""
    source: Source = "exact"
    while True:
        size, inputs = getattr(dataset, "_batch_size", None), dataset._inputs()
        if size is not None and len(inputs) == 1:
            rows, count = int(size), int(inputs[0].cardinality())
            if count < 0 or count % rows:
                source = "assumed" if source == "assumed" else "bound"
            return rows, source
        if len(inputs) != 1:
            return None, "exact"
        if not type(dataset).__name__.lstrip("_").startswith(_KEEPS_ELEMENTS):
            source = "assumed"  # it may make other elements of a batch
        dataset = inputs[0]
