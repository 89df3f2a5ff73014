"""The scopes of a graph as a tree to open step by step, in which no scope has too many parts to look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from placer.views.shared.folding import MIN_SIBLINGS, TRAILING_NUMBER, by_prefix

MAX_PARTS = 32
"""The most parts of one scope."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Ops below one scope, or some of them. Every op is below exactly one scope."""

    label: str
    """Its name within the scope above: "encoder/layer_3", "AddN*" for siblings, "Cast … Mul_7" for a stretch of neighbours."""
    parts: tuple[Part, ...]
    """Its scopes and ops, in the execution order of their first ops."""


Part: TypeAlias = Scope | int
"""A scope, or an op by its number."""
Paths: TypeAlias = Mapping[int, Sequence[str]]
"""By op, the parts of its name."""


def scopes(names: Mapping[int, str], label: str = "", limit: int = MAX_PARTS) -> Scope:
    """The tree of scopes.

    A scope whose only part is another scope is joined with it. At least `MIN_SIBLINGS` siblings, whose names differ only by a
    number, get a scope of their own. More than `limit` parts are grouped by prefix, "conv2_*", or else cut into stretches.

    Args:
        names: names of the ops by number, in execution order.
        label: the label of the whole tree.
        limit: the most parts of one scope.
    """
    paths = {op: name.split("/") for op, name in names.items()}
    return Scope(label, _parts(list(names), 0, paths, limit))


def _parts(ops: list[int], depth: int, paths: Paths, limit: int) -> tuple[Part, ...]:
    members: dict[str, list[int]] = defaultdict(list)
    for op in ops:
        members[paths[op][depth] if depth < len(paths[op]) else ""].append(op)
    parts = {name: _part(name, inner, depth, paths, limit) for name, inner in members.items()}
    siblings: dict[str, list[str]] = defaultdict(list)
    for name in parts:
        siblings[TRAILING_NUMBER.sub("", name)].append(name)
    if len(siblings) > 1:
        for stem, same in siblings.items():
            if len(same) >= MIN_SIBLINGS:
                together = {name: parts.pop(name) for name in same}
                parts[f"{stem}*"] = Scope(f"{stem}*", _limited(together, limit))
    return _limited(parts, limit)


def _part(name: str, ops: list[int], depth: int, paths: Paths, limit: int) -> Part:
    if len(ops) == 1:
        return ops[0]
    label, parts = name, _parts(ops, depth + 1, paths, limit)
    while len(parts) == 1 and isinstance(parts[0], Scope):
        label, parts = f"{label}/{parts[0].label}", parts[0].parts
    return Scope(label, parts)


def _limited(parts: Mapping[str, Part], limit: int) -> tuple[Part, ...]:
    """The parts, given by name, if they are at most `limit`; otherwise at most `limit` groups of them."""
    parts = dict(sorted(parts.items(), key=lambda item: first(item[1])))
    if len(parts) <= limit:
        return tuple(parts.values())
    if groups := by_prefix(parts, limit):
        limited = {prefix: _limited({name: parts[name] for name in names}, limit) for prefix, names in groups.items()}
        return tuple(group[0] if len(group) == 1 else Scope(f"{prefix}_*", group) for prefix, group in limited.items())
    names = list(parts)
    size = min(limit, max(-(-len(names) // limit), round(len(names) ** 0.5)))
    stretches: dict[str, Part] = {}
    for start in range(0, len(names), size):
        stretch = names[start : start + size]
        label = f"{stretch[0].partition(' … ')[0]} … {stretch[-1].rpartition(' … ')[2]}"
        stretches[label] = Scope(label, tuple(parts[name] for name in stretch)) if len(stretch) > 1 else parts[stretch[0]]
    return _limited(stretches, limit)


def first(part: Part) -> int:
    """The op of a part that runs first."""
    while isinstance(part, Scope):
        part = part.parts[0]
    return part
