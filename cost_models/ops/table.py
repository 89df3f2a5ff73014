"""The table of ops, which the modules of the families fill with entries, and what it answers about an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from cost_models.base import OpSignature, TensorSpec
from cost_models.ops.optype import Bound, OpType, View
from cost_models.ops.work import Work

_ENTRIES: dict[str, OpType] = {}
_GLOBS: dict[str, OpType] = {}
"""Entries of families that share part of their names, such as ops on datasets. The entry of an exact op type comes first."""
_UNKNOWN = OpType()


def register(op_types: str, entry: OpType) -> None:
    """Adds an entry for each of these op types or globs, separated by white space.

    Raises:
        ValueError: an op type has an entry already.
    """
    for name in op_types.split():
        table = _GLOBS if "*" in name else _ENTRIES
        if name in table:
            raise ValueError(f"op type {name} is registered twice")
        table[name] = entry
    entry_of.cache_clear()


@cache
def entry_of(name: str) -> OpType:
    """The entry of an op type, or the entry with all defaults if the op type is not in the table."""
    if name in _ENTRIES:
        return _ENTRIES[name]
    return next((entry for glob, entry in _GLOBS.items() if fnmatchcase(name, glob)), _UNKNOWN)


def types_where(holds: Callable[[OpType], Any] = lambda entry: True) -> frozenset[str]:
    """The op types with an entry of their own for which `holds` is true; by default all."""
    return frozenset(name for name, entry in _ENTRIES.items() if holds(entry))


def work_of(op: OpSignature) -> Work:
    """The work of one run of an op."""
    entry = entry_of(op.op_type)
    return entry.formula(op) if entry.view(op) is View.NONE else entry.view_work(op)


def view_of(op: OpSignature) -> View:
    """Whose memory an op's results are in."""
    return entry_of(op.op_type).view(op)


def runs_on_host(op: OpSignature) -> bool:
    """Whether a GPU's kernel for this op has all inputs and outputs in host memory, as those of int32 arithmetic have."""
    rule = entry_of(op.op_type).host_kernel
    return rule is not None and rule(op)


def is_awaited(op: OpSignature) -> bool:
    """Whether the ops after this one wait for its end on a GPU, while the host does something else."""
    return entry_of(op.op_type).awaited and not runs_on_host(op)


def copied_read(read: OpSignature) -> OpSignature:
    """The same read of a variable, with its value copied."""
    return replace(read, attrs=(*read.attrs, ("copied", True)))


def is_copied(read: OpSignature) -> bool:
    """Whether a read of a variable copies its value."""
    return bool(read.attr("copied"))


def as_measured(op: OpSignature) -> OpSignature:
    """The signature under which an op is measured: lengths that depend on the data are open, whatever is known of them.

    A plan counts such a length by its bound or by what a run had, but the op's own time depends on its inputs.
    """
    entry = entry_of(op.op_type)
    if not entry.data_sized or op.attr("pad_to_max_output_size"):
        return op
    outputs = list(op.outputs)
    for k, spec in enumerate(op.outputs):
        if spec.shape and spec.shape[0] is not None and (entry.data_sized == "all" or k in entry.data_sized):
            outputs[k] = TensorSpec(spec.dtype, (None, *spec.shape[1:]))
    return replace(op, outputs=tuple(outputs))


def output_bounds(op: OpSignature, constants: Mapping[int, Any] | None = None) -> tuple[Bound, ...]:
    """An upper bound on the shape of each output.

    Args:
        op: the op. Its input sizes may be upper bounds themselves; then so are the results.
        constants: values of inputs that are constants, by position.

    Returns:
        For each output the signature's shape, with a bound in place of each unknown dimension. None stands for a dimension, or a
        rank, without a bound.
    """
    rule = entry_of(op.op_type).output_bounds
    stated = tuple(spec.shape for spec in op.outputs)
    if rule is None:
        return stated
    return tuple(_tighter(shape, bound) for shape, bound in zip(stated, rule(op, constants or {}), strict=True))


def _tighter(shape: Bound, bound: Bound) -> Bound:
    """The shape, with the bound in place of unknown dimensions."""
    if shape is None or bound is None or len(shape) != len(bound):
        return bound if shape is None else shape
    return tuple(limit if side is None else side for side, limit in zip(shape, bound, strict=True))
