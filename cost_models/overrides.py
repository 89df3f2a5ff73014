"""Costs that the user states, on top of any cost model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device


@dataclass(frozen=True, slots=True)
class Override:
    """A time of one run that replaces the model's, or a factor on the model's time. Exactly one of the two is given."""

    time_ns: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        value = self.factor if self.time_ns is None else self.time_ns
        if (self.time_ns is None) == (self.factor is None) or value is None or not 0 <= value < float("inf"):
            raise ValueError(f"an Override takes either time_ns or factor, finite and not negative; got {self}")


@dataclass(frozen=True, slots=True)
class OverrideModel:
    """Another model, with the costs of some op types replaced. A replaced cost has the source "user".

    The keys of ``overrides`` are op types or globs of op types; the keys below them are device names ("GPU:1") or kinds ("GPU").
    The most specific entry applies: an op type comes before a glob, globs in their order, a device's name before its kind.

        slow_eigh = OverrideModel(AnalyticModel(), {"SelfAdjointEig*": {"GPU": Override(factor=300)}})
    """

    base: CostModel
    overrides: Mapping[str, Mapping[str, Override]]

    @property
    def name(self) -> str:
        return f"{self.base.name}+user"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The base model's cost, replaced if an override matches."""
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
