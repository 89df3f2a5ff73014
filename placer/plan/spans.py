"""What timelines are made of, predicted or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """Something that takes time on a track."""

    process: str
    """What its track belongs to: a device, the links, a step as a whole."""
    track: str
    """A stream, a thread, a link. Spans of one track do not overlap, save those inside others."""
    name: str
    start_ns: int
    end_ns: int
    about: Mapping[str, Any]
    """Plain JSON types, shown with it."""
