"""What tuning a function found: the report of `PlacedFunction.tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from placer.plan.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Tuned:
    """What tuning a function found. Later calls run the candidate that `verdict` uses."""

    function: str
    machine: str
    """Name of the machine."""
    verdict: Verdict
    """Predicted and measured times of the candidates."""
    learnt: Sequence[str]
    """What the plans were made from, in words: sizes, op times."""
    notes: Sequence[str]
    """What was not done and why, and what differs in the candidate that is used."""

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.function} on {self.machine}: {self.verdict}",
            *(f"learnt: {text}" for text in self.learnt),
            *(f"note: {text}" for text in self.notes),
        ]
        return "\n".join(lines)
