"""The measured time of an op, with everything that it depends on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cost_models.base import OpSignature
from cost_models.ops import as_measured

MAX_TIME_NS = 2**50
"""No op takes this long, which is thirteen days. It keeps the sums over a plan within 64-bit integers."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The time of one run of an op on one device. `time_ns`, `dispatch_ns` and `compute_ns` are those of `OpCost`."""

    time_ns: int
    dispatch_ns: int
    compute_ns: int
    spread: float
    """Lower quartile of the samples less the least sample, as a share of `time_ns`. Small on an undisturbed machine."""
    harvested: bool = False
    """True if it is a median over real steps, in which other ops ran beside this one; False if the op was run by itself."""

    def typical(self) -> Measurement:
        """The lower quartile instead of the least sample, which is closer to the op's time in a step.

        On an asynchronous device the spread belongs to the longer part, dispatch or compute, so only that part grows. A harvested
        measurement comes from steps and stays as it is.
        """
        if self.harvested:
            return self
        factor = 1 + self.spread
        serial = self.time_ns == self.dispatch_ns + self.compute_ns
        dispatch = self.dispatch_ns * (factor if serial or self.dispatch_ns >= self.compute_ns else 1)
        compute = self.compute_ns * (factor if serial or self.dispatch_ns < self.compute_ns else 1)
        time = dispatch + compute if serial else max(dispatch, compute)
        return Measurement(round(time), round(dispatch), round(time) - round(dispatch) if serial else round(compute), self.spread)


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement as it is stored: with the device, the version of TensorFlow and the op that it belongs to."""

    device_model: str
    tensorflow: str
    """Version of TensorFlow."""
    signature: OpSignature
    measured: Measurement


Table: TypeAlias = dict[str, dict[str, Measurement]]
"""Measurements on one device model, by op type and then by `signature_text`."""


def signature_text(signature: OpSignature) -> str:
    """A signature as JSON text, under which its measurements are stored (see `as_measured`)."""
    return json.dumps(as_measured(signature).to_json(), separators=(",", ":"))


def signature_of(text: str) -> OpSignature | None:
    """The signature that `signature_text` made the text from, None if the text is garbled."""
    try:
        return OpSignature.from_json(json.loads(text))
    except (TypeError, ValueError):
        return None


def measurement_of(figures: Sequence[Any]) -> Measurement:
    """A measurement from its stored fields, in order. Format version 1 had no last field, `harvested`.

    Raises:
        ValueError: a field has the wrong type or is out of range.
    """
    time_ns, dispatch_ns, compute_ns, spread, harvested = figures if len(figures) == 5 else (*figures, False)
    times = time_ns, dispatch_ns, compute_ns
    if type(spread) not in (int, float) or not 0 <= spread < MAX_TIME_NS or harvested not in (0, 1):
        raise ValueError(f"{[spread, harvested]} are not a spread and a flag for harvested")
    if not all(type(time) is int and 0 <= time * (1 + spread) < MAX_TIME_NS for time in times):
        raise ValueError(f"{times} are not a time, a dispatch and a compute time in ns")
    return Measurement(*times, float(spread), bool(harvested))
