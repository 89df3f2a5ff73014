"""One table of ops: for each op type an entry with everything that is known of it.

`optype.OpType` says what an entry holds. Each module of a family of ops registers the entries of its op types; `table` looks
them up. To add an op, register its entry in the module of its family.
"""

from __future__ import annotations

from importlib import import_module

from cost_models.ops.optype import Difference, OpType, View
from cost_models.ops.recipes import UnmeasurableError
from cost_models.ops.table import (
    as_measured,
    copied_read,
    entry_of,
    is_awaited,
    is_copied,
    output_bounds,
    runs_on_host,
    types_where,
    view_of,
    work_of,
)
from cost_models.ops.work import Work, host_only

_NAMES = (
    "control", "convolution", "data", "dense", "elementwise", "gather_scatter", "image", "layout", "linear_algebra", "lists",
    "normalization", "pooling", "random_numbers", "recurrent", "reduction", "selection", "shape", "slicing", "state", "strings",
)  # fmt: skip
FAMILIES = tuple(import_module(f"cost_models.ops.{name}") for name in _NAMES)
"""The modules whose import fills the table."""

__all__ = [
    "FAMILIES",
    "Difference",
    "OpType",
    "UnmeasurableError",
    "View",
    "Work",
    "as_measured",
    "copied_read",
    "entry_of",
    "host_only",
    "is_awaited",
    "is_copied",
    "output_bounds",
    "runs_on_host",
    "types_where",
    "view_of",
    "work_of",
]
