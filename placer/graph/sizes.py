"""What is known of sizes and of numbers of rounds, and the source of that knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

Source: TypeAlias = Literal["exact", "seen", "given", "bound", "assumed"]
"""From the most to the least certain. "exact": the graph says it. "seen": a run had it. "given": the user said it. "bound": an
upper bound follows from the graph. "assumed": nothing is known."""

Shape: TypeAlias = tuple[int | None, ...] | None
"""None for an unknown dimension or rank."""

_ORDER: tuple[Source, ...] = get_args(Source)


def weakest(sources: Iterable[Source]) -> Source:
    """The source of what is derived from values of these sources: the least certain of them; "exact" of none."""
    return max(sources, key=_ORDER.index, default="exact")


End: TypeAlias = Literal["low", "high"]
"""Of what is assumed or only bounded: everything as small, or everything as large, as it may well be."""

LOW_SIDE, HIGH_SIDE = 1, 256
"""A dimension of which nothing is known, at each end."""
LOW_ROUNDS, HIGH_ROUNDS = 1, 500
"""The rounds of a loop of which nothing is known, at each end."""


class Rounds(NamedTuple):
    """How often a loop runs its body."""

    value: int
    source: Source

    def at(self, end: End) -> int:
        """The rounds at an end; `value` if they are neither assumed nor bounded."""
        if self.source not in ("assumed", "bound"):
            return self.value
        if end == "low":
            return min(LOW_ROUNDS, self.value)
        return self.value if self.source == "bound" else max(HIGH_ROUNDS, self.value)


@dataclass(frozen=True, slots=True)
class Size:
    """What is known of the shape of a tensor whose shape is not exact.

    The tensor's `TensorSpec` has the most likely shape, by which time is counted. Memory is counted by `bound`.
    """

    source: Source
    bound: Shape
    """A shape that no run exceeds, in the seen runs for a "seen" one; None for each dimension that has no bound."""
    low: Shape = None
    """The shape at the low end; None if that is the likely one."""
    high: Shape = None
    """The same at the high end."""

    @classmethod
    def from_json(cls, row: Sequence[Any]) -> Size:
        """The size of which a row has the fields in order, with JSON's lists in place of tuples."""
        source, *shapes = row
        return cls(source, *(None if shape is None else tuple(shape) for shape in shapes))

    def at(self, end: End) -> Shape:
        """The shape at an end; None if that is the likely one."""
        return self.low if end == "low" else self.high
