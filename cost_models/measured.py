"""Costs that were measured, looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost_models.analytic import launching_ns
from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device
from cost_models.ops import is_awaited, work_of
from cost_models.store import Table, signature_text


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """The measured cost of an op on a device of that model, and where there is none another model's."""

    tables: Callable[[str], Table]
    """What was measured, by device model."""
    otherwise: CostModel

    @property
    def name(self) -> str:
        return f"measured, else {self.otherwise.name}"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The figure for exactly this signature; its workspace is the one that `cost_models.ops` tells."""
        column = self.tables(device.model).get(signature.op_type)
        measured = column.get(signature_text(signature)) if column else None
        if measured is None:
            return self.otherwise.op_cost(signature, device)
        work, dispatch, compute = work_of(signature), measured.dispatch_ns, measured.compute_ns
        if device.asynchronous and is_awaited(signature):  # one after the other, each waits for the one before
            dispatch, compute = min(dispatch, launching_ns(signature.op_type, work, device)), max(dispatch, compute)
        source = "harvested" if measured.harvested else "measured"
        return OpCost(measured.time_ns, dispatch, compute, work.workspace_bytes, source)
