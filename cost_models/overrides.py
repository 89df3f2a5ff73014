"""A user's own word on what an op costs, on top of any cost model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device


@dataclass(frozen=True, slots=True)
class Override:
    """What replaces a model's figure: a time of one run, or a factor on the model's time. Exactly one of the two."""

    time_ns: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        value = self.factor if self.time_ns is None else self.time_ns
        if (self.time_ns is None) == (self.factor is None) or value is None or not 0 <= value < float("inf"):
            raise ValueError(f"an Override takes either time_ns or factor, finite and not negative; got {self}")


@dataclass(frozen=True, slots=True)
class OverrideModel:
    """Another model with some op types' costs replaced; such costs have the source "user".

    ``overrides`` is by op type or glob of op types, then by device name ("GPU:1") or kind ("GPU"). The most exact entry holds:
    an op type before globs, globs in the order given, a device's name before its kind.

        slow_eigh = OverrideModel(AnalyticModel(), {"SelfAdjointEig*": {"GPU": Override(factor=300)}})
    """

    base: CostModel
    overrides: Mapping[str, Mapping[str, Override]]

    @property
    def name(self) -> str:
        return f"{self.base.name}+user"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The base model's cost, changed where an override matches."""
        cost = self.base.op_cost(signature, device)
        override = self._find(signature.op_type, device)
        if override is None:
            return cost
        if override.time_ns is None:
            factor = override.factor or 0.0
            dispatch, compute = round(cost.dispatch_ns * factor), round(cost.compute_ns * factor)
            time = max(dispatch, compute) if device.asynchronous else dispatch + compute
        else:
            time = override.time_ns
            dispatch = min(cost.dispatch_ns, time)
            compute = time if device.asynchronous else time - dispatch
        return dataclasses.replace(cost, time_ns=time, dispatch_ns=dispatch, compute_ns=compute, source="user")

    def _find(self, op_type: str, device: Device) -> Override | None:
        rows = [self.overrides[op_type]] if op_type in self.overrides else []
        rows += [row for glob, row in self.overrides.items() if glob != op_type and fnmatchcase(op_type, glob)]
        return next((row[key] for row in rows for key in (device.name, device.kind) if key in row), None)
