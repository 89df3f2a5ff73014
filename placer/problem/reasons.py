"""Why an op is where it is, or may not be elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ReasonKind: TypeAlias = Literal[
    "kernel", "pin", "resource", "location", "scope", "cost", "neighbours", "indifferent", "whole", "assigned"
]
"""The first five leave an op no other device; the next are the solver's choice: cheaper here, transfers saved, a tie, or the
plan as a whole where moving this op alone would look better. The last is the user's, in a placement that was only simulated."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, in a word and in words."""

    kind: ReasonKind
    op: str
    """The op it holds for first; ops that share a device with it follow."""
    text: str
