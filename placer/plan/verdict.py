"""Verdict: what real calls took under several placements, and which placement is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from placer.common.html import Html, html_table, stacked
from placer.common.tables import table
from placer.common.units import format_ns, ratio, three_digits
from placer.plan.parts import BASELINE_NAMES

DEFAULT, PLAN = BASELINE_NAMES["tf_default"], "the plan"
"""Names of the two candidates that every race has."""
MOVED = ", variables moved"
"""End of the names of candidates that have variables in other places than they were in."""

VERDICT_HEAD = ("candidate", "measured", "predicted", "calls", "")
"""The head of a table of `Verdict.rows`."""
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

    @property
    def headline(self) -> str:
        """The time of the candidate that is used, against TensorFlow's default; "" if one of them was not timed."""
        used, default = self.of(self.used), self.of(DEFAULT)
        if used is None or default is None or not used.median_ns or not default.median_ns:
            return ""
        time = f"{format_ns(used.median_ns)} per step"
        if self.used == DEFAULT:
            others = len(self.candidates) - 1
            none = "the other candidate is not" if others == 1 else f"none of {others} others is"
            return f"measured: {none} clearly faster than {DEFAULT}, which is used: {time}"
        change = ratio(default.median_ns, used.median_ns, "faster than", "slower than", "as fast as")
        return f"measured {change} {DEFAULT}: {time} instead of {format_ns(default.median_ns)} ({self.used} is used)"

    @property
    def rows(self) -> list[list[str]]:
        """A row of text for each candidate, below `VERDICT_HEAD`: name, measured and predicted time, calls, what became of it."""
        return [
            [
                candidate.name,
                format_ns(candidate.median_ns) if candidate.median_ns else "",
                format_ns(candidate.predicted_ns) if candidate.predicted_ns else "",
                str(candidate.calls),
                "used" if candidate.name == self.used else candidate.outcome,
            ]
            for candidate in self.candidates
        ]

    @property
    def cost(self) -> str:
        """Why the race ended and what it cost, or how long the tuning took, in words."""
        if self.end == TUNED:
            return f"tuned in {three_digits(self.cost_s)} s, with {self.calls} timed calls"
        return f"the race ended after {self.calls} calls: {self.end}; it cost {self.cost_s:.2g} s"

    def __str__(self) -> str:
        return "\n".join([self.headline or f"{self.used} is used", table(VERDICT_HEAD, self.rows), self.cost])

    def _repr_html_(self) -> Html:
        return stacked(self.headline or f"{self.used} is used", html_table(VERDICT_HEAD, self.rows), self.cost)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that `to_json` wrote. Raises TypeError or KeyError for anything else."""
        return cls(**{**data, "candidates": tuple(TimedCandidate(**row) for row in data["candidates"])})
