"""The cost of an op as it was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost_models.analytic import launch_ns
from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device
from cost_models.measurements import Table, signature_text
from cost_models.ops import is_awaited, work_of


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """The cost of an op as measured on a device of the same model, or another model's cost of an op that was not measured."""

    tables: Callable[[str], Table]
    """The measurements, by device model."""
    otherwise: CostModel

    @property
    def name(self) -> str:
        return f"measured, else {self.otherwise.name}"

    def op_cost(self, signature: OpSignature, device: Device) -> OpCost:
        """The measured times of exactly this signature, with the workspace that its formula gives."""
        column = self.tables(device.model).get(signature.op_type)
        measured = column.get(signature_text(signature)) if column else None
        if measured is None:
            return self.otherwise.op_cost(signature, device)
        work, dispatch, compute = work_of(signature), measured.dispatch_ns, measured.compute_ns
        if device.asynchronous and is_awaited(signature):
            # Each op of the measured chain waited for the one before it, so its dispatch time includes that wait.
            dispatch, compute = min(dispatch, launch_ns(signature.op_type, work, device)), max(dispatch, compute)
        source = "harvested" if measured.harvested else "measured"
        return OpCost(measured.time_ns, dispatch, compute, work.workspace_bytes, source)
