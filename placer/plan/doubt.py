"""How far predicted step times are from measured ones, by kind of placement.

The figures in doubt.json are those of all placements in tests/data that a solver or a person made, each predicted without
measurements of its own ops. `python -m tests.benchmarks.doubt` writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from placer.plan.placement import Placement

Kind: TypeAlias = Literal["default", "one device", "split", "split loop"]
"""TensorFlow's default; all ops that take time on one device; ops on several devices, without copies in each round of a loop, and
with such copies."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """The doubt in predictions for one kind of placements."""

    low: float
    """10th percentile of the measured step time divided by the predicted one."""
    high: float
    """90th percentile of the same."""
    gain: float
    """90th percentile of the predicted gain divided by the measured one; at least 1. The gain is the step time of TensorFlow's
    default divided by that of the placement."""


def doubt_of(placement: Placement) -> Doubt:
    """The doubt in a placement's predicted step time."""
    return doubts()[kind_of(placement)]


def kind_of(placement: Placement) -> Kind:
    """The kind of a placement. One that equals TensorFlow's default is of that kind, even if a solver chose it."""
    plans = placement.ops.values()
    if all(plan.device == plan.default for plan in plans):
        return "default"
    if any(copied.count > 1 and copied.src != copied.dst and copied.output >= 0 for copied in placement.transfers):
        return "split loop"
    return "split" if len({plan.device for plan in plans if plan.time_ns.get(plan.device)}) > 1 else "one device"


@cache
def doubts() -> dict[str, Doubt]:
    """The doubt in each kind of placements."""
    table = json.loads(resources.files("placer.plan").joinpath("doubt.json").read_text("utf-8"))
    return {kind: Doubt(**figures) for kind, figures in table.items()}
