"""Partitions of what counts from 0 up: a stitch that puts their parts back has the size of what was parted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from placer.tf.trace.scratch_shapes import small_value

_Output: TypeAlias = tuple[str, int]


class Partitions:
    """Follows `Range`, `DynamicPartition` and `DynamicStitch`, the way in which rows are given to experts and brought back."""

    def __init__(self) -> None:
        self._counting: set[_Output] = set()
        self._partitioned: dict[str, tuple[_Output, int]] = {}
        """By partition: what it parts, and into how many parts."""

    def note(self, path: str, op_type: str, op: Any, inputs: Sequence[_Output]) -> None:
        """Notes what counts from 0 up in steps of 1, and partitions of it."""
        if op_type == "Range":
            start, step = (small_value(op.inputs[k]) for k in (0, 2))
            if start is not None and step is not None and start == 0 and step == 1:
                self._counting.add((path, 0))
        elif op_type == "DynamicPartition" and inputs[0] in self._counting:
            self._partitioned[path] = inputs[0], len(op.outputs)

    def stitched(self, op_type: str, inputs: Sequence[_Output]) -> _Output | None:
        """What a stitch puts together again, if its indices are all parts of such a partition; None for any other op."""
        if op_type not in ("DynamicStitch", "ParallelDynamicStitch"):
            return None
        indices = inputs[: len(inputs) // 2]
        makers = {path for path, _ in indices}
        parted, count = self._partitioned.get(makers.pop(), (None, 0)) if len(makers) == 1 else (None, 0)
        return parted if {k for _, k in indices} == set(range(count)) else None
