"""What is known of sizes and of numbers of rounds, and the source of that knowledge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

Source: TypeAlias = Literal["exact", "seen", "given", "bound", "assumed"]
"""From the most to the least certain. "exact": the graph says it. "seen": a run had it. "given": the user said it. "bound": an
upper bound follows from the graph. "assumed": nothing is known."""

Shape: TypeAlias = tuple[int | None, ...] | None
"""None for an unknown dimension or rank."""

_ORDER: tuple[Source, ...] = get_args(Source)


def weakest(sources: Iterable[Source]) -> Source:
    """The source of what is derived from values of these sources: the least certain of them; "exact" of none."""
    return max(sources, key=_ORDER.index, default="exact")


class Rounds(NamedTuple):
    """How often a loop runs its body."""

    value: int
    source: Source


@dataclass(frozen=True, slots=True)
class Size:
    """What is known of the shape of a tensor whose shape is not exact.

    The tensor's `TensorSpec` has the most likely shape, by which time is counted. Memory is counted by `bound`.
    """

    source: Source
    bound: Shape
    """A shape that no run exceeds, in the seen runs for a "seen" one; None for each dimension that has no bound."""
