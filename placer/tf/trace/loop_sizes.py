"""The shape of a loop variable in the rounds of a loop and after it, and that of a branch's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from placer.graph.sizes import Rounds, Shape
from placer.tf.trace.bodies import Body, split_input
from placer.tf.trace.size_rules import TensorListSize, merged

Kind: TypeAlias = Literal["exact", "bound", "likely"]
"""Sizes that all runs have, that no run exceeds, or that are most likely."""


@dataclass
class LoopVariable:
    """A shape that holds in every round, found by trying: the body is given a shape, and its result is compared with that.

    A dimension may stay as it is before the loop, change by the same number in each round, or be unknown.

    Args:
        kind: "exact" for a shape that all rounds have, "bound" for one that no round exceeds, "likely" for the mean.
        start: the shape before the loop.
        rounds: of the loop.
    """

    kind: Kind
    start: Shape
    rounds: Rounds
    inside: Shape = field(init=False)
    """What the body is given."""
    change: dict[int, int] = field(default_factory=dict)
    """By dimension: how it changes in each round."""
    shrinks: bool = field(default=False, init=False)
    """Whether a dimension gets smaller, of which a bound is the size before the loop."""

    def __post_init__(self) -> None:
        self.inside = self.start

    def settle(self, result: Shape) -> bool:
        """Compares the body's result with what the body was given; True if that holds, else `inside` is changed."""
        if self.inside is None:
            return True
        if result is None or len(result) != len(self.inside):
            self.inside = None
            return False
        inside = tuple(self._settled(k, before, after) for k, (before, after) in enumerate(zip(self.inside, result, strict=True)))
        held = inside == self.inside
        self.inside = inside
        return held

    def _settled(self, k: int, before: int | None, after: int | None) -> int | None:
        if before is None or after is None:
            return None
        change = after - before
        if change == self.change.get(k, 0):
            return None if change and self.kind == "exact" else before
        if change < 0 and self.kind == "bound":
            self.shrinks = True
            return before  # the first round has the largest
        if self.kind == "likely" and self.change.get(k, 0) < 0:
            return before  # nothing is left to be cut off
        if k in self.change or (change > 0 and not self._counted):
            self.change.pop(k, None)
            return None
        share = 0.5 if self.kind == "likely" else 1.0
        side = before + round(change * max(0, self.rounds.value - 1) * share)
        if side < 0 and self.kind == "exact":  # so it cannot change by the same number in each round
            return None
        self.change[k] = change
        return max(0, side)

    @property
    def varies(self) -> bool:
        """Whether the shape depends on the round."""
        return bool(self.change) or self.shrinks

    @property
    def _counted(self) -> bool:
        return is_counted(self.kind, self.rounds)

    def give_up(self, result: Shape) -> None:
        """Leaves all dimensions open that have not settled."""
        if self.inside is None or result is None or len(result) != len(self.inside):
            self.inside = None
            return
        for k in [k for k, (a, b) in enumerate(zip(self.inside, result, strict=True)) if a != b]:
            self.change.pop(k, None)
        self.inside = tuple(a if a == b else None for a, b in zip(self.inside, result, strict=True))

    @property
    def after(self) -> Shape:
        """The shape after the loop."""
        if self.inside is None or self.start is None:
            return None
        return tuple(
            self._after(first + self.change[k] * self.rounds.value) if first is not None and k in self.change else side
            for k, (first, side) in enumerate(zip(self.start, self.inside, strict=True))
        )

    def _after(self, side: int) -> int | None:
        if self.kind == "likely":
            side = max(0, side)
        return side if side >= 0 and self._counted else None


def list_after(kind: Kind, before: TensorListSize, after: TensorListSize, rounds: Rounds) -> TensorListSize:
    """A list of tensors after a loop, from that before the loop and that after one round."""
    length = None
    if before.length is not None and after.length is not None:
        added = after.length - before.length
        length = before.length + added * rounds.value if not added or is_counted(kind, rounds) else None
    return TensorListSize(length, merged(after.element, before.element), after.pushed)


def is_counted(kind: Kind, rounds: Rounds) -> bool:
    """Whether a number of rounds is certain enough for this kind of sizes."""
    wanted = {"exact": ("exact",), "bound": ("exact", "seen", "given", "bound")}.get(kind)
    return wanted is None or rounds.source in wanted


def is_invariant(inner: Body, position: int) -> bool:
    """Whether a loop's body passes a loop variable on as it is."""
    name, _ = inner.outputs[position]
    while name not in inner.inputs and inner.nodes[name].op == "Identity":
        name, _ = split_input(inner.nodes[name].input[0])
    return inner.inputs.get(name) == position


def joined(kind: Kind, shapes: Sequence[Shape]) -> Shape:
    """The shape of a branch's result, given that in each branch: the largest, or for an exact one what all have."""
    known = [shape for shape in shapes if shape is not None and len(shape) == len(shapes[0] or ())]
    if len(known) < len(shapes):
        return None
    sides = [set(side) for side in zip(*known, strict=True)]
    return tuple(
        None if None in side or (kind == "exact" and len(side) > 1) else max(s for s in side if s is not None) for side in sides
    )
