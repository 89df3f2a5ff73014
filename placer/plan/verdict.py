"""Verdict: what real calls took under several placements, and which placement is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from placer.plan.parts import BASELINE_NAMES

DEFAULT, PLAN = BASELINE_NAMES["tf_default"], "the plan"
"""Names of the two candidates that every race has."""
MOVED = ", variables moved"
"""End of the names of candidates that have variables in other places than they were in."""

TUNED = "tune has timed the candidates"
"""The end of a verdict that a tuning has made."""


@dataclass(frozen=True, slots=True)
class TimedCandidate:
    """One candidate of a race: a placement, or another way to run the function."""

    name: str
    predicted_ns: int
    """Predicted step time; 0 where nothing is predicted."""
    median_ns: int
    """Median time of its timed calls; 0 if none was timed."""
    calls: int
    """Calls that it ran, with those that were not timed."""
    outcome: str
    """Why it left the race, in words; "" if it stayed to the end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a race. See `placer.placed.race`."""

    candidates: tuple[TimedCandidate, ...]
    """Fastest first; those that were not timed come last."""
    used: str
    """Name of the candidate that later calls run."""
    end: str
    """Why the race ended, in words."""
    cost_s: float
    """What the race took beyond the same number of calls of the candidate that is used, in seconds; the time of a tuning."""
    compiled_for: str = ""
    """The device that XLA compiles the function for as a whole, if that is the candidate that is used; "" for a placement."""

    @property
    def calls(self) -> int:
        """Calls that the candidates ran."""
        return sum(candidate.calls for candidate in self.candidates)

    def of(self, name: str) -> TimedCandidate | None:
        """The candidate of this name; None if it was not in the race."""
        return next((candidate for candidate in self.candidates if candidate.name == name), None)

    @property
    def speedup(self) -> float | None:
        """Time of TensorFlow's default divided by the time of the candidate that is used; None if one was not timed."""
        default, used = self.of(DEFAULT), self.of(self.used)
        return default.median_ns / used.median_ns if default and used and default.median_ns and used.median_ns else None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that `to_json` wrote. Raises TypeError or KeyError for anything else."""
        return cls(**{**data, "candidates": tuple(TimedCandidate(**row) for row in data["candidates"])})
