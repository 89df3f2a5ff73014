"""Spans of time on tracks: the parts of a timeline, predicted or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One activity on a track of a timeline."""

    process: str
    """The owner of the track: a device, "transfers" or "step"."""
    track: str
    """A stream, a thread or a link. Spans of one track do not overlap, unless one is inside the other."""
    name: str
    start_ns: int
    end_ns: int
    about: Mapping[str, Any]
    """Details to show with it, as plain JSON types."""
