"""Output sizes that TensorFlow's shape inference leaves open although something is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops import entry_of, output_bounds
from placer.graph.sizes import Shape

HANDLES = (tf.resource, tf.variant)
"""The types of tensors that stand for data elsewhere."""
WORDS_PER_STRING = 8
"""Assumed of strings that are split."""

CHARACTERS_PER_STRING = 8
"""Assumed of strings that are decoded."""

_FIRST_PARTITION = 3
"""The input of `RaggedTensorToTensor` that says how many rows there are, if it is a number."""
SPLITTING = ("StringSplit", "StringSplitV2")
"""Op types that split strings into words."""
_DECODING = ("UnicodeDecode", "UnicodeDecodeWithOffsets")
LABELLING = ("CTCGreedyDecoder", "CTCBeamSearchDecoder")
"""Op types that give a sparse tensor of labels for each of the best paths."""


def bounded_outputs(op: OpSignature, constants: Callable[[], Mapping[int, Any]]) -> Sequence[Shape] | None:
    """Upper bounds on the shapes of an op's outputs; None for an op whose sizes do not depend on values.

    Args:
        op: whose input sizes may be bounds.
        constants: gives the values of those inputs that are constants, by position.
    """
    return None if entry_of(op.op_type).output_bounds is None else output_bounds(op, constants())


def likely_outputs(op: OpSignature, constants: Callable[[], Mapping[int, Any]]) -> Sequence[Shape] | None:
    """The most likely shapes of an op's outputs; None for an op whose sizes do not depend on values.

    The parts of a partition are taken to be equal. Of masks, unique values and suppressed boxes nothing but the upper bound is
    known, so that is taken. Strings are taken to have `WORDS_PER_STRING` words and `CHARACTERS_PER_STRING` characters.
    """
    if op.op_type == "DynamicPartition":
        return [_divided(shape, len(op.outputs)) for shape in output_bounds(op, constants())]
    if op.op_type in SPLITTING:
        strings = op.inputs[0].shape
        words = None if strings is None or None in strings else op.inputs[0].elements * WORDS_PER_STRING
        return [(words, 2), (words,), (2,)]
    if op.op_type in _DECODING:
        strings = op.inputs[0].shape
        characters = None if strings is None or None in strings else op.inputs[0].elements * CHARACTERS_PER_STRING
        return [op.outputs[0].shape, *[(characters,)] * (len(op.outputs) - 1)]
    if op.op_type == "RaggedTensorToTensor":
        rows, shape = constants().get(_FIRST_PARTITION), op.outputs[0].shape
        if rows is not None and rows.ndim == 0 and shape and "FIRST_DIM_SIZE" in str(op.attr("row_partition_types")):
            return [(int(rows), *shape[1:])]
        return None
    return bounded_outputs(op, constants)


def has_rule(op_type: str) -> bool:
    """Whether there may be a bound or a likely size of the op's outputs."""
    return op_type in (*SPLITTING, *_DECODING, "RaggedTensorToTensor") or entry_of(op_type).output_bounds is not None


def says_sizes(op_type: str, outputs: int) -> range:
    """The outputs that say the sizes of others: of split strings and of decoded labels, as a dense tensor would have them."""
    paths = outputs // 3
    return range(2, 3) if op_type in SPLITTING else range(2 * paths, 3 * paths) if op_type in LABELLING else range(0)


def said_size(op: OpSignature) -> Any:
    """The value of these outputs: of split strings the most likely, of decoded labels a bound; None if it does not follow."""
    shape = op.inputs[0].shape
    if op.op_type in LABELLING:
        return None if shape is None or None in shape[:2] else np.array([shape[1], shape[0]], np.int64)
    return None if shape is None or None in shape else np.array([op.inputs[0].elements, WORDS_PER_STRING], np.int64)


