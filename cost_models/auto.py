"""The default cost model: what was measured, then what a fit to it tells, then the analytic model."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from cost_models.analytic import AnalyticModel
from cost_models.fitted import FittedModel
from cost_models.measured import MeasuredModel
from cost_models.shipped import shipped_table
from cost_models.store import Store, Table


def auto_model(store: Store | None = None) -> MeasuredModel:
    """The model over a store, by default the user's, and over what comes with the package where that holds nothing of an op.

    It reads each device model's measurements once: make one per plan.
    """
    source = store or Store()

    @cache
    def tables(device_model: str) -> Table:
        own, shipped = source.table(device_model, installed_tensorflow()), shipped_table(device_model)
        measured = {op_type: shipped.get(op_type, {}) | own.get(op_type, {}) for op_type in shipped | own}
        return {op_type: {op: each.typical() for op, each in column.items()} for op_type, column in measured.items()}

    return MeasuredModel(tables, FittedModel(tables, AnalyticModel()))


def shipped_model() -> MeasuredModel:
    """The same over what comes with the package alone: equal costs wherever it runs."""
    return MeasuredModel(shipped_table, FittedModel(shipped_table, AnalyticModel()))


@cache
def installed_tensorflow() -> str:
    """TensorFlow's version, without importing it; "" where it is not installed."""
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""
