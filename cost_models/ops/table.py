"""The table: an entry for each op type, filled by the modules of the families, and the questions that are asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from cost_models.base import OpSignature
from cost_models.ops.optype import Bound, OpType, View
from cost_models.ops.work import Work

_ENTRIES: dict[str, OpType] = {}
_GLOBS: dict[str, OpType] = {}
"""Entries of whole families that their names tell, such as the ops on datasets; the entry of the exact type comes first."""
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


@cache
def entry_of(name: str) -> OpType:
    """What is known of an op type; the defaults for one that is not in the table."""
    if name in _ENTRIES:
        return _ENTRIES[name]
    return next((entry for glob, entry in _GLOBS.items() if fnmatchcase(name, glob)), _UNKNOWN)


def types_where(holds: Callable[[OpType], Any] = lambda entry: True) -> frozenset[str]:
    """The op types with an entry of their own for which this holds; by default all."""
    return frozenset(name for name, entry in _ENTRIES.items() if holds(entry))


def work_of(op: OpSignature) -> Work:
    """The work of one run of an op."""
    entry = entry_of(op.op_type)
    return entry.formula(op) if entry.view(op) is View.NONE else entry.view_work(op)


def view_of(op: OpSignature) -> View:
    """Whose memory an op's results are in."""
    return entry_of(op.op_type).view(op)


def runs_on_host(op: OpSignature) -> bool:
    """Whether a GPU's kernel for this op takes and gives host memory only, such as those of int32 arithmetic."""
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


def output_bounds(op: OpSignature, constants: Mapping[int, Any] | None = None) -> tuple[Bound, ...]:
    """A shape for each output that no run exceeds, as far as it follows from the signature.

    Args:
        op: whose input sizes may be upper bounds themselves.
        constants: values of inputs that are constants, by position.
    """
    rule = entry_of(op.op_type).output_bounds
    stated = tuple(spec.shape for spec in op.outputs)
    if rule is None:
        return stated
    return tuple(_tighter(shape, bound) for shape, bound in zip(stated, rule(op, constants or {}), strict=True))


def _tighter(shape: Bound, bound: Bound) -> Bound:
    """What is known of a shape, and the bound for the rest."""
    if shape is None or bound is None or len(shape) != len(bound):
        return bound if shape is None else shape
    return tuple(most if side is None else side for side, most in zip(shape, bound, strict=True))