def _divided(shape: Shape, parts: int) -> Shape:
    if not shape or shape[0] is None:
        return shape
    return (-(-shape[0] // parts), *shape[1:])


def signature(op_type: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], attrs: Mapping[str, Any]) -> OpSignature:
    """What the rules look at."""
    return OpSignature(op_type, tuple(inputs), tuple(outputs), tuple(sorted(attrs.items())))


class TensorListSize(NamedTuple):
    """What is known of a list of tensors."""

    length: int | None
    element: Shape
    pushed: frozenset[tuple[str, int]] | None = None
    """The outputs that were pushed onto the list, if it has no other elements; None if that is not known."""


def merged(a: Shape, b: Shape) -> Shape:
    """What two descriptions of one shape say together; where they disagree, what the first says."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def is_known(shape: Shape) -> bool:
    """Whether the rank and all dimensions are known."""
    return shape is not None and None not in shape


def is_open(op_type: str, tensor: Any, shape: Shape) -> bool:
    """Whether it matters that this shape of an op's output is not known.

    It does not of a handle, nor of the axes along which a gradient is summed: those are a few numbers in host memory.
    """
    return not is_known(shape) and op_type != "BroadcastGradientArgs" and tensor.dtype not in HANDLES


class TensorLists:
    """Follows lists of tensors, of which TensorFlow's shape inference knows the element's shape at most."""

    def __init__(self) -> None:
        self.sizes: dict[tuple[str, int], TensorListSize] = {}
        """By node and output."""

    def apply(
        self,
        op_type: str,
        path: str,
        sources: Sequence[tuple[str, int]],
        shape_of: Callable[[tuple[str, int]], Shape],
        value_of: Callable[[int], Any],
    ) -> list[Shape] | None:
        """Follows one op; returns what is known of its outputs' shapes beyond TensorFlow's inference, None if nothing is."""
        sizes = self.sizes
        if op_type in ("TensorListReserve", "EmptyTensorList"):
            length = _number(value_of(1)) if op_type == "TensorListReserve" else 0
            sizes[path, 0] = TensorListSize(length, _element(value_of(0)), frozenset() if length == 0 else None)
        elif op_type == "TensorListFromTensor":
            shape = shape_of(sources[0])
            sizes[path, 0] = TensorListSize(shape[0] if shape else None, shape[1:] if shape else None)
        elif not sources or sources[0] not in sizes:
            return None
        else:
            return self._of_list(op_type, path, sizes[sources[0]], sources, shape_of)
        return None

    def popped(self, op_type: str, sources: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        """The output that an op takes back from the list onto which that was pushed; None for another op or list."""
        of = self.sizes.get(sources[0]) if op_type == "TensorListPopBack" else None
        return next(iter(of.pushed)) if of is not None and of.pushed is not None and len(of.pushed) == 1 else None

    def _of_list(
        self,
        op_type: str,
        path: str,
        of: TensorListSize,
        sources: Sequence[tuple[str, int]],
        shape_of: Callable[[tuple[str, int]], Shape],
    ) -> list[Shape] | None:
        step = {"TensorListPushBack": 1, "TensorListPopBack": -1, "TensorListSetItem": 0, "Identity": 0}.get(op_type)
        if step is not None:
            new = replace_length(of, step)
            added = {"TensorListPushBack": 1, "TensorListSetItem": 2}.get(op_type)
            if added is not None:
                pushed = of.pushed | {sources[1]} if of.pushed is not None and op_type == "TensorListPushBack" else None
                new = TensorListSize(new.length, merged(of.element, shape_of(sources[added])), pushed)
            self.sizes[path, 0] = new
            return [(), of.element] if op_type == "TensorListPopBack" else None
        if op_type == "TensorListGetItem":
            return [of.element]
        if op_type in ("TensorListStack", "TensorListGather"):
            return [None if of.element is None else (of.length if op_type == "TensorListStack" else None, *of.element)]
        return None


def replace_length(of: TensorListSize, added: int) -> TensorListSize:
    """The list with so many more elements."""
    return TensorListSize(None if of.length is None else of.length + added, of.element, of.pushed)


def _number(value: Any) -> int | None:
    return None if value is None or int(value) < 0 else int(value)


def _element(value: Any) -> Shape:
    if value is None or value.ndim != 1:
        return None
    return tuple(None if side < 0 else int(side) for side in value)
