"""A problem with some arrays of its parts replaced."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

from placer.problem.problem import PlacementProblem


def changed(problem: PlacementProblem, **arrays: Any) -> PlacementProblem:
    """The problem with other arrays, each named by its part and field: ``changed(problem, ops_time_ns=..., units_allowed=...)``.

    New sizes of tensors are also what copies and memory count, and new consumers hold a tensor until they run, unless said.
    """
    by_part: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, array in arrays.items():
        part, _, field = name.partition("_")
        by_part[part][field] = array
    if "nbytes" in by_part["tensors"]:
        nbytes = by_part["tensors"]["nbytes"]
        by_part["tensors"] = {"copy_bytes": nbytes, "held_bytes": nbytes} | by_part["tensors"]
    if "op" in by_part["consumers"]:
        by_part["consumers"] = {"until": None} | by_part["consumers"]
    return replace(problem, **{part: replace(getattr(problem, part), **fields) for part, fields in by_part.items() if fields})
