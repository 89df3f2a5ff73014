"""Why an op is where it is, or may not be elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ReasonKind: TypeAlias = Literal[
    "kernel", "pin", "resource", "location", "scope", "cost", "neighbours", "indifferent", "whole", "assigned"
]
"""The first five rule out other devices. The next four are the solver's choice: the op is cheaper here; transfers are saved; it
is a tie; or moving this op alone would lower the total cost, but not improve the whole plan. The last is the user's choice, in a
placement that was only simulated."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its kind, and a sentence for people."""

    kind: ReasonKind
    op: str
    """The op that the reason is about. It decides for all ops that share a device with it."""
    text: str
