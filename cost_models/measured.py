"""The cost of an op as it was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost_models.base import CostModel, OpCost, OpSignature
from cost_models.machines import Device
from cost_models.measurements import Table, signature_text
from cost_models.ops import work_of


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
        source, workspace = "harvested" if measured.harvested else "measured", work_of(signature).workspace_bytes
        return OpCost(measured.time_ns, measured.dispatch_ns, measured.compute_ns, workspace, source)
