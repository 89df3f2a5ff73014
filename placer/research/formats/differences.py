"""The fields in which two problems differ: what a file of one does not hold."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from placer.problem.arrays import Ints
from placer.problem.problem import PlacementProblem


def differences(problem: PlacementProblem, other: PlacementProblem) -> tuple[str, ...]:
    """The fields in which another problem differs, with how much they differ; none if both have the same ops, costs and limits.

    The numbers of units and tensors do not count, nor do times on devices that are not allowed.
    """
    ours, theirs = _comparable(problem), _comparable(other)
    found: dict[str, str] = {}
    for name, value in ours.items():
        part = name.partition(".")[0]
        if (how := _other_size(value, theirs[name])) and part not in found:
            found = {other: text for other, text in found.items() if not other.startswith(f"{part}.")} | {part: how}
        elif part not in found and (how := _difference(value, theirs[name])):
            found[name] = how
    return tuple(f"{name} ({how})" for name, how in found.items())


def _other_size(ours: Any, theirs: Any) -> str:
    """How the sizes of two values of a field differ, as text; empty if they are equal."""
    a, b = np.asarray(ours), np.asarray(theirs)
    return "" if a.shape == b.shape else f"{len(b)} for {len(a)}" if len(a) != len(b) else "on other devices"


def _difference(ours: Any, theirs: Any) -> str:
    """How two values of a field differ that have one size, as text; empty if they are equal."""
    a, b = np.asarray(ours), np.asarray(theirs)
    if not (differ := a != b).any():
        return ""
    if not a.ndim:
        return f"{b} for {a}"
    largest = f", by at most {abs(a - b).max():g}" if a.dtype.kind in "if" else ""
    return f"{int(differ.sum())} of {differ.size} entries{largest}"


def _comparable(problem: PlacementProblem) -> dict[str, Any]:
    """The fields by name, with units and tensors in an order that does not depend on their numbers."""
    unit_order = _by_first(problem.ops.unit, problem.num_units)
    tensor_order, entries, consumer_count = _sorted_tensors(problem)
    values: dict[str, Any] = {}
    for part in fields(problem):
        for f in fields(owner := getattr(problem, part.name)):
            value = getattr(owner, f.name)
            if isinstance(same := f.metadata.get("default"), str) and (value == getattr(owner, same)).all():
                value = value * 0  # it differs as the other field does
            if part.name == "units":
                value = value[unit_order]
            elif part.name == "tensors":
                value = value[tensor_order]
            elif part.name == "consumers" and f.name != "start":
                value = value[entries]
            elif part.name == "links" and f.name != "contention":
                value = value[: problem.num_devices, : problem.num_devices]
            elif part.name == "ops" and "D" in f.metadata.get("axes", ""):
                value = np.where(problem.units.allowed[problem.ops.unit], value, 0)
            values[f"{part.name}.{f.name}"] = value
    values["ops.unit"] = np.argsort(unit_order)[problem.ops.unit]
    control = np.lexsort((problem.ops.control_dst, problem.ops.control_src))
    values["control edges"] = np.stack([values.pop("ops.control_src"), values.pop("ops.control_dst")], axis=1)[control]
    values["tensors without consumers"] = problem.num_tensors - len(tensor_order)
    values["consumers.start"] = np.append(0, np.cumsum(consumer_count))
    return values


def _by_first(group: Ints, groups: int) -> Ints:
    """[groups]: the groups in the order of their first members."""
    _, first = np.unique(group, return_index=True)
    return np.argsort(first[:groups], kind="stable")


def _sorted_tensors(problem: PlacementProblem) -> tuple[Ints, Ints, Ints]:
    """The tensors with consumers by op, consumers and size; their entries, one for each op; and the number of entries of each."""
    start, op = problem.consumers.start.tolist(), problem.consumers.op.tolist()
    entries = []
    for begin, end in pairwise(start):
        last = {op[c]: c for c in reversed(range(begin, end))}
        entries.append([last[i] for i in sorted(last)])
    made, nbytes = problem.tensors.op.tolist(), problem.tensors.nbytes.tolist()
    taken = [t for t in range(problem.num_tensors) if entries[t]]
    order = sorted(taken, key=lambda t: (made[t], [op[c] for c in entries[t]], nbytes[t]))
    flat = [c for t in order for c in entries[t]]
    return np.array(order, np.int64), np.array(flat, np.int64), np.array([len(entries[t]) for t in order], np.int64)
