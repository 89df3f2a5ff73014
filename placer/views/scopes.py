"""The scopes of a graph as a tree that can be opened step by step: no scope holds more than a person can look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placer.views.folding import ALIKE, NUMBER, beginnings

MOST = 32
"""What one scope holds at most."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Ops below one scope, or some of them. Every op is below exactly one scope."""

    label: str
    """What it adds to the scope above: "encoder/layer_3", "AddN*" for siblings of like names, "Cast … Mul_7" for a stretch."""
    inside: tuple[Part, ...]
    """In order of execution of their first ops."""


Part: TypeAlias = Scope | int
"""A scope, or an op by its number."""
Paths: TypeAlias = Mapping[int, Sequence[str]]


def scopes(names: Mapping[int, str], label: str = "", most: int = MOST) -> Scope:
    """The tree of ops by number, in order of execution.

    A scope that holds only one other is one with it. Siblings of like names, from `ALIKE` of them, have a scope of their own.
    What then still holds more than `most` is grouped by how names begin, "conv2_*", or else cut into stretches.
    """
    paths = {op: name.split("/") for op, name in names.items()}
    return Scope(label, _inside(list(names), 0, paths, most))


def _inside(ops: list[int], depth: int, paths: Paths, most: int) -> tuple[Part, ...]:
    members: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        members[paths[op][depth] if depth < len(paths[op]) else ""].append(op)
    parts = {step: _part(step, inside, depth, paths, most) for step, inside in members.items()}
    alike: dict[str, list[str]] = defaultdict(list)
    for step in parts:
        alike[NUMBER.sub("", step)].append(step)
    if len(alike) > 1:
        for stem, steps in alike.items():
            if len(steps) >= ALIKE:
                together = {step: parts.pop(step) for step in steps}
                parts[f"{stem}*"] = Scope(f"{stem}*", _few(together, most))
    return _few(parts, most)


def _part(step: str, ops: list[int], depth: int, paths: Paths, most: int) -> Part:
    if len(ops) == 1:
        return ops[0]
    label, inside = step, _inside(ops, depth + 1, paths, most)
    while len(inside) == 1 and isinstance(inside[0], Scope):
        label, inside = f"{label}/{inside[0].label}", inside[0].inside
    return Scope(label, inside)


def _few(parts: Mapping[str, Part], most: int) -> tuple[Part, ...]:
    """At most `most` parts: these, or groups of them. Given by the step of the name that each stands for."""
    parts = dict(sorted(parts.items(), key=lambda item: first(item[1])))
    if len(parts) <= most:
        return tuple(parts.values())
    if groups := beginnings(parts, most):
        inside = {begins: _few({step: parts[step] for step in steps}, most) for begins, steps in groups.items()}
        return tuple(group[0] if len(group) == 1 else Scope(f"{begins}_*", group) for begins, group in inside.items())
    steps = list(parts)
    size = min(most, max(-(-len(steps) // most), round(len(steps) ** 0.5)))
    stretches: dict[str, Part] = {}
    for start in range(0, len(steps), size):
        stretch = steps[start : start + size]
        label = f"{stretch[0].partition(' … ')[0]} … {stretch[-1].rpartition(' … ')[2]}"
        stretches[label] = Scope(label, tuple(parts[step] for step in stretch)) if len(stretch) > 1 else parts[stretch[0]]
    return _few(stretches, most)


def first(part: Part) -> int:
    """The op of a part that runs first."""
    while isinstance(part, Scope):
        part = part.inside[0]
    return part
